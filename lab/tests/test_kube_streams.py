"""Watches, logs and exec of the simulated API server, as the real kubectl gets them."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.kube import streams
from lab.kube.control import Kube
from lab.tests.kube_cluster import jobset, needs_kubectl, needs_new_kubectl, pod

pytestmark = needs_kubectl
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"running": {}}}]}
ENDED = {"phase": "Failed", "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": {}}}]}


@contextmanager
def reading(kube: Kube, *argv: str) -> Iterator["subprocess.Popen[str]"]:
    command = ["kubectl", "--context", kube.context, *argv]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=os.environ | kube.environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def running(kube: Kube, name: str = "a", **more: Any) -> dict[str, Any]:
    return kube.create(pod(name, spec={"nodeName": "n"}, status=RUNNING, **more))


class Writer:
    """Lines of a container's log at chosen seconds."""

    def __init__(self, kube: Kube, body: dict[str, Any], container: str = "main", restart: int = 0) -> None:
        self.path = streams.log_file(kube.folder, body, container, restart)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def line(self, text: str, second: float = 0.0) -> None:
        with self.path.open("a") as log:
            log.write(f"2026-01-01T00:00:{second:012.9f}Z stdout F {text}\n")


def stream_of(process: "subprocess.Popen[str]", lines: int) -> list[str]:
    assert process.stdout
    return [process.stdout.readline().rstrip("\n") for _ in range(lines)]


# watches


def test_a_watch_shows_changes_of_what_its_selector_matches(kube: Kube) -> None:
    kube.create(pod("a", metadata={"labels": {"run": "x"}}))
    form = "jsonpath={.metadata.name} {.status.phase}{'\\n'}"
    with reading(kube, "get", "pods", "-l", "run=x", "-w", "-o", form) as process:
        assert stream_of(process, 1) == ["a Pending"]
        kube.create(pod("b"))
        kube.patch_status("pods", "a", {"phase": "Running"})
        assert stream_of(process, 1) == ["a Running"]
        kube.patch("pods", "b", {"metadata": {"labels": {"run": "x"}}})
        assert stream_of(process, 1) == ["b Pending"]
        kube.patch("pods", "b", {"metadata": {"labels": {"run": "y"}}})
        assert stream_of(process, 1) == ["b Pending"]  # of the type DELETED, which is not printed
        kube.delete("pods", "a")
        assert stream_of(process, 1) == ["a Running"]


def test_kubectl_wait_ends_with_the_condition(kube: Kube) -> None:
    kube.call("create", "-f", "-", text=jobset("a"))
    status = {"conditions": [{"type": "Completed", "status": "True"}]}
    threading.Timer(0.5, lambda: kube.patch_status("jobsets", "a", status)).start()
    done = kube.call("wait", "jobset/a", "--for=condition=Completed", "--timeout=20s")
    assert done.stdout == "jobset.jobset.x-k8s.io/a condition met\n"


def test_a_watch_is_closed_by_the_server(kube: Kube) -> None:
    kube.set(watch_s=0.5)
    done = kube.call("get", "pods", "-w", timeout=20)
    kube.set(watch_s=3600)
    assert done.returncode == 0


def test_a_watch_ends_with_410(kube: Kube) -> None:
    kube.fault("gone", verb="watch", resource="pods", calls=1)
    done = kube.call("get", "pods", "-w", timeout=20)
    assert (
        done.returncode == 0 and "Expired   too old resource version" in done.stdout
    )  # printed as a table of one Status


def test_a_running_watch_gets_410_when_the_history_is_gone(kube: Kube) -> None:
    kube.create(pod("a"))
    with reading(kube, "get", "pods", "-w", "-o", "name") as process:
        assert stream_of(process, 1) == ["pod/a"]
        kube.expire_history()
        assert process.wait(20) == 0  # kubectl prints no name of a Status


# logs


def test_a_log_is_followed_to_its_end(kube: Kube) -> None:
    log = Writer(kube, running(kube))
    log.line("one")
    with reading(kube, "logs", "-f", "a") as process:
        assert stream_of(process, 1) == ["one"]
        log.line("two")
        assert stream_of(process, 1) == ["two"]
        log.line("three")
        kube.patch_status("pods", "a", ENDED)
        assert stream_of(process, 1) == ["three"] and process.wait(20) == 0


