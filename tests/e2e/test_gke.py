"""Runs in the queue of a cluster: the product's command line and the real kubectl on a simulated API server, whose pods replay a log of MaxText."""

import base64
import json
from typing import Any

import pytest

from lab.kube import controllers, samples
from podwright.targets.google import labels
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import HOSTS, Cluster

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


def test_a_run_waits_in_the_queue_trains_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(200)
    code, out, err = cluster.run_toy()
    assert code == 0, out + err
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"]
    assert cluster.path("attempts/1/log.txt").read_text().count("completed step: ") > 1
    assert cluster.left() == [] and len(cluster.kube.objects("nodes")) == HOSTS


def test_a_run_that_must_wait_says_why_and_starts_when_it_may(cluster: Cluster) -> None:
    cluster.fill(hosts=0)
    cluster.kube.create(samples.workload("other", 8))
    cluster.replay(200)
    started = cluster.start_toy()
    cluster.waits("Quota: other workloads of the queue hold google.com/tpu of flavor v6e; 8 more must become free")
    cluster.kube.delete("workloads", "other")
    cluster.waits("NoNodes: ")
    cluster.nodes()
    out = cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"], out
    assert cluster.left() == []


@pytest.mark.long
def test_a_queue_that_never_takes_the_run_ends_it_with_what_to_type(cluster: Cluster) -> None:
    cluster.fill(quota=4)
    code, out, err = cluster.run_toy()
    assert code == 1 and cluster.events("ended")[0]["ending"] == "NO_CAPACITY", out + err
    ended = cluster.events("ended")[0]
    assert "never has more than 4 google.com/tpu, and the slice needs 8" in ended["detail"]
    assert "nominalQuota" in ended["fix"] and cluster.left() == []


