"""When a request is called gone: not while a gcloud that creates it is at work, nor while a list of the cloud shows something of it."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podwright.shell import Shell
from podwright.targets import alive
from podwright.targets.gke import pools
from podwright.targets.machines import AllocationState
from tests.unit.targets.gke.entry import gke


class EmptyCloud(Shell):
    """gcloud and kubectl that list nothing but these pools; `before` is called before they do."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] = lambda: None
        self.pools: list[dict[str, Any]] = []

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        self.before()
        if argv[0] == "gcloud":
            return 0, json.dumps(self.pools if "node-pools" in argv else []), ""
        return 0, "" if "--output=name" in argv else '{"items": []}', ""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmptyCloud:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    return EmptyCloud()


def test_a_request_is_not_gone_while_a_gcloud_that_may_create_it_is_at_work(shell: EmptyCloud) -> None:
    own = pools.NodePoolProvisioner(shell, gke(provisioning="spot", topology="v6e-16"))
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    lock = pools._creating(request.name)
    with alive.held(lock):  # as gcloud holds it, which a killed launcher had started
        assert own.describe(request).state is AllocationState.WAITING
        assert own.create(request).state is AllocationState.WAITING, "not by a second gcloud"
        own.delete(request)
        answer = own.describe(request)
    assert answer.state is AllocationState.WAITING and answer.reason.startswith("Requesting: gcloud"), answer
    with contextlib.ExitStack() as creation:
        creation.enter_context(alive.held(lock))
        shell.before = creation.close
        assert own.describe(request).state is AllocationState.WAITING, (
            "it may have created the pool since it was listed"
        )
    assert own.describe(request).state is AllocationState.GONE and not lock.exists()


@pytest.mark.parametrize("status", ["STOPPING", "RUNNING", "ERROR"])
def test_a_request_that_is_being_deleted_is_not_gone_while_a_pool_of_it_is_listed(
    shell: EmptyCloud, status: str
) -> None:
    own = pools.NodePoolProvisioner(shell, gke(provisioning="spot", topology="v6e-16"))
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    (name,) = request.details["pools"]
    shell.pools = [{"name": name, "status": status, "config": {"resourceLabels": dict(request.labels)}}]
    own.delete(request)
    state = own.describe(request).state
    assert state is not AllocationState.GONE and (state is AllocationState.DELETING) is (status == "STOPPING")
    shell.pools = []
    assert own.describe(request).state is AllocationState.GONE