def test_lines_since_a_time_are_whole_seconds_and_may_repeat(kube: Kube) -> None:
    log = Writer(kube, running(kube))
    for number, second in enumerate((1.2, 2.2, 2.8, 3.4)):
        log.line(f"line {number}", second)
    done = kube.call("logs", "a", "--timestamps", "--since-time=2026-01-01T00:00:02.8Z")
    assert [line.split(" ", 1)[1] for line in done.stdout.splitlines()] == ["line 1", "line 2", "line 3"]
    assert done.stdout.startswith("2026-01-01T00:00:02.200000000Z line 1\n")
    kube.fault("repeat", resource="pods/log", back_s=1)
    done = kube.call("logs", "a", "--since-time=2026-01-01T00:00:02.8Z")
    assert done.stdout.splitlines() == ["line 0", "line 1", "line 2", "line 3"]


def test_the_first_line_since_a_time_is_found_by_halves() -> None:
    lines = [f"2026-01-01T00:00:{n // 2:02}.{n % 2 * 5}Z stdout F {n * 'x'}\n".encode() for n in range(60)]
    text = b"".join(lines)
    start = streams.seconds_of("2026-01-01T00:00:00Z")
    for half in range(-1, 62):
        expected = len(b"".join(lines[: max(half, 0)]))
        assert streams.first_at(text, start + half / 2) == min(expected, len(text))
    assert streams.first_at(b"", start) == 0


def test_the_last_lines_are_shown(kube: Kube) -> None:
    log = Writer(kube, running(kube))
    for number in range(5):
        log.line(str(number), number)
    assert kube.call("logs", "a", "--tail=2").stdout == "3\n4\n"
    assert kube.call("logs", "a", "--tail=0").stdout == ""
    assert kube.call("logs", "a", "--tail=9").stdout == "0\n1\n2\n3\n4\n"
    assert kube.call("logs", "a", "--limit-bytes=3").stdout == "0\n1"


def test_a_follower_goes_on_in_the_new_file_and_a_reader_sees_only_that(kube: Kube) -> None:
    log = Writer(kube, running(kube))
    log.line("old")
    with reading(kube, "logs", "-f", "a") as process:
        assert stream_of(process, 1) == ["old"]
        log.line("last")
        log.path.rename(log.path.with_name("0.log.20260101-000000"))
        log.line("new")
        assert stream_of(process, 2) == ["last", "new"]
    assert kube.call("logs", "a").stdout == "new\n"


def test_containers_are_named(kube: Kube) -> None:
    two = [{"name": "main", "image": "i"}, {"name": "other", "image": "i"}]
    states = [{"name": name, "restartCount": 1, "state": {"running": {}}} for name in ("main", "other")]
    status = {"phase": "Running", "containerStatuses": states}
    body = kube.create(pod("a", spec={"nodeName": "n", "containers": two}, status=status))
    Writer(kube, body, "main", 0).line("before")
    Writer(kube, body, "main", 1).line("now")
    Writer(kube, body, "other", 1).line("second")
    assert kube.call("logs", "a", "-c", "main").stdout == "now\n"
    assert kube.call("logs", "a", "-c", "main", "--previous").stdout == "before\n"
    both = kube.call("logs", "a", "--all-containers", "--prefix").stdout.splitlines()
    assert sorted(both) == ["[pod/a/main] now", "[pod/a/other] second"]
    assert "container none is not valid for pod a" in kube.call("logs", "a", "-c", "none").stderr


