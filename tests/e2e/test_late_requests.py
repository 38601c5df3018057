"""Requests for machines that take effect after the run has had them deleted: nothing of them is left, or it is named with its price.

Two machines are two folders, each with targets and runs of its own; the run is kept in a bucket that both reach.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.bucket import EmulatedBucket
from lab.gcloud import store
from lab.gcloud.control import Folder, Gcloud
from lab.kube import controllers
from lab.kube.control import Kube
from tests.e2e.conftest import Bench, wait_for
from tests.e2e.fork_server import ForkedProcess
from tests.e2e.gke_cluster import LAUNCH, A
from tests.e2e.test_tpu_vm import ZONES

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
GKE: dict[str, Any] = {"kind": "gke", "project": "my-project", "cluster": "my-cluster", "zones": [A]}
GKE |= {"topology": "v6e-16", "provisioning": "on-demand", "price": 2.0}
TPU: dict[str, Any] = {"kind": "tpu-vm", "project": "my-project", "zones": [ZONES[0]], "accelerator_type": "v6e-16"}
SOON = {"CHECK_EVERY_S": "1", "LAG_S": "1", "POLL_S": "0.3"}


class Machine(Bench):
    """A machine whose target `pod` requests machines of the simulated cloud."""

    def __init__(self, folder: Path, launch: Path, entry: dict[str, Any], environment: dict[str, str]):
        folder.mkdir()
        super().__init__(folder)
        self.launch = launch
        (folder / "targets.yaml").write_text(json.dumps({"pod": entry}))
        self._environment = {**environment, **SOON, "HOME": str(folder)}
        self._environment["PODWRIGHT_TARGETS"] = str(folder / "targets.yaml")

    def start(self, *argv: str, **env: str):  # type: ignore[no-untyped-def]
        return super().start(*argv, **self._environment | env)

    @property
    def url(self) -> str:
        return str(json.loads(self.path("storage.json").read_text())["url"])

    def happened(self, event: str) -> int:
        return [record["event"] for record in self.records("journal.jsonl")].count(event)


class Both:
    """Machines `first` and `second` at one simulated cloud."""

    def __init__(self, gcloud: Gcloud, kube: Kube | None, first: Machine, second: Machine, create: str, row: str):
        self.gcloud, self.kube, self.first, self.second = gcloud, kube, first, second
        self.create, self.row = create, row

    def freeze_in_creation(self, seconds: float = 15.0) -> list[psutil.Process]:
        """A launcher of the first machine and its gcloud, both stopped before the request is sent."""
        self.gcloud.fault(self.create, delay_s=seconds)
        launcher = self.first.start_run(5, "mesh.fsdp=16", "--on", "pod")
        self.wait(lambda: any(set(self.create.split()) <= set(row["argv"]) for row in self.gcloud.calls()), launcher)
        frozen = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children(recursive=True)]
        with store.opened(self.gcloud.root):  # so that none of them holds it for good
            for process in frozen:
                process.suspend()
        assert not self.there(), "frozen too late"
        return frozen

    @staticmethod
    def wait(true: Callable[[], bool], launcher: ForkedProcess) -> None:
        """Until something is true; AssertionError with what the launcher has printed if it ends before."""
        wait_for(lambda: true() or launcher.poll() is not None)
        assert launcher.poll() is None, launcher.communicate()

    def there(self) -> list[str]:
        return [row["name"] for row in self.gcloud.resources() if row["kind"] == self.row]


@pytest.fixture(params=["gke", "tpu-vm"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    gke = request.param == "gke"
    with contextlib.ExitStack() as stack:
        gcloud = stack.enter_context(Gcloud(stack.enter_context(Folder(tmp_path))))
        bucket = stack.enter_context(EmulatedBucket())
        environment = {**gcloud.environment, **bucket.environment}
        kube = None
        if gke:
            kube = stack.enter_context(Kube(tmp_path, **{key: GKE[key] for key in ("project", "cluster")}))
            gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(A,))
            gcloud.times(pool=8.0)
            environment |= kube.environment
        else:
            gcloud.capacity(ZONES[0], 0)  # no hosts are started
        entry = GKE | {"bucket": f"{bucket.url}/runs"} if gke else TPU | {"storage": f"{bucket.url}/runs"}
        launch = LAUNCH if gke else LAUNCH.with_name("launch_tpu.py")
        machines = [Machine(tmp_path / name, launch, entry, environment) for name in ("a", "b")]
        create, row = (
            ("container node-pools create", "node-pool") if gke else ("queued-resources create", "queued-resource")
        )
        yield Both(gcloud, kube, *machines, create, row)
        for machine in machines:
            for process in machine.started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                process.kill()


def stopped_elsewhere(both: Both) -> None:
    """The second machine takes the run over, requests its machines again, and has them deleted."""
    resumed = both.second.start("resume", both.first.url)
    both.wait(lambda: bool(both.there()), resumed)
    resumed.send_signal(signal.SIGINT)
    out, err = resumed.communicate(timeout=900)
    assert both.there() == [] and both.second.happened("allocation gone") == 1, out + err


@pytest.mark.long
def test_a_launcher_that_was_frozen_deletes_what_it_requests_after_the_run_has_ended(both: Both) -> None:
    frozen = both.freeze_in_creation()
    stopped_elsewhere(both)
    for process in frozen:
        process.resume()
    out, err = both.first.started[0].communicate(timeout=900)
    assert "run r was continued from another machine" in out + err, out + err
    assert "exists, and its run has had it deleted: it is deleted again" in out + err
    assert "16 v6e chips for " in out + err and " USD per hour" in out + err
    assert both.gcloud.resources() == [], out + err


@pytest.mark.long
def test_clean_waits_for_what_the_gcloud_of_a_killed_launcher_may_create_or_names_it(both: Both) -> None:
    _, *gcloud = both.freeze_in_creation()
    launcher = both.first.started[0]
    launcher.kill()
    launcher.communicate()
    requesting, cleaning = "Requesting: gcloud, which creates it, has not ended yet", None
    if both.kube:  # the cloud lists its queues already
        cleaning = both.first.start("clean", "--yes")
        wait_for(lambda: both.kube is None or not both.kube.objects("localqueues"))
    else:
        code, out, err = both.first.call("clean", "--yes")
        assert code == 2 and f"were not listed: {requesting}" in err, (out, err)
        assert "type podwright stop" in err and "which stops the run and deletes them" in err
    for process in gcloud:
        process.resume()
    wait_for(lambda: bool(both.there()))
    cleaning = cleaning or both.first.start("clean", "--yes")
    out, err = cleaning.communicate(timeout=900)
    assert cleaning.returncode == 0 and both.gcloud.resources() == [], (out, err)
    assert (requesting in err) is bool(both.kube)
    usage = both.first.standing()["usage"]
    hours, charged = usage["chip_hours"] if usage else 0.0, both.gcloud.chip_hours()
    assert charged <= hours <= charged + 16 * 10 / 3600 and not (usage and usage["open"])
