"""Runs whose journal has settings that are refused in new entries: what they hold costs, and is to be seen, stopped and given back."""

import json

import pytest

from lab.kube import controllers
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import HOSTS, A, B, Pools

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
REFUSED = "env: has PATH, which the machines of the target or Podwright set themselves"


def record_refused_variable(pools: Pools) -> None:
    """As a version has written it that took the variable."""
    journal = pools.path("journal.jsonl")
    text = journal.read_text()
    assert text.count('"env": ["HF_TOKEN"]') > 1, "of the request and of the attempt"
    journal.write_text(text.replace('"env": ["HF_TOKEN"]', '"env": ["PATH", "HF_TOKEN"]'))


@pytest.mark.long
def test_clean_deletes_node_pools_that_were_requested_with_a_variable_that_is_refused_now(pools: Pools) -> None:
    pools.replay(200)
    assert pools.run_toy(LAUNCH_DIES="after:submitted")[0] == -9
    wait_for(lambda: pools.standing()["ending"] == "FINISHED")
    record_refused_variable(pools)
    assert pools.standing()["ending"] == "FINISHED" and pools.left_in_the_cloud()
    code, out, err = pools.call("clean", "pod", "--yes")
    assert code == 0 and pools.left() == [] and pools.left_in_the_cloud() == [], out + err


@pytest.mark.long
def test_a_run_that_was_started_with_a_variable_that_is_refused_now_is_stopped_and_resumed(pools: Pools) -> None:
    pools.replay(1)
    assert pools.run_toy(LAUNCH_DIES="after:submitted")[0] == -9
    wait_for(lambda: len(pools.running()) == HOSTS)
    record_refused_variable(pools)
    assert pools.standing()["state"] == "running"
    code, out, err = pools.call("clean", "pod", "--yes")
    assert code == 0 and "keep: run r trains without a launcher" in out, out + err

    pools.target(zones=[A, B], provisioning="spot", env=["PATH"])
    code, out, err = pools.call("clean", "pod", "--yes")
    assert code == 2 and REFUSED in err and "fix it in " in err and err.count("\n") == 1, out + err
    assert pools.standing()["state"] == "running"
    code, out, err = pools.call("stop", "r")
    assert code == 0 and [each["ending"] for each in pools.events("ended")] == ["STOPPED"], out + err
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    code, out, err = pools.call("resume", "r")
    assert code == 2 and REFUSED in err, out + err

    (pools.folder / "targets.yaml").write_text("{}")
    code, out, err = pools.call("resume", "r")
    assert code == 2 and REFUSED in err and "type podwright target add pod kind=gke with the corrected" in err
    pools.target(zones=[A, B], provisioning="spot")
    pools.replay(200)
    code, out, err = pools.call("resume", "r")
    assert code == 0 and [each["ending"] for each in pools.events("ended")] == ["STOPPED", "FINISHED"], out + err
    assert json.loads(pools.path("report/result.json").read_text()) and pools.left_in_the_cloud() == []
