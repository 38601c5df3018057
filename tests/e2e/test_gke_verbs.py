"""What list, watch, logs and stop say of a run that waits in the queue of a cluster, and of one that trains there."""

import json

import pytest
import yaml

from lab.kube import controllers, samples
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import HOSTS, Cluster

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


@pytest.mark.long
def test_each_verb_says_why_a_run_waits_and_shows_the_log_of_each_pod(cluster: Cluster) -> None:
    cluster.fill()
    cluster.kube.create(samples.workload("other", 8))
    cluster.replay(0.5)
    code, out, err = cluster.run_toy("--detach")
    assert code == 0, out + err
    reason = "Quota: other workloads of the queue hold google.com/tpu of flavor v6e; 8 more must become free"
    wait_for(lambda: cluster.standing()["detail"].startswith(reason))
    assert cluster.standing()["state"] == cluster.standing()["status"] == "waiting"
    assert "waiting (Quota)" in cluster.call("list")[1]
    code, out, err = cluster.call("logs", "r")
    assert code == 2 and f"has logged nothing: it is waiting ({reason})" in out + err, out + err

    watching = cluster.start("watch", "r")
    assert watching.stdout and next(line for line in watching.stdout if reason in line)
    cluster.kube.delete("workloads", "other")
    wait_for(lambda: len(cluster.running()) == HOSTS)
    wait_for(lambda: all(cluster.path(f"attempts/1/{name}").exists() for name in ("log.txt", "log-1.txt")))
    for words in ((), ("--process", "1")):
        code, out, err = cluster.call("logs", "r", *words)
        assert code == 0 and out.count("\n") > 1, out + err
    code, out, err = cluster.call("logs", "r", "--process", "2")
    assert code == 2 and "attempt 1 of r has no such process; type a number from 0 to 1" in out + err
    assert cluster.standing()["state"] == "running"
    watching.kill()

    code, out, err = cluster.call("stop", "r")
    assert code == 0 and cluster.left() == [], out + err
    assert json.loads(cluster.call("list", "--json")[1])[0]["ending"] == "STOPPED"


@pytest.mark.long
def test_containers_of_a_pod_have_one_numbering_in_logs_and_failures(cluster: Cluster) -> None:
    recipe = yaml.safe_load((cluster.folder / "toy.yaml").read_text())
    recipe["versions"]["xpk"] = "1.10.0"
    (cluster.folder / "toy.yaml").write_text(yaml.safe_dump(recipe))
    cluster.fill()
    cluster.replay(5)
    first, follows = ("jax-tpu-2", 1.0, 1), ("jax-tpu-1", 4.0, 134)  # a pod fails when all its containers have ended
    rows = [{"pod": "*-0-1-*", "container": name, "after_s": s, "code": code} for name, s, code in (first, follows)]
    cluster.kube.set(kill=rows)
    code, out, err = cluster.run_toy()
    (ended,) = cluster.events("ended")
    assert code == 1 and ended["ending"] == "CRASHED" and "container jax-tpu-2 of pod " in ended["detail"], out + err
    kept = json.loads(cluster.path("attempts/1/ended.json").read_text())
    assert kept["first"] == 3, kept
    assert sorted(path.name for path in cluster.path("attempts/1").glob("log*.txt")) == [
        *(f"log-{number}.txt" for number in (1, 2, 3)),
        "log.txt",
    ]
    assert cluster.call("logs", "r", "--process", "3")[0] == 0
