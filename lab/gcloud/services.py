"""One entrance to the services of the simulated cloud: the path of a request says which of them answers."""

from collections.abc import Mapping

from lab.gcloud import api, compute, container
from lab.gcloud.api import Json
from lab.gcloud.store import State


def handle(
    state: State, method: str, path: str, query: Mapping[str, str], body: Json | None = None, caller: str = "user"
) -> Json:
    """The answer to a request, or ApiError. `caller` is "user", or "instance" for a token from the metadata server."""
    if compute.PATH.match(path):
        return compute.handle(state, method, path, query, body, caller)
    if container.PATH.match(path):
        return container.handle(state, method, path, query, body, caller)
    return api.handle(state, method, path, query, body, caller)
