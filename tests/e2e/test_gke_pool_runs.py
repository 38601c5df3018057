"""Runs whose node pools do not exist yet: the product's command line, its own gcloud calls and the real kubectl, from nothing over what a cloud
takes away to a report and back to nothing."""

import json
import shutil
import signal

import pytest

from lab.kube import controllers
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import A, B, Pools

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


def test_a_run_creates_its_pools_trains_writes_a_report_and_deletes_them(pools: Pools) -> None:
    pools.replay(200)
    code, out, err = pools.run_toy()
    assert code == 0, out + err
    (ready,) = pools.events("allocation ready")
    assert len(ready["hosts"]) == 2 and pools.events("allocation gone")
    assert [record["ending"] for record in pools.events("ended")] == ["FINISHED"] and pools.steps()
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    pools.is_billed(machines=1)


@pytest.mark.long
def test_a_run_goes_from_no_nodes_over_a_preemption_to_a_report_and_no_nodes(pools: Pools) -> None:
    pools.gcloud.capacity(A, 0)
    pools.replay(3)
    launcher = pools.start_toy()
    wait_for(lambda: len(pools.steps()) > 1)
    (pool,) = [row for row in pools.gcloud.pools() if not row["foreign"]]
    assert pool["zone"] == B and pool["nodes"] == 2
    pools.replay(200)
    pools.gcloud.lose_node(pool["name"])
    shown = pools.ends(launcher)
    assert launcher.returncode == 0, shown
    assert [record["ending"] for record in pools.events("ended")] == ["NODE_LOST", "FINISHED"]
    assert pools.events("allocation refused")[0]["scope"] == A
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    pools.is_billed(machines=2)
    assert len([row for row in pools.gcloud.pools()]) == 1, "that of the cluster itself"


@pytest.mark.long
def test_a_run_whose_nodes_come_with_its_pods_tries_the_next_zone_when_they_do_not(pools: Pools) -> None:
    """flex-start: GKE calls the pool running, and no node of it comes."""
    pools.target(zones=[A, B], provisioning="flex-start", price=2.0)
    pools.gcloud.capacity(A, 0)
    pools.replay(200)
    launcher = pools.start_toy(FILLING_S="20")
    shown = pools.ends(launcher)
    assert launcher.returncode == 0, shown
    assert "; if they have not come at " in shown
    assert [record["ending"] for record in pools.events("ended")] == ["NO_CAPACITY", "FINISHED"]
    assert [record["scope"] for record in pools.events("allocation refused")] == [A]
    assert "0 of 2 nodes of pw-r-" in pools.events("ended")[0]["detail"]
    assert {row["zone"] for row in pools.gcloud.ledger()} == {B}
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    pools.is_billed(machines=1)


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "kind"), [("localqueues", "LocalQueue"), ("clusterqueues", "ClusterQueue")])
def test_a_run_whose_own_queue_somebody_deletes_names_it_and_resumes_with_another(
    pools: Pools, kinds: str, kind: str
) -> None:
    pools.replay(200)
    assert pools.run_toy(LAUNCH_DIES="after:allocation ready")[0] == -9
    (queue,) = [each["metadata"]["name"] for each in pools.kube.objects(kinds)]
    pools.kube.delete(kinds, queue)
    code, out, err = pools.call("resume", "r")
    (ended,) = pools.events("ended")
    assert (code, ended["ending"]) == (1, "STOPPED"), out + err
    expected = f"{kind} {queue}, which was created for the run alone, was deleted on the cluster, not by Podwright"
    assert ended["detail"] == expected and "podwright resume r, which creates others" in out + err
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    code, out, err = pools.call("resume", "r")
    assert code == 0 and pools.events("ended")[-1]["ending"] == "FINISHED", out + err
    assert pools.left() == [] and pools.left_in_the_cloud() == []


@pytest.mark.long
def test_pools_are_deleted_by_the_same_launcher_once_the_login_works_again(pools: Pools) -> None:
    pools.replay(20)
    launcher = pools.start_toy()
    wait_for(lambda: len(pools.steps()) > 1)
    pools.gcloud.set(login_expired=True)
    wait_for(lambda: bool(pools.events("allocation undeleted")))
    assert launcher.poll() is None and [row for row in pools.gcloud.pools() if not row["foreign"]]
    wait_for(
        lambda: "cannot be deleted: NoLogin: the login of gcloud has expired; type gcloud auth login" in pools.shown
    )
    pools.gcloud.set(login_expired=False)
    shown = pools.ends(launcher)
    assert launcher.returncode == 0, shown
    assert pools.left() == [] and pools.left_in_the_cloud() == []


