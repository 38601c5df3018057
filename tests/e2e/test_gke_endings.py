"""Attempts that the cluster ends by itself, by the table of docs/gke.md."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube import controllers
from lab.kube.control import Kube
from tests.e2e.conftest import wait_for
from tests.e2e.test_gke import HOSTS, Cluster

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube:
        bench = Cluster(tmp_path, kube)
        bench.fill()
        yield bench
        bench.close()


@pytest.mark.long
def test_the_life_of_an_attempt_ends_although_no_launcher_is_alive(cluster: Cluster) -> None:
    """`activeDeadlineSeconds`: the processes are ended, the next command sees why, and starts another one."""
    cluster.replay(0.2)
    launcher = cluster.start_toy()
    wait_for(lambda: len(cluster.running()) == HOSTS and cluster.path("attempts/1/log.txt").exists())
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    (job,) = cluster.kube.objects("jobs")
    assert job["spec"]["activeDeadlineSeconds"] == 7 * 86400
    cluster.kube.set(deadline_s=1.0)
    wait_for(lambda: cluster.running() == [])
    assert cluster.events("ended") == []
    cluster.kube.set(deadline_s=None)
    cluster.replay(200)
    code, out, err = cluster.call("resume", "r")
    assert code == 0 and [r["ending"] for r in cluster.events("ended")] == ["TIMED_OUT", "FINISHED"], out + err
    assert cluster.left() == []


@pytest.mark.long
def test_a_container_that_the_node_kills_for_its_memory_is_named(cluster: Cluster) -> None:
    cluster.replay(5)
    cluster.kube.set(oom=[{"pod": "*-0-1-*", "after_s": 1.0}])
    code, out, err = cluster.run_toy()
    (record,) = cluster.events("ended")
    assert code == 1 and record["ending"] == "OUT_OF_MEMORY" and "-0-1-" in record["detail"], (record, out, err)
    assert record["fix"] and cluster.left() == []


@pytest.mark.long
def test_a_pod_that_does_not_end_is_named_with_the_command_that_removes_it(cluster: Cluster) -> None:
    """Its node hangs, and is one that no run deletes."""
    cluster.replay(0.2)
    after_grace = {"STUCK_S": "-27", "RELEASE_LIMIT_S": "-10"}  # after a grace of 30 s
    short = {"GATHER_LIMIT_S": "2", **after_grace}
    started = cluster.start_toy(**short)
    wait_for(lambda: len(cluster.running()) == HOSTS and cluster.path("attempts/1/log.txt").exists())
    cluster.kube.set(nodes=[{"node": "gke-np-1", "event": "unreachable"}])
    out = " ".join(cluster.ends(started).split())
    assert started.returncode == 2 and "Releasing: pod pw-r-" in out, out
    error = out[out.index("error: attempt 1 of run r has ended (NODE_LOST), and what it has created was not seen") :]
    assert " on node gke-np-1 should have ended " in error and error.endswith("; then type podwright resume r"), error
    assert [name.partition("/")[0] for name in cluster.left()] == ["pods"] and not cluster.events("released")
    assert cluster.call("stop", "r", **short)[0] == 2, "a stop does not wait for it either"
    cluster.kube.call(*error.partition("; type kubectl ")[2].partition(";")[0].split())
    _, out, err = cluster.call("stop", "r")
    assert cluster.left() == [] and cluster.events("released"), out + err
    assert "NODE_LOST" in out, out + err
