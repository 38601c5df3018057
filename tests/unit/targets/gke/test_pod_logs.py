"""Logs of pods reach the run, read by the real kubectl from a simulated API server: cuts, repeats, rotation, pods that are gone."""

import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab.kube import streams
from lab.kube.control import Kube
from lab.tests.kube_cluster import pod
from podwright.rundir import RunDir
from podwright.shell import Shell
from podwright.targets.gke import pod_logs
from podwright.targets.gke.pod_logs import LogFollower, PodLog, logs_of

CONTAINER = "main"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        yield kube


@pytest.fixture
def kube(cluster: Kube, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pod_logs, "ROUND_S", 0.0)
    yield cluster
    cluster.clear_faults()
    for body in cluster.objects("pods", "default"):
        cluster.delete("pods", body["metadata"]["name"], grace_s=0)


class Job:
    """Pods of one attempt, whose logs the test writes."""

    def __init__(self, kube: Kube, num_pods: int) -> None:
        self.kube = kube
        self.pods = [self._pod(n) for n in range(num_pods)]
        self.lines: list[list[str]] = [[] for _ in self.pods]
        self.logs = [PodLog(f"job-{n}", CONTAINER, n) for n in range(num_pods)]
        self.last_ns = 0

    def _pod(self, number: int) -> dict[str, Any]:
        states = [{"name": CONTAINER, "restartCount": 0, "state": {"running": {}}}]
        status = {"phase": "Running", "containerStatuses": states}
        labels = {"podwright-run": "t"}
        return self.kube.create(
            pod(f"job-{number}", metadata={"labels": labels}, spec={"nodeName": "n"}, status=status)
        )

    def log_file(self, number: int) -> Path:
        path = streams.log_file(self.kube.folder, self.pods[number], CONTAINER)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, number: int, *texts: str) -> None:
        with self.log_file(number).open("a") as f:
            for text in texts:
                self.last_ns = max(time.time_ns(), self.last_ns + 1)
                seconds, rest = divmod(self.last_ns, 10**9)
                stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
                f.write(f"{stamp} stdout F {text}\n")
                self.lines[number].append(f"{stamp} {text}")

    def end(self) -> None:
        for number in range(len(self.pods)):
            state = {"name": CONTAINER, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
            self.kube.patch_status("pods", f"job-{number}", {"phase": "Succeeded", "containerStatuses": [state]})

    def follower(self, tmp_path: Path) -> LogFollower:
        def argv(words: Sequence[str]) -> tuple[str, ...]:
            return ("kubectl", f"--context={self.kube.context}", *words)

        return LogFollower(Shell(), argv, "podwright-run=t", RunDir(tmp_path), 1)

    def kept(self, tmp_path: Path) -> list[list[str]]:
        paths = [RunDir(tmp_path).log(1, log.process) for log in self.logs]
        return [path.read_text().splitlines() if path.exists() else [] for path in paths]


def until(what: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def follows(kube: Kube) -> int:
    return sum("follow=true" in request["query"] for request in kube.requests())


def test_a_look_brings_what_there_is_and_a_follower_what_comes(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 1)
    follower = job.follower(tmp_path)
    job.write(0, "one", "two")
    assert follower.bring(job.logs) == ""
    assert job.kept(tmp_path) == job.lines
    job.write(0, "three")

    def all_there() -> bool:
        assert follower.bring(job.logs) == ""
        return job.kept(tmp_path) == job.lines

    until(all_there)
    job.write(0, "four")
    until(all_there)
    assert len([r for r in kube.requests() if r["resource"] == "pods/log"]) == 2


def test_a_stream_that_is_cut_goes_on_without_loss(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 1)
    kube.fault("cut", resource="pods/log", lines=7)
    kube.fault("repeat", resource="pods/log", back_s=30)
    follower = job.follower(tmp_path)

    def all_there() -> bool:
        job.write(0, "step")
        follower.bring(job.logs)
        return len(job.kept(tmp_path)[0]) > 40

    until(lambda: len(job.lines[0]) > 5 or all_there())
    kube.clear_faults()
    kube.fault("cut", resource="pods/log", lines=50, clean=True)
    until(all_there)
    kube.clear_faults()
    job.end()
    assert follower.bring(job.logs, ended=True) == ""
    assert job.kept(tmp_path) == job.lines


def test_the_last_lines_of_a_pod_that_is_deleted_are_kept(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 1)
    follower = job.follower(tmp_path)
    job.write(0, "one")
    follower.bring(job.logs)
    begun = follows(kube)
    follower.bring(job.logs)
    until(lambda: follows(kube) > begun)
    job.write(0, "two", "the last words")
    time.sleep(0.5)  # until they have been sent
    kube.delete("pods", "job-0", grace_s=0)
    assert follower.bring([], ended=True) == ""
    assert job.kept(tmp_path) == job.lines


def test_the_logs_of_all_processes_are_requested_at_once_when_pods_are_being_deleted(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_logs, "ROUND_S", 1000.0)
    job = Job(kube, 2)
    follower = job.follower(tmp_path)
    job.write(1, "one")
    until(lambda: follower.bring(job.logs) == "" and job.kept(tmp_path)[1] == job.lines[1])
    job.write(1, "the last words")
    follower.bring(job.logs)
    assert len(job.kept(tmp_path)[1]) == 1, "the next round is due later"
    until(lambda: follower.bring(job.logs, leaving=True) == "" and job.kept(tmp_path)[1] == job.lines[1])


def test_a_rotated_log_is_followed_into_its_new_file(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 1)
    job.write(0, "before")
    follower = job.follower(tmp_path)
    follower.bring(job.logs)
    before = follows(kube)
    follower.bring(job.logs)
    until(lambda: follows(kube) > before)
    for n in range(3):
        job.write(0, f"last of file {n}")
        os.rename(job.log_file(0), job.log_file(0).with_name(f"0.log.{n}"))
        job.write(0, f"first of file {n + 1}")

        def all_there() -> bool:
            follower.bring(job.logs)
            return job.kept(tmp_path) == job.lines

        until(all_there)


def test_a_launcher_that_was_killed_is_followed_by_another(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 3)
    for n in range(3):
        job.write(n, *(f"line {k}" for k in range(50)))
    first = job.follower(tmp_path)
    for _ in range(3):
        first.bring(job.logs)
    path = RunDir(tmp_path).log(1)
    path.write_bytes(path.read_bytes()[:-13])  # in the middle of its write
    for n in range(3):
        job.write(n, "more")
    job.end()
    until(lambda: job.follower(tmp_path).bring(job.logs, ended=True) == "")
    assert job.kept(tmp_path) == job.lines


def test_the_logs_of_all_pods_come_through_one_connection_more(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 12)
    follower = job.follower(tmp_path)
    kube.fault("cut", resource="pods/log", lines=5, calls=20)
    for k in range(6):
        for n in range(12):
            job.write(n, *(f"line {k} {j}" for j in range(10)))
        follower.bring(job.logs)
        time.sleep(0.1)
    job.end()
    until(lambda: follower.bring(job.logs, ended=True) == "")
    assert job.kept(tmp_path) == job.lines


def test_pods_that_are_gone_or_have_not_begun_do_not_keep_the_others_from_being_read(
    kube: Kube, tmp_path: Path
) -> None:
    job = Job(kube, 4)
    waiting = {"name": CONTAINER, "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
    kube.patch_status("pods", "job-3", {"containerStatuses": [waiting]})
    kube.delete("pods", "job-2", grace_s=0)
    for n in (0, 1):
        job.write(n, "here")
    assert job.follower(tmp_path).bring(job.logs, ended=True) == ""
    assert job.kept(tmp_path) == job.lines


def test_an_api_server_that_is_away_is_said_and_asked_again(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 2)
    for n in range(2):
        job.write(n, "a")
    follower = job.follower(tmp_path)
    kube.unreachable(1.5)
    assert follower.bring(job.logs) != ""
    job.end()
    until(lambda: follower.bring(job.logs, ended=True) == "")
    assert job.kept(tmp_path) == job.lines


def test_a_full_disk_is_said_and_what_is_missing_is_brought_later(kube: Kube, tmp_path: Path) -> None:
    job = Job(kube, 2)
    for n in range(2):
        job.write(n, "a")
    job.end()
    follower = job.follower(tmp_path)
    (tmp_path / "attempts").write_text("in the way")
    assert "cannot be written" in follower.bring(job.logs, ended=True)
    (tmp_path / "attempts").unlink()
    assert follower.bring(job.logs, ended=True) == ""
    assert job.kept(tmp_path) == job.lines


def test_logs_are_those_of_pods_that_have_begun() -> None:
    def begun(name: str, state: str, containers: int = 1) -> dict[str, Any]:
        names = [f"jax-tpu-{k + 1}" for k in range(containers)]
        return {
            "metadata": {"name": name, "labels": {"batch.kubernetes.io/job-completion-index": name[-1]}},
            "spec": {"containers": [{"name": each} for each in names]},
            "status": {"containerStatuses": [{"name": each, "state": {state: {}}} for each in names]},
        }

    pods = [begun("w-1", "running", 2), begun("w-0", "terminated", 2), begun("w-2", "waiting", 2)]
    logs = logs_of(pods, 3)
    assert [(log.pod, log.container, log.process) for log in logs] == [
        ("w-0", "jax-tpu-1", 0),
        ("w-0", "jax-tpu-2", 1),
        ("w-1", "jax-tpu-1", 2),
        ("w-1", "jax-tpu-2", 3),
    ]


def test_a_stream_that_is_closed_ends_its_program() -> None:
    stream = pod_logs._Stream(Shell(), ("yes",))  # which never ends by itself
    while not stream.lines():
        time.sleep(0.01)
    stream.close()
    stream._thread.join(120)
    assert not stream.alive and not stream.failure