@pytest.mark.long
def test_a_stop_deletes_pools_of_a_cluster_that_does_not_answer(pools: Pools) -> None:
    pools.replay(3)
    launcher = pools.start_toy(SILENT_STOP_S="5")
    wait_for(lambda: len(pools.steps()) > 1)
    pools.kube.unreachable(600.0)
    wait_for(lambda: "Unreachable: this machine does not reach the API server" in pools.standing()["detail"])
    launcher.send_signal(signal.SIGINT)
    wait_for(lambda: not [row for row in pools.gcloud.pools() if not row["foreign"]])
    assert launcher.poll() is None, "it cannot see yet whether the queues are gone"
    pools.kube.clear_faults()
    shown = pools.ends(launcher)
    assert [record["ending"] for record in pools.events("ended")] == ["STOPPED"], shown
    assert pools.left() == [] and pools.left_in_the_cloud() == []


@pytest.mark.long
def test_clean_names_a_run_whose_target_has_no_entry_and_stop_deletes_its_pools(pools: Pools) -> None:
    assert pools.run_toy(LAUNCH_DIES="after:allocation ready")[0] == -9
    (pool,) = [row for row in pools.gcloud.pools() if not row["foreign"]]
    file, entry = pools.folder / "targets.yaml", (pools.folder / "targets.yaml").read_text()
    file.write_text("{}")
    for words in (["clean"], ["clean", "pod", "--yes"]):
        code, out, err = pools.call(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), out + err
        assert f"run r: its machines {pool['name'].rpartition('-')[0]} in {pool['zone']} (target pod)" in err
        assert "target pod names no cloud now" in err and "type podwright stop r" in err
    code, out, err = pools.call("clean", "--json")
    document = json.loads(out)
    (unlisted,) = document["unlisted"]
    assert code == 2 and document["machines"] == document["faults"] == [], out + err
    assert (unlisted["run"], unlisted["zone"], unlisted["target"]) == ("r", pool["zone"], "pod")
    assert unlisted["fix"].startswith("type podwright stop r")

    file.write_text(entry.replace("pod:", "renamed:"))
    code, out, err = pools.call("clean")
    assert code == 1 and "remove: run r does not train" in out and err == "", "another entry names the same cluster"
    file.write_text("{}")
    code, out, err = pools.call("stop", "r")
    assert code == 0 and pools.standing()["ending"] == "STOPPED" and "error" not in out + err, out + err
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    code, out, err = pools.call("clean")
    assert code == 0 and "nothing of podwright's" in out, out + err


@pytest.mark.long
def test_a_run_that_has_pools_and_no_attempt_is_resumed_with_the_settings_that_it_has_recorded(pools: Pools) -> None:
    pools.replay(200)
    assert pools.run_toy(LAUNCH_DIES="after:allocation ready")[0] == -9
    (pools.folder / "targets.yaml").write_text("{}")
    code, out, err = pools.call("resume", "r")
    assert code == 0 and pools.events("ended")[-1]["ending"] == "FINISHED", out + err
    assert len(pools.events("allocation requested")) == 1, out + err
    assert pools.left() == [] and pools.left_in_the_cloud() == []


@pytest.mark.long
def test_clean_fails_where_it_keeps_pools_that_cost_and_whose_run_nobody_knows(pools: Pools) -> None:
    assert pools.run_toy(LAUNCH_DIES="after:allocation ready")[0] == -9
    name = pools.events("allocation requested")[0]["request"]["name"]
    shutil.rmtree(pools.folder / "runs")
    for words in (["clean"], ["clean", "--yes"], ["clean", "pod", "--yes"]):
        code, out, err = pools.call(*words)
        assert code == 1 and "the folder of its run, is empty or not there" in out, out + err
        assert "nothing to remove" not in out and f"type podwright clean pod {name} --yes" in err, out + err
    pools.kube.fault("forbidden", verb="list", resource="nodes")
    code, out, err = pools.call("clean")
    assert code == 2 and "nodes were not listed (" in out, out + err
    pools.kube.clear_faults()
    code, out, err = pools.call("clean", "pod", name, "--yes")
    assert code == 0 and pools.left_in_the_cloud() == [], out + err
