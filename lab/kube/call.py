"""One call of the API by its URL: which verb of which resource, as RBAC and the audit log name it."""

from dataclasses import dataclass

from lab.kube.discovery import RESOURCES, Resource
from lab.kube.errors import ApiError

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}


@dataclass(frozen=True)
class Call:
    verb: str
    row: Resource
    namespace: str  # "" for all, and for what has none
    name: str
    subresource: str
    query: dict[str, str]
    version: str  # in which the objects are given and shown

    @property
    def api_version(self) -> str:
        return f"{self.row.group}/{self.version}" if self.row.group else self.version

    @property
    def full_resource(self) -> str:
        return f"{self.row.plural}/{self.subresource}" if self.subresource else self.row.plural


def parsed(method: str, path: str, query: dict[str, str]) -> Call | None:
    """None for paths of discovery, which name no resource."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"] and len(parts) > 2:
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *_ = [*rest, "", ""]
    row = RESOURCES.get(plural)
    known = row and ("", "status" if row.status else "", *row.subresources)
    if row is None or row.group != group or not known or subresource not in known or len(rest) > 3:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    verb = VERBS.get(method, method.lower())
    if verb == "get" and not name:
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    elif subresource == "exec":
        verb = "create"
    return Call(verb, row, namespace, name, subresource, query, version)
