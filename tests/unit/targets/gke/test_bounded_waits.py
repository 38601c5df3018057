"""What would never pass by itself while machines cost: a node that hangs, and pods that do not start."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from podwright.rundir import Ending, RunDir
from podwright.shell import Shell
from podwright.targets import clock
from podwright.targets.base import Polled, Process
from podwright.targets.gke import attempt_folder, submit, waiting
from podwright.targets.gke.target import Gke
from podwright.targets.settings.gke import GkeSettings
from podwright.watch.diagnose import with_end
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.test_waiting import conditions, job, jobset, pod


class Cluster(Shell):
    """kubectl that lists these objects, and has no logs."""

    def __init__(self, *items: dict[str, Any]) -> None:
        super().__init__()
        self.items = items

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        items = self.items if "jobsets,jobs,pods" in argv else ()
        return 0, json.dumps({"kind": "List", "items": items}), ""

    def stream(self, *_: Any, **__: Any) -> tuple[int, str]:
        return 0, ""


def polled(tmp_path: Path, own: GkeSettings, *items: dict[str, Any], ago_s: float = 0.0) -> Polled:
    """Of an attempt that was submitted so long ago."""
    target, run = Gke(Cluster(*items), "pod", own), RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True, exist_ok=True)
    boot, seconds = clock.uptime()
    (run.attempt(1) / attempt_folder.SUBMITTED).write_text(f"{boot} {seconds - ago_s}")
    return target.poll(handle_of(run, target))


def handle_of(run: RunDir, target: Gke) -> dict[str, Any]:
    handle = {"run_dir": str(run.path), "attempt": 1, "jobset": "pw-r", "tag": "1a", "queue": "q", "kinds": ["jobsets"]}
    return handle | {"pods": 2, "processes": 2, "pods_per_job": 2, **target.identity}


@pytest.mark.parametrize("provisioning", ["spot", "flex-start", "existing"])
def test_an_attempt_that_another_machine_has_submitted_is_followed_without_its_files(
    tmp_path: Path, provisioning: str
) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    pods = [pod(number, "Running", f"n-{number}", **running) for number in range(2)]
    own = gke(provisioning=provisioning, topology="v6e-16")
    target, run = Gke(Cluster(jobset(), job(2), *pods), "pod", own), RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    assert target.poll(handle_of(run, target)).process is Process.RUNNING


@pytest.mark.parametrize(("ago_s", "process"), [(60.0, Process.RUNNING), (3600.0, Process.ENDED)])
def test_an_attempt_on_a_node_that_hangs_ends_although_its_jobset_has_not(
    tmp_path: Path, ago_s: float, process: Process
) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    taken = conditions(DisruptionTarget=("True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute"))
    lost = pod(1, "Running", "n-1", **running, **taken)
    terminating(lost, ago_s)
    answer = polled(tmp_path, gke(), jobset(), job(2), pod(0, "Running", "n-0", **running), lost)
    assert answer.process is process
    if process is Process.ENDED:
        assert answer.ending is Ending.NODE_LOST and answer.failed_hosts == ("n-1",)
        assert "DeletionByTaintManager" in answer.detail


def terminating(pod: dict[str, Any], ago_s: float) -> dict[str, Any]:
    """Whose grace was over so long ago."""
    due = datetime.fromtimestamp(time.time() - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod["metadata"] |= {"deletionTimestamp": due, "deletionGracePeriodSeconds": 30}
    return pod


@pytest.mark.parametrize(("ago_s", "process"), [(60.0, Process.RUNNING), (700.0, Process.ENDED)])
def test_an_attempt_whose_jobset_is_gone_does_not_wait_for_nodes_that_hang(
    tmp_path: Path, ago_s: float, process: Process
) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    pods = [terminating(pod(number, "Running", f"n-{number}", **running), ago_s) for number in range(2)]
    (tmp_path / "r").mkdir()
    folder = RunDir(tmp_path / "r").attempt(1)
    folder.mkdir(parents=True)
    (folder / submit.RESULT).write_text("{}")
    answer = polled(tmp_path, gke(), *pods)
    assert answer.process is process, answer
    if process is Process.ENDED:
        assert answer.ending is Ending.STOPPED and "was deleted on the cluster, not by Podwright" in answer.detail
    pods[0]["metadata"].pop("deletionTimestamp")
    (folder / attempt_folder.ENDED).unlink(missing_ok=True)
    assert polled(tmp_path, gke(), *pods).process is Process.RUNNING, "a pod that is not being deleted may be at work"


@pytest.mark.parametrize(
    ("provisioning", "ago_s", "barred", "given_up"),
    [
        ("existing", 300.0, False, False),
        ("existing", 700.0, True, False),
        ("existing", 5500.0, True, True),
        ("spot", 5500.0, False, False),  # its pools are deleted, and the pod with them
    ],
)
def test_a_release_does_not_wait_for_pods_on_nodes_that_hang_for_good(
    tmp_path: Path, provisioning: str, ago_s: float, barred: bool, given_up: bool
) -> None:
    own = gke(provisioning=provisioning, topology="v6e-16")
    stuck, other = terminating(pod(0, "Running", "n-0"), ago_s), terminating(pod(1, "Running", "n-1"), 60.0)
    target, run = Gke(LeftPods(stuck, other), "pod", own), RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    handle = {"run_dir": str(run.path), "attempt": 1, "jobset": "pw-r", "tag": "1a", "kinds": ["jobsets", "secrets"]}
    answer = target.release(handle | target.identity)
    assert not answer.done and (answer.barred, answer.given_up) == (barred, given_up), answer
    if barred:
        where = "--namespace=default --context=gke_my-project_us-central1_my-cluster"
        command = (
            f"kubectl delete pods --selector=podwright-run=1a,podwright-attempt=1 --grace-period=0 --force {where}"
        )
        what = f"pod pw-r-slice-job-0-0-abcde on node n-0 should have ended {ago_s / 60:.0f} min ago: the node may hang"
        assert answer.reason == f"{what}; type {command}"
    else:
        assert answer.reason == "being deleted: pod/pw-r-slice-job-0-0-abcde, pod/pw-r-slice-job-0-1-abcde"


class LeftPods(Cluster):
    """That lists these pods, and nothing else of the attempt."""

    def ask(self, argv, *_, **__):  # type: ignore[no-untyped-def]
        if "--output=name" in argv:
            return 0, "".join(f"pod/{each['metadata']['name']}\n" for each in self.items), ""
        return 0, json.dumps({"kind": "List", "items": self.items if "pods" in argv else ()}), ""


@pytest.mark.parametrize(
    ("provisioning", "ago_s", "ends"),
    [("spot", 3600.0, False), ("spot", 7300.0, True), ("existing", 7300.0, False), ("flex-start", 7300.0, False)],
)
def test_pods_on_pools_of_a_run_do_not_wait_for_longer_than_the_patience_of_the_target(
    tmp_path: Path, provisioning: str, ago_s: float, ends: bool
) -> None:
    own = gke(provisioning=provisioning, topology="v6e-16", patience="2h")
    answer = polled(tmp_path, own, jobset(True), ago_s=ago_s)
    assert (answer.process is Process.ENDED) is ends
    if ends:
        assert answer.ending is Ending.NO_CAPACITY and answer.fix
        assert answer.detail.startswith("no process began within 2h") and "Kueue has not looked" in answer.detail


@pytest.mark.parametrize(
    ("provisioning", "ago_s", "ends"),
    [("spot", 3600.0, False), ("spot", 7300.0, True), ("flex-start", 7300.0, True), ("existing", 7300.0, False)],
)
def test_an_attempt_of_which_one_pod_never_starts_ends_with_the_patience_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provisioning: str, ago_s: float, ends: bool
) -> None:
    own = gke(provisioning=provisioning, topology="v6e-16", patience="2h")
    pull = {"name": "jax-tpu", "image": "i:1", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "503"}}}
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    pods = pod(0, "Running", "n-0", **running), pod(1, "Pending", "n-1", containerStatuses=[pull])
    created = datetime.fromtimestamp(time.time() - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pods[1]["metadata"]["creationTimestamp"] = created
    monkeypatch.setattr(attempt_folder, "began_s", lambda _: 1.0)
    answer = polled(tmp_path, own, jobset(), job(2), *pods, ago_s=ago_s)
    assert (answer.process is Process.ENDED) is ends, answer
    assert "image i:1 could not be pulled" in (answer.detail if ends else answer.waiting)
    if ends:
        assert answer.ending is Ending.NO_CAPACITY and answer.detail.startswith("some pods did not start within 2h")


@pytest.mark.parametrize(
    ("provisioning", "ago_s", "ends"),
    [("spot", 3600.0, False), ("spot", 7300.0, True), ("flex-start", 7300.0, True), ("existing", 7300.0, False)],
)
def test_an_attempt_of_which_pods_do_not_exist_ends_with_the_patience_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provisioning: str, ago_s: float, ends: bool
) -> None:
    """Process 0 has begun long ago; the time counts since pods are missing, for one launcher after another."""
    own = gke(provisioning=provisioning, topology="v6e-16", patience="2h")
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    pods = pod(0, "Running", "n-0", **running), pod(1, "Running", "n-1", **running)
    monkeypatch.setattr(attempt_folder, "began_s", lambda _: 1.0)
    there = polled(tmp_path, own, jobset(), job(2), *pods)
    assert there.process is Process.RUNNING and not there.silent
    lacking = polled(tmp_path, own, jobset(), job(2), pods[0])
    assert lacking.process is Process.RUNNING and lacking.waiting == "Starting: 1 of 2 pods exist"
    assert lacking.silent, "nodes that are away too are replaced"
    missing = RunDir(tmp_path / "r").attempt(1) / attempt_folder.MISSING
    if provisioning != "existing":
        boot, seconds = clock.uptime()
        missing.write_text(f"{boot} {seconds - ago_s}")
    answer = polled(tmp_path, own, jobset(), job(2), pods[0])
    assert (answer.process is Process.ENDED) is ends, answer
    if ends:
        assert answer.ending is Ending.NO_CAPACITY and answer.fix
        assert answer.detail.startswith("some pods did not start within 2h") and "1 of 2 pods exist" in answer.detail
    (RunDir(tmp_path / "r").attempt(1) / attempt_folder.ENDED).unlink(missing_ok=True)
    assert polled(tmp_path, own, jobset(), job(2), *pods).process is Process.RUNNING
    assert polled(tmp_path, own, jobset(), job(2), pods[0]).process is Process.RUNNING, "the time begins anew"


def test_pods_with_nodes_on_flex_start_are_bounded_from_when_they_had_them() -> None:
    due = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}]}
    there = waiting.ClusterView(jobset(), (job(2),), (pod(0, **due), pod(1, **due)))
    hour = datetime(2026, 1, 1, 1, tzinfo=UTC).timestamp()
    never = float("inf")
    since = waiting.starting_since
    assert since(there, 2, hour - 3600, never, nodes_come=True) == hour
    assert since(there, 2, hour - 3600, never, nodes_come=False) == hour - 3600
    without = waiting.ClusterView(jobset(), (job(2),), (pod(0, **due), pod(1, node="")))
    assert since(without, 2, hour, never, nodes_come=True) is None
    run = waiting.ClusterView(jobset(), (job(2),), (pod(0, "Running"), pod(1, "Running")))
    assert since(run, 2, hour, hour + 60, nodes_come=False) is None
    replaced = pod(1)
    replaced["metadata"]["creationTimestamp"] = "2026-01-01T09:00:00Z"
    for pods, expected in (((pod(0, "Running"), replaced), hour + 8 * 3600), ((pod(0, "Running"),), None)):
        assert since(waiting.ClusterView(jobset(), (job(2),), pods), 2, hour, hour + 60, nodes_come=False) == expected


def test_a_pod_that_has_failed_is_said_while_the_node_of_another_is_silent(tmp_path: Path) -> None:
    over = {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 134}}}]}
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}], "reason": "NodeLost"}
    both = pod(0, "Failed", "n-0", **over), pod(1, "Running", "n-1", **running)
    answer = polled(tmp_path, gke(), jobset(), job(2), *both)
    said = with_end(RunDir(tmp_path / "r"), 1, answer, stop_wanted=False)
    assert said.process is Process.RUNNING and said.waiting == (
        "Ending: the trainer has ended (pod pw-r-slice-job-0-0-abcde on node n-0: killed by SIGABRT); "
        "the cluster has not ended JobSet pw-r (NodeSilent: n-1 does not report to the cluster)"
    )
    alone = polled(tmp_path, gke(), jobset(), job(2), pod(0, "Running", "n-0"), both[1])
    assert alone.waiting.startswith("NodeSilent: n-1") and not alone.who


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_no_node_hang_and_no_wait_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    lost = terminating(pod(1, "Running", "n-1", **running), 60.0)
    hung = terminating(pod(1, "Running", "n-1", **running), 700.0)
    clock.mark(tmp_path / "mark")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    assert (
        polled(tmp_path, gke(), jobset(), job(2), pod(0, "Running", "n-0", **running), lost).process is Process.RUNNING
    )
    assert abs(clock.now() - clock.marked(tmp_path / "mark")) < 60
    assert polled(tmp_path, gke(), jobset(), job(2), pod(0, "Running", "n-0", **running), hung).process is Process.ENDED
