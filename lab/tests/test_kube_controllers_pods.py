"""Pods of the simulated cluster as processes: what they get, how they end, and that nothing of them is left."""

import base64
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab import machine
from lab.kube import controllers, samples
from lab.kube.controllers import objects
from lab.kube.controllers.objects import Json
from lab.kube.discovery import ROWS
from lab.kube.store import Store
from lab.kube.streams import log_file

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "-")

LIMIT_S = 30.0


class Running:
    """A cluster with its kubelet, stepped by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store()
        self.controllers = controllers.start(self.store, folder)
        self.kubelet = self.controllers[-1]
        self.add(*samples.pool(), *samples.priority_classes())

    def add(self, *bodies: Json) -> None:
        for body in bodies:
            self.store.create(next(row.plural for row in ROWS if row.kind == body["kind"]), body)

    def run(self, script: str, **settings: Any) -> "Running":
        """A JobSet `w` of pods that run a script by bash; of one host unless `hosts` says more."""
        self.add(samples.jobset("w", "bash", "-c", script, **{"hosts": 1, "exclusive": False} | settings))
        return self

    def until(self, true: Callable[[], Any]) -> "Running":
        limit = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < limit, [pod["status"] for pod in self.pods()]
            for each in self.controllers:
                each.step(self.store, time.time())
            time.sleep(0.01)
        return self

    def ended(self) -> "Running":
        return self.until(lambda: self.pods() and all(map(objects.finished, self.pods())))

    def started(self) -> "Running":
        return self.until(lambda: self.pods() and all(p["status"]["phase"] == "Running" for p in self.pods()))

    def logged(self, text: str) -> "Running":
        return self.until(lambda: self.pods() and all(text in self.log(pod) for pod in self.pods()))

    def pods(self) -> list[Json]:
        return self.store.list("pods")

    def log(self, pod: Json | None = None, container: str = "trainer") -> str:
        """Without times."""
        path = log_file(self.folder, pod or self.pods()[0], container)
        lines = path.read_text().splitlines() if path.exists() else []
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)

    def state(self, container: int = 0) -> Json:
        """Of a container of the first pod; {} before its kubelet has said anything."""
        rows = [row for pod in self.pods()[:1] for row in pod["status"].get("containerStatuses", [])]
        return rows[container]["state"] if rows else {}

    def code(self) -> tuple[int, str]:
        ended = self.state()["terminated"]
        return ended["exitCode"], ended["reason"]

    def processes(self) -> list[int]:
        """Of all pods."""
        return [p.pid for p in psutil.process_iter(["environ"]) if str(self.folder) in str(p.info["environ"])]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "kube").mkdir()
    running = Running(tmp_path / "kube")
    yield running
    running.kubelet.close()
    assert running.processes() == [] and list((tmp_path / "kube").rglob("*.log")) == []


def events(cluster: Running, reason: str) -> list[str]:
    return [event["message"] for event in cluster.store.list("events") if event["reason"] == reason]


def test_pod_succeeds_with_its_command_and_its_output_is_logged(cluster: Running) -> None:
    cluster.run("echo one; echo two >&2; printf three").ended()
    assert cluster.code() == (0, "Completed") and cluster.log() == "one\ntwo\nthree\n"
    pod = cluster.pods()[0]
    assert pod["status"]["phase"] == "Succeeded"
    assert (objects.condition(pod, "Ready") or {})["reason"] == "PodCompleted"


def test_pod_fails_with_the_exit_code_of_its_command(cluster: Running) -> None:
    cluster.run("exit 7").ended()
    assert cluster.code() == (7, "Error") and cluster.pods()[0]["status"]["phase"] == "Failed"


def test_command_that_is_not_there_is_a_start_error(cluster: Running) -> None:
    cluster.add(samples.jobset("w", "no-such-command", hosts=1, exclusive=False))
    cluster.ended()
    assert cluster.code() == (128, "StartError") and cluster.log() == ""
    assert 'exec: "no-such-command": executable file not found in $PATH' in cluster.state()["terminated"]["message"]


def test_four_pods_of_a_slice_meet_over_the_loopback(cluster: Running) -> None:
    script = """
import os, socket
number, addresses = int(os.environ["TPU_WORKER_ID"]), os.environ["TPU_WORKER_HOSTNAMES"].split(",")
if number == 0:
    with socket.create_server((addresses[0], 8476)) as server:
        for _ in addresses[1:]:
            with server.accept()[0] as other:
                other.sendall(b"hello")