def test_a_pod_that_fails_is_named_and_the_others_only_follow(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(20)
    cluster.kube.set(kill=[{"pod": "*-0-1-*", "after_s": 1.0, "code": 1}])
    code, out, err = cluster.run_toy()
    (ended,) = cluster.events("ended")
    assert code == 1 and ended["ending"] == "CRASHED", out + err
    (failure,) = json.loads(cluster.path("attempts/1/ended.json").read_text())["failed_hosts"]
    assert failure.startswith("gke-np-") and "-0-1-" in ended["detail"], ended
    assert cluster.left() == []


def test_a_lost_node_is_a_preemption_and_the_run_starts_again(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(1)
    started = cluster.start_toy()
    wait_for(lambda: len(cluster.running()) == HOSTS)
    cluster.replay(200)
    cluster.kube.set(nodes=[{"node": "gke-np-1", "event": "preempted", "notice_s": 2.0, "back_s": 1.0}])
    cluster.ends(started)
    endings = [record["ending"] for record in cluster.events("ended")]
    assert endings == ["PREEMPTED", "FINISHED"], cluster.events("ended")
    assert "gke-np-1" in cluster.events("ended")[0]["detail"] and cluster.left() == []


def test_a_stop_ends_the_processes_with_their_grace_and_deletes_everything(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(1)
    started = cluster.start_toy()
    wait_for(lambda: len(cluster.running()) == HOSTS)
    code, out, err = cluster.call("stop", "r")
    cluster.ends(started)
    assert code == 0 and cluster.events("ended")[0]["ending"] == "STOPPED", out + err
    assert cluster.left() == [] and not cluster.events("killing")


@pytest.mark.long
def test_a_run_that_waits_in_the_queue_can_be_stopped(cluster: Cluster) -> None:
    cluster.fill(hosts=0)
    cluster.kube.create(samples.workload("other", 8))
    started = cluster.start_toy()
    cluster.waits("Quota: ")
    code, out, err = cluster.call("stop", "r")
    cluster.ends(started)
    assert code == 0 and cluster.events("ended")[0]["ending"] == "STOPPED", out + err
    assert [each for each in cluster.left() if "other" not in each] == []


@pytest.mark.parametrize("moment", ["before:submitted", pytest.param("after:submitted", marks=pytest.mark.long)])
def test_a_killed_launcher_is_resumed_with_the_one_jobset_that_there_is(cluster: Cluster, moment: str) -> None:
    cluster.fill()
    cluster.replay(50)
    code, _, _ = cluster.run_toy(LAUNCH_DIES=moment)
    assert code == -9
    wait_for(lambda: len(cluster.kube.objects("jobsets")) == 1)
    out = cluster.call("resume", "r")[1]
    created = [each for each in cluster.kube.requests() if each["verb"] == "create" and each["resource"] == "jobsets"]
    assert len(created) == 1 and len(cluster.events("ended")) == 1, out
    assert "completed step" in cluster.path(f"attempts/{len(cluster.events('submitting'))}/log.txt").read_text()
    assert cluster.left() == []


@pytest.mark.long
def test_a_launcher_killed_before_it_created_anything_starts_another_attempt(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(200)
    assert cluster.run_toy(LAUNCH_DIES="after:submitting")[0] == -9
    out = cluster.call("resume", "r")[1]
    assert [record["ending"] for record in cluster.events("ended")] == ["UNKNOWN", "FINISHED"], out
    assert cluster.left() == []


@pytest.mark.long
def test_an_api_server_that_is_away_ends_nothing(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(20)
    started = cluster.start_toy()
    wait_for(lambda: len(cluster.running()) == HOSTS)
    cluster.kube.unreachable(600.0)
    cluster.waits("Unreachable: this machine does not reach the API server of cluster my-cluster")
    cluster.kube.clear_faults()
    out = cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"], out
    lines = cluster.path("attempts/1/log.txt").read_text().splitlines()
    steps = [line for line in lines if "completed step: " in line]
    assert steps and len(set(steps)) == len(steps) and cluster.left() == []


@pytest.mark.long
def test_a_cluster_that_is_away_at_the_submission_is_asked_again(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(200)
    cluster.kube.set(webhooks_down=["jobset"])
    started = cluster.start_toy()
    cluster.waits("WebhookDown: ")
    cluster.kube.set(webhooks_down=[])
    out = cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"], out
    assert cluster.left() == []


def test_a_cluster_without_login_is_one_line(cluster: Cluster) -> None:
    cluster.fill()
    cluster.target(cluster="another")
    code, out, err = cluster.run_toy()
    line = "gcloud container clusters get-credentials another --location=us-central1 --project=my-project"
    assert code == 1 and line in out + err, out + err


def objects(name: str, tag: str, by: str, run_dir: str = "", secret: str = "") -> list[dict[str, Any]]:
    """What a launcher leaves that is killed before it has created the JobSet."""
    own = {"podwright-run": tag, "podwright-by": by, "podwright-attempt": "1"}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": own if tag else {}}
    metadata |= {"annotations": {"podwright-run-dir": run_dir}} if run_dir else {}
    data = {"HF_TOKEN": base64.b64encode(secret.encode()).decode()} if secret else {}
    both = {"apiVersion": "v1", "metadata": metadata, "data": data}
    return [both | {"kind": "ConfigMap"}, both | {"kind": "Secret", "type": "Opaque"}]


@pytest.mark.long
def test_clean_removes_what_ended_runs_left_in_a_cluster_whose_pools_they_did_not_create(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(200)
    assert cluster.run_toy(LAUNCH_DIES="after:ended")[0] == -9
    (jobset,) = cluster.kube.objects("jobsets")
    gone = str(cluster.folder / "runs" / "of-another-day")
    theirs = [*objects("pw-x-1-a1", "1", "somebody"), *objects("configuration", "", "")]
    for each in [*objects("pw-y-2-a1", "2", labels.creator(), gone, "canary-7d1"), *theirs]:
        cluster.kube.create(each)
    code, out, err = cluster.call("clean", "pod", "--json")
    rows = {row["name"]: row for row in json.loads(out)["machines"]}
    assert code == 1 and set(rows) == {jobset["metadata"]["name"], "pw-x-1-a1", "pw-y-2-a1"}, out + err
    assert "target pod: " in json.loads(out)["faults"][0], "gcloud has no login here: pools were not looked at"
    ended = rows[jobset["metadata"]["name"]]
    assert (ended["run"], ended["need"], ended["cloud_state"]) == ("r", "ended", "JobSet completed")
    assert rows["pw-y-2-a1"]["detail"] == f"its run in {gone} is gone" and rows["pw-y-2-a1"]["removable"]
    assert rows["pw-y-2-a1"]["cloud_state"] == "only ConfigMap and Secret" and rows["pw-y-2-a1"]["cost"] is None
    assert rows["pw-x-1-a1"]["need"] == "others" and not rows["pw-x-1-a1"]["removable"]
    code, out, err = cluster.call("clean", "--yes")
    assert code == 2 and "target pod: " in err and "canary" not in out + err, out + err
    left = [each for each in cluster.left() if "kube-root-ca" not in each]
    assert sorted(left) == [
        f"{kind}/{name}" for kind in ("configmaps", "secrets") for name in ("configuration", "pw-x-1-a1")
    ]
    code, out, err = cluster.call("clean", "pod", "pw-x-1-a1", "--yes")  # somebody else's, whose name is typed
    assert code == 2 and "nothing" not in out and "target pod: " in err, out + err
    left = [each for each in cluster.left() if "kube-root-ca" not in each]
    assert left == ["configmaps/configuration", "secrets/configuration"]


@pytest.mark.long
def test_clean_keeps_the_jobset_of_a_run_that_trains_without_a_launcher(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(1)
    assert cluster.run_toy(LAUNCH_DIES="after:submitted")[0] == -9
    wait_for(lambda: len(cluster.running()) == HOSTS)
    code, out, err = cluster.call("clean", "pod", "--yes")
    assert "keep: run r trains without a launcher" in out, out + err
    assert code == 2 and "target pod: the cloud does not list what it has: " in err, "gcloud has no login here"
    assert len(cluster.kube.objects("jobsets")) == 1
    cluster.kube.fault("forbidden", verb="list", resource="secrets")
    assert "secrets were not listed (NoPermission: " in cluster.call("clean", "pod")[1]
    cluster.kube.fault("forbidden", verb="list", resource="jobsets")
    code, out, err = cluster.call("clean", "pod")
    assert code == 2 and "the cluster does not list its JobSets: NoPermission: " in err, out + err
    cluster.kube.clear_faults()