def test_a_container_that_waits_has_no_log_yet(kube: Kube) -> None:
    waiting = [{"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]
    kube.create(pod("a", spec={"nodeName": "n"}, status={"phase": "Pending", "containerStatuses": waiting}))
    done = kube.call("logs", "a")
    assert 'container "main" in pod "a" is waiting to start: ContainerCreating' in done.stderr
    kube.create(pod("b"))  # on no node yet
    assert kube.call("logs", "b").returncode == 0
    assert 'previous terminated container "main" in pod "a" not found' in kube.call("logs", "a", "-p").stderr


def test_pods_of_a_label_are_followed_together(kube: Kube) -> None:
    logs = [Writer(kube, running(kube, f"p{n}", metadata={"labels": {"run": "x"}})) for n in range(7)]
    refused = kube.call("logs", "-f", "-l", "run=x")
    assert "you are attempting to follow 7 log streams, but maximum allowed concurrency is 5" in refused.stderr
    with reading(kube, "logs", "-f", "-l", "run=x", "--max-log-requests=256", "--prefix") as process:
        for number, log in enumerate(logs):
            log.line(f"of {number}")
        assert set(stream_of(process, 7)) == {f"[pod/p{n}/main] of {n}" for n in range(7)}
        for number in range(7):
            kube.patch_status("pods", f"p{number}", ENDED)
        assert process.wait(20) == 0


def test_a_log_of_a_node_that_is_gone_cannot_be_read(kube: Kube) -> None:
    running(kube)
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
    done = kube.call("logs", "a")
    kube.delete("nodes", "other")
    assert (done.returncode, done.stderr) == (1, 'Error from server (NotFound): nodes "n" not found\n')


@pytest.mark.parametrize(("clean", "rc"), [(True, 0), (False, 1)])
def test_a_log_stream_is_cut(kube: Kube, clean: bool, rc: int) -> None:
    log = Writer(kube, running(kube))
    for number in range(5):
        log.line(str(number))
    kube.fault("cut", resource="pods/log", lines=3, clean=clean, calls=1)
    done = kube.call("logs", "-f", "a")
    assert (done.stdout, done.returncode, "unexpected EOF" in done.stderr) == ("0\n1\n2\n", rc, not clean)
    kube.patch_status("pods", "a", ENDED)
    assert kube.call("logs", "-f", "a").stdout == "0\n1\n2\n3\n4\n"


def test_a_log_breaks_off_within_a_line_or_ends_with_a_text_of_the_node(kube: Kube) -> None:
    log = Writer(kube, running(kube))
    for number in range(3):
        log.line(f"line {number}")
    kube.fault("cut", resource="pods/log", bytes=10, calls=1)
    assert kube.call("logs", "-f", "a").stdout == "line 0\nlin"
    text = "unable to retrieve container logs for containerd://0123"
    kube.fault("cut", resource="pods/log", lines=2, clean=True, text=text, calls=1)
    done = kube.call("logs", "-f", "a")
    assert (done.stdout, done.returncode) == (f"line 0\nline 1\n{text}", 0)


# exec


@needs_new_kubectl
def test_exec_passes_input_output_and_the_exit_code(kube: Kube) -> None:
    running(kube)
    script = "cat; echo error >&2; exit 7"
    done = kube.call("exec", "-i", "a", "--", "sh", "-c", script, text="input " * 20000)
    assert done.stdout == "input " * 20000
    assert "error\n" in done.stderr and done.returncode == 7
    done = kube.call("exec", "a", "-c", "main", "--", "sh", "-c", "echo out")
    assert (done.returncode, done.stdout) == (0, "out\n")


def test_exec_needs_a_running_container(kube: Kube) -> None:
    running(kube)
    kube.patch_status("pods", "a", ENDED)
    done = kube.call("exec", "a", "--", "true")
    assert "cannot exec into a container in a completed pod; current phase is Failed" in done.stderr
    assert done.returncode == 1


@needs_new_kubectl
def test_an_interrupted_exec_ends_its_process(kube: Kube) -> None:
    running(kube)
    with reading(kube, "exec", "a", "--", "sh", "-c", "echo $$; sleep 600") as process:
        (number,) = stream_of(process, 1)
        os.kill(int(number), 0)
    deadline = time.monotonic() + 10
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(int(number), 0)
            time.sleep(0.05)


@needs_new_kubectl
def test_calls_are_recorded(kube: Kube) -> None:
    running(kube)
    kube.call("exec", "a", "--", "true")
    row = kube.requests()[-1]
    assert (row["verb"], row["resource"], row["name"], row["namespace"]) == ("create", "pods/exec", "a", "default")
    assert json.dumps(row["query"]).count("command=true") == 1