else:
    while True:
        try:
            with socket.create_connection((addresses[0], 8476)) as server:
                print(server.recv(5).decode(), number, flush=True)
            break
        except ConnectionRefusedError:
            pass
"""
    with socket.create_server(("127.0.0.1", 8476)) if port_is_free(8476) else contextlib.nullcontext():
        cluster.add(samples.jobset("w", "python", "-c", script))
        cluster.until(lambda: len(cluster.pods()) == 4).ended()
    assert sorted(cluster.log(pod) for pod in cluster.pods()) == ["", "hello 1\n", "hello 2\n", "hello 3\n"]


def port_is_free(port: int) -> bool:
    with socket.socket() as any_socket:
        return any_socket.connect_ex(("127.0.0.1", port)) != 0


def test_pods_reach_ports_of_this_machine_that_a_variable_names(cluster: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nbucket")

        threading.Thread(target=serve, daemon=True).start()
        container = {"env": [{"name": "STORAGE", "value": f"http://127.0.0.1:{port}"}]}
        cluster.run("exec 3<>/dev/tcp/127.0.0.1/${STORAGE##*:}; cat <&3", container=container).ended()
    assert "bucket" in cluster.log()


def test_pods_of_one_jobset_know_each_others_names(cluster: Running) -> None:
    cluster.run("getent hosts w-slice-job-0-3.w; hostname", hosts=4).until(lambda: len(cluster.pods()) == 4).ended()
    assert "127.0.0.1" in cluster.log() and cluster.log().endswith("w-slice-job-0-0\n")


def test_volumes_and_variables_come_from_config_maps_and_secrets(cluster: Running) -> None:
    encoded = base64.b64encode(b"from a secret").decode()
    binary = base64.b64encode(b"\x00binary").decode()
    cluster.add(
        {"kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"a.sh": "echo ran"}, "binaryData": {"b": binary}},
        {"kind": "Secret", "metadata": {"name": "env"}, "data": {"TOKEN": encoded}},
    )
    container = {
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "env", "key": "TOKEN"}}},
            {"name": "BOTH", "value": "$(KEY) in $(POD) $$(POD) $(NONE)"},
        ],
        "envFrom": [{"secretRef": {"name": "env"}}, {"secretRef": {"name": "none", "optional": True}}],
        "volumeMounts": [
            {"name": "code", "mountPath": "/podwright"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "key", "mountPath": "/podwright-keys", "readOnly": True},
        ],
        "args": ["x y"],
    }
    volumes = [
        {"name": "code", "configMap": {"name": "code", "defaultMode": 0o755}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "key", "secret": {"secretName": "env", "items": [{"key": "TOKEN", "path": "deep/token"}]}},
    ]
    script = '/podwright/a.sh; echo "$TOKEN"; echo "$BOTH"; ls /dev/shm; cat /podwright-keys/deep/token; echo; wc -c < /podwright/b; echo "$0"; touch /podwright-keys/x'
    cluster.run(script, container=container, pod={"volumes": volumes}).ended()
    pod = objects.name(cluster.pods()[0])
    expected = ["ran", "from a secret", f"from a secret in {pod} $(POD) $(NONE)", "from a secret", "7", "x y"]
    assert cluster.log().splitlines()[:6] == expected and "Read-only file system" in cluster.log()
    assert not any(
        b"from a secret" in path.read_bytes() for path in (cluster.folder / "pods").rglob("*") if path.is_file()
    )
    assert not Path("/podwright").exists() and not Path("/podwright-keys").exists()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"volumes": [{"name": "code", "configMap": {"name": "code"}}]}, "FailedMount"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "A"}}}]}, "Failed"),
    ],
)
def test_pod_waits_for_what_it_refers_to(cluster: Running, fields: Json, reason: str) -> None:
    cluster.run("true", **({"pod": fields} if "volumes" in fields else {"container": fields}))
    cluster.until(lambda: events(cluster, reason))
    text = events(cluster, reason)[0]
    if reason == "FailedMount":
        assert text == 'MountVolume.SetUp failed for volume "code" : configmap "code" not found'
        assert cluster.state() == {"waiting": {"reason": "ContainerCreating"}}
        cluster.add({"kind": "ConfigMap", "metadata": {"name": "code"}, "data": {}})
    else:
        assert cluster.state()["waiting"] == {
            "reason": "CreateContainerConfigError",
            "message": 'secret "env" not found',
        }
        cluster.add({"kind": "Secret", "metadata": {"name": "env"}, "data": {"A": ""}})
    cluster.ended()


def test_image_that_cannot_be_pulled_is_waited_for(cluster: Running) -> None:
    cluster.store.knobs["images"] = [{"image": "python:*", "message": "not found"}]
    cluster.run("true").until(lambda: "ImagePullBackOff" in str(cluster.state()))
    assert cluster.state()["waiting"]["message"].startswith('Back-off pulling image "python:3.12-slim"')
    assert events(cluster, "Failed") == ['Failed to pull image "python:3.12-slim": not found']
    cluster.store.knobs["images"] = []
    cluster.ended()
    assert cluster.code() == (0, "Completed")


def test_pod_stuck_in_creation_starts_when_the_knob_is_gone(cluster: Running) -> None:
    cluster.store.knobs["stuck_creating"] = ["w-*"]
    cluster.run("true").until(cluster.state)
    assert cluster.state() == {"waiting": {"reason": "ContainerCreating"}}
    cluster.store.knobs["stuck_creating"] = []
    cluster.ended()


def test_deleted_pod_gets_sigterm_and_ends_in_its_grace(cluster: Running) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    cluster.run(script).logged("ready")
    pod = cluster.pods()[0]
    cluster.store.delete("jobsets", "w", "default")
    assert objects.deleting(cluster.pods()[0])
    cluster.until(lambda: not cluster.pods())
    codes = [c.new.body["status"] for c in cluster.store.changes if c.new.body["metadata"]["uid"] == objects.uid(pod)]
    assert codes[-1]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_pod_that_ignores_sigterm_is_killed_after_its_grace(cluster: Running) -> None:
    cluster.run("echo ready; sleep 100 & wait", pod={"terminationGracePeriodSeconds": 1}).logged("ready")
    pod = cluster.pods()[0]
    started = time.monotonic()
    cluster.store.delete("jobsets", "w", "default")
    cluster.until(lambda: not cluster.pods())
    assert 0.9 < time.monotonic() - started < 10 and cluster.processes() == []
    last = [c.new.body for c in cluster.store.changes if c.new.body["metadata"]["uid"] == objects.uid(pod)][-1]
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_children_in_sessions_of_their_own_end_with_the_pod(cluster: Running) -> None:
    script = "setsid sleep 1000 & setsid bash -c 'sleep 1000 & disown' & echo ready; sleep 1000"
    cluster.run(script, pod={"terminationGracePeriodSeconds": 0}).logged("ready")
    cluster.until(lambda: len(cluster.processes()) >= 3)
    cluster.store.delete("jobsets", "w", "default")
    cluster.until(lambda: not cluster.pods())
    cluster.until(lambda: cluster.processes() == [])


def test_oom_kill_says_so(cluster: Running) -> None:
    cluster.store.knobs["oom"] = [{"pod": "w-slice-job-0-0-*"}]
    cluster.run("sleep 1000").ended()
    assert cluster.code() == (137, "OOMKilled")


def test_container_can_be_ended_with_a_code(cluster: Running) -> None:
    cluster.store.knobs["kill"] = [{"pod": "w-*", "after_s": 0.2, "code": 1}]
    cluster.run("sleep 1000").ended()
    assert cluster.code() == (1, "Error")


def test_failed_container_is_restarted_where_the_pod_says_so(cluster: Running) -> None:
    cluster.run("echo try; [ -e $HOME/x ] || { touch $HOME/x; exit 3; }", pod={"restartPolicy": "OnFailure"}).ended()
    status = cluster.pods()[0]["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1 and status["lastState"]["terminated"]["exitCode"] == 3
    assert status["state"]["terminated"]["exitCode"] == 0 and events(cluster, "BackOff")


def test_preempted_node_ends_its_pods_with_notice(cluster: Running) -> None:
    cluster.store.knobs |= {"gc_s": 0.3}
    cluster.run("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done").logged("ready")
    pod = cluster.pods()[0]
    cluster.store.knobs["nodes"] = [{"node": pod["spec"]["nodeName"], "event": "preempted", "notice_s": 1.0}]
    cluster.ended()
    pod = cluster.pods()[0]
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    assert pod["status"]["message"] == "Pod was terminated in response to imminent node shutdown."
    assert (objects.condition(pod, "DisruptionTarget") or {})["reason"] == "TerminationByKubelet"
    assert cluster.log() == "ready\nsaved\n"
    cluster.until(lambda: not cluster.pods())
    assert cluster.store.find("nodes", pod["spec"]["nodeName"]) is None


def test_pod_that_ignores_the_notice_is_killed_before_its_node_goes(cluster: Running) -> None:
    cluster.store.knobs |= {"gc_s": 1.0}
    cluster.run("echo ready; while :; do sleep 0.05; done").logged("ready")
    node = cluster.pods()[0]["spec"]["nodeName"]
    cluster.store.knobs["nodes"] = [{"node": node, "event": "preempted", "notice_s": 1.0}]
    cluster.ended()
    assert cluster.code() == (137, "Error") and cluster.store.find("nodes", node)
    assert cluster.pods()[0]["status"]["reason"] == "Terminated"


def test_processes_end_with_a_node_that_is_gone(cluster: Running) -> None:
    cluster.store.knobs |= {"gc_s": 0.2}
    cluster.run("echo ready; sleep 1000").logged("ready")
    cluster.store.delete("nodes", cluster.pods()[0]["spec"]["nodeName"])
    cluster.until(lambda: cluster.processes() == []).until(lambda: not cluster.pods())


def test_log_file_is_played_back_in_place_of_the_command(cluster: Running, tmp_path: Path) -> None:
    (tmp_path / "maxtext.log").write_text("".join(f"completed step: {step}\n" for step in range(20)))
    row = {"pod": "w-slice-job-0-0-*", "file": str(tmp_path / "maxtext.log"), "lines_per_s": 40.0, "exit_code": 1}
    cluster.store.knobs["replay"] = [row]
    started = time.monotonic()
    cluster.run("sleep 1000").logged("completed step: 3")
    assert "completed step: 19" not in cluster.log()
    cluster.ended()
    assert time.monotonic() - started > 0.5 and cluster.code() == (1, "Error")
    assert cluster.log().splitlines()[-1] == "completed step: 19" and cluster.log().count("\n") == 20


def test_log_is_set_aside_when_it_has_grown(cluster: Running) -> None:
    cluster.store.knobs["log_bytes"] = 2000
    cluster.run("for i in $(seq 100); do echo line $i; done").ended()
    path = log_file(cluster.folder, cluster.pods()[0], "trainer")
    assert len(list(path.parent.iterdir())) > 2 and "line 1\n" not in cluster.log()
    times = [line.split()[0] for file in path.parent.iterdir() for line in file.read_text().splitlines()]
    assert len(set(times)) == 100


def test_command_runs_in_a_container(cluster: Running) -> None:
    cluster.run("echo ready; sleep 1000", container={"env": [{"name": "A", "value": "b"}]}).logged("ready")
    argv, environment = cluster.kubelet.exec_argv(
        cluster.pods()[0], "trainer", ["bash", "-c", "echo $A; hostname; echo $$"]
    )
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["b", "w-slice-job-0-0"] and int(done.stdout.split()[2]) < 100


def test_pod_folders_are_empty_where_a_knob_hides_them(cluster: Running, tmp_path: Path) -> None:
    (tmp_path / "launcher").mkdir()
    (tmp_path / "launcher" / "secret").touch()
    cluster.store.knobs |= {"hidden": [str(tmp_path / "launcher")], "environment": {"X": "1"}}
    cluster.run(f"ls -A {tmp_path}/launcher; echo $X").ended()
    assert cluster.log() == "1\n"


def test_pods_end_with_the_server_however_it_ends(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from lab.tests.test_kube_controllers_pods import Running\n"
        "cluster = Running(Path(sys.argv[1])).run('setsid sleep 1000 & echo ready; sleep 1000').logged('ready')\n"
        "print('ready', flush=True); time.sleep(1000)\n"
    )
    folder = tmp_path / "kube"
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], cwd=machine.REPOSITORY, stdout=subprocess.PIPE
    )
    assert server.stdout and server.stdout.readline() == b"ready\n"
    running = Running.__new__(Running)
    running.folder = folder
    assert len(running.processes()) >= 2
    server.kill()
    server.wait()
    machine.wait(lambda: running.processes() == [], 10)
    shutil.rmtree(folder)
    assert not os.path.ismount(folder)
