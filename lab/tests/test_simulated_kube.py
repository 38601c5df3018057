"""The simulated cluster as its users see it: the real kubectl submits JobSets, watches them, reads their logs and deletes them."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.kube import controllers, samples
from lab.kube.control import Kube
from lab.machine import wait

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")

QUEUE = "multislice-queue"
LIMIT_S = 30.0
TRAINING = """
import os, signal, time
def stop(*_):
    print("checkpoint written", flush=True)
    raise SystemExit(0)
signal.signal(signal.SIGTERM, stop)
for step in range(int(os.environ["STEPS"])):
    print(f"worker {os.environ['TPU_WORKER_ID']} step {step}", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Kube]:
    with Kube(tmp_path, controllers=True) as cluster:
        for body in (*samples.pool(), *samples.queues(16), *samples.priority_classes()):
            cluster.create(body)
        yield cluster
    assert not [p.pid for p in psutil.process_iter(["environ"]) if f"{tmp_path}/kube/pods" in str(p.info["environ"])]


def submit(kube: Kube, steps: int, name: str = "w", **settings: Any) -> None:
    container = {"env": [{"name": "STEPS", "value": str(steps)}]}
    body = samples.jobset(name, "python", "-c", TRAINING, **{"queue": QUEUE, "container": container} | settings)
    done = kube.call("create", "-f", "-", text=json.dumps(body))
    assert done.stdout == f"jobset.jobset.x-k8s.io/{name} created\n", done.stderr


def pods(kube: Kube) -> list[dict[str, Any]]:
    return list(json.loads(kube.call("get", "pods", "-o", "json").stdout)["items"])


def running(kube: Kube, count: int = 4) -> Callable[[], bool]:
    return lambda: [pod["status"].get("phase") for pod in kube.objects("pods")] == ["Running"] * count


def condition(kube: Kube, resource: str, name: str, kind: str) -> dict[str, Any]:
    rows = kube.get(resource, name).get("status", {}).get("conditions", [])
    return next((row for row in rows if row["type"] == kind), {})


@pytest.mark.long
def test_jobset_is_submitted_followed_and_completed(kube: Kube, tmp_path: Path) -> None:
    submit(kube, 10)
    wait(running(kube), LIMIT_S)
    seen = tmp_path / "seen.json"
    with seen.open("w") as out:
        watching = subprocess.Popen(
            ["kubectl", "--context", kube.context, "get", "jobsets", "-w", "--output-watch-events", "-o", "json"],
            env=kube.environment | {"PATH": "/usr/bin:/bin"},
            stdout=out,
        )
    first = next(
        pod["metadata"]["name"] for pod in pods(kube) if pod["metadata"]["name"].startswith("w-slice-job-0-0-")
    )
    log = kube.call("logs", "-f", first, "-c", "trainer", "--timestamps")
    texts = [line.split(" ", 1)[1] for line in log.stdout.splitlines()]
    assert texts == [f"worker 0 step {step}" for step in range(10)]
    done = kube.call("wait", "jobset/w", "--for=condition=Completed", "--timeout=20s")
    assert done.returncode == 0, done.stderr
    wait(lambda: "jobset completed successfully" in seen.read_text(), LIMIT_S)
    watching.terminate()
    watching.wait()
    assert [pod["status"]["phase"] for pod in pods(kube)] == ["Succeeded"] * 4
    names = {pod["spec"]["nodeName"] for pod in pods(kube)}
    assert names == {f"gke-np-0-{number}" for number in range(4)}


def test_deleted_jobset_saves_within_its_grace_and_leaves_nothing(kube: Kube) -> None:
    submit(kube, 1000)
    wait(running(kube), LIMIT_S)
    first = pods(kube)[0]["metadata"]["name"]
    following = subprocess.Popen(
        ["kubectl", "--context", kube.context, "logs", "-f", first],
        env=kube.environment | {"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout and "step 0" in following.stdout.readline()
    assert kube.call("delete", "jobset", "w", "--wait=false").stdout == 'jobset.jobset.x-k8s.io "w" deleted\n'
    assert "checkpoint written" in following.stdout.read()
    following.wait()
    wait(lambda: not any(kube.objects(kind) for kind in ("pods", "jobs", "services", "workloads")), LIMIT_S)


def test_jobset_waits_for_quota_with_the_reason_of_its_workload(kube: Kube) -> None:
    kube.create(samples.workload("other", 4))
    submit(kube, 3)
    wait(lambda: len(kube.objects("workloads")) == 2, LIMIT_S)
    name = next(w["metadata"]["name"] for w in kube.objects("workloads") if w["metadata"]["name"] != "other")
    wait(lambda: condition(kube, "workloads", name, "QuotaReserved"), LIMIT_S)
    path = '{.status.conditions[?(@.type=="QuotaReserved")].message}'
    text = kube.call("get", "workload", name, "-o", f"jsonpath={path}").stdout
    reason = "insufficient unused quota for google.com/tpu in flavor v6e, 4 more needed"
    assert text == f"couldn't assign flavors to pod set slice-job: {reason}" and pods(kube) == []
    assert kube.call("get", "jobset", "w", "-o", "jsonpath={.spec.suspend}").stdout == "true"
    assert kube.call("delete", "workload", "other").returncode == 0
    assert kube.call("wait", "jobset/w", "--for=condition=Completed", "--timeout=20s").returncode == 0


@pytest.mark.long
def test_node_that_is_taken_away_disrupts_its_pod_and_fails_the_jobset(kube: Kube) -> None:
    kube.set(gc_s=2.0)
    submit(kube, 1000)
    wait(running(kube), LIMIT_S)
    kube.set(nodes=[{"node": "gke-np-0-2", "event": "preempted", "notice_s": 2.0}])

    def disrupted() -> list[dict[str, Any]]:
        rows = [(pod, row) for pod in kube.objects("pods") for row in pod["status"].get("conditions", [])]
        return [pod for pod, row in rows if row["type"] == "DisruptionTarget" and row["status"] == "True"]

    wait(lambda: [pod["status"]["phase"] for pod in disrupted()] == ["Failed"], LIMIT_S)
    wait(lambda: condition(kube, "jobsets", "w", "Failed"), LIMIT_S)
    wait(lambda: kube.objects("pods") == [], LIMIT_S)
    assert "gke-np-0-2" not in kube.call("get", "nodes", "-o", "name").stdout


def test_log_of_a_node_that_does_not_answer_cannot_be_read(kube: Kube) -> None:
    kube.set(unreachable_s=600.0)
    submit(kube, 1000)
    wait(running(kube), LIMIT_S)
    lost = next(pod for pod in kube.objects("pods") if pod["spec"]["hostname"] == "w-slice-job-0-0")
    kube.set(nodes=[{"node": lost["spec"]["nodeName"], "event": "unreachable"}])
    name = lost["metadata"]["name"]
    wait(lambda: condition(kube, "pods", name, "Ready").get("reason") == "NodeNotReady", LIMIT_S)
    done = kube.call("logs", name)
    assert done.returncode == 1 and "dial tcp 127.0.0.1:10250: i/o timeout" in done.stderr
    assert kube.get("pods", name)["status"]["phase"] == "Running"
    assert kube.call("delete", "pod", name, "--force", "--grace-period=0").returncode == 0


def test_log_is_gone_with_a_jobset_that_its_ttl_removed(kube: Kube) -> None:
    kube.set(ttl_s=0.0, environment={"STEPS": "1"})
    body = samples.jobset("w", "python", "-c", TRAINING)
    body["spec"]["ttlSecondsAfterFinished"] = 3600
    kube.create(body)
    wait(lambda: kube.objects("pods"), LIMIT_S)
    first = kube.objects("pods")[0]["metadata"]["name"]
    wait(lambda: not kube.objects("jobsets") and not kube.objects("pods"), LIMIT_S)
    done = kube.call("logs", first)
    assert done.returncode == 1 and f'pods "{first}" not found' in done.stderr


def test_exec_runs_in_the_container(kube: Kube) -> None:
    submit(kube, 1000)
    wait(running(kube), LIMIT_S)
    name = next(p["metadata"]["name"] for p in kube.objects("pods") if p["spec"]["hostname"] == "w-slice-job-0-3")
    done = kube.call(
        "exec", "-i", name, "-c", "trainer", "--", "bash", "-c", "cat; hostname; exit 3", text="from here\n"
    )
    assert (done.returncode, done.stdout) == (3, "from here\nw-slice-job-0-3\n"), done.stderr


@pytest.mark.long
def test_maxtext_log_is_replayed_for_every_container_of_xpks_shape(kube: Kube, tmp_path: Path) -> None:
    lines = [f"completed step: {step}, seconds: 1.0, loss: 9.0" for step in range(5)]
    (tmp_path / "maxtext.log").write_text("\n".join(lines) + "\n")
    kube.set(
        replay=[
            {"pod": "w-*-0-0-*", "container": "jax-tpu-1", "file": str(tmp_path / "maxtext.log"), "lines_per_s": 20.0}
        ]
    )
    body = samples.jobset("w", "bash", "-c", "echo other", queue=QUEUE)
    own = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    each = own["containers"][0] | {"resources": {"limits": {"google.com/tpu": 2}}}
    own["containers"] = [each | {"name": "jax-tpu-1"}, each | {"name": "jax-tpu-2"}]
    assert kube.call("create", "-f", "-", text=json.dumps(body)).returncode == 0
    assert kube.call("wait", "jobset/w", "--for=condition=Completed", "--timeout=20s").returncode == 0
    first = next(p["metadata"]["name"] for p in kube.objects("pods") if p["spec"]["hostname"] == "w-slice-job-0-0")
    assert kube.call("logs", first, "-c", "jax-tpu-1").stdout.splitlines() == lines
    assert kube.call("logs", first, "-c", "jax-tpu-2").stdout == "other\n"


def test_unknown_knob_is_refused(kube: Kube) -> None:
    with pytest.raises(AssertionError, match="no such knob: ttl"):
        kube.set(ttl=0)
