"""A run whose cluster this machine may not ask, or cannot: what list, report and stop say of it, and that a stop comes to an end."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube import controllers, samples
from lab.kube.control import Kube
from tests.e2e.conftest import wait_for
from tests.e2e.test_gke import Cluster

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube:
        made = Cluster(tmp_path, kube)
        yield made
        kube.clear_faults()
        made.close()


@pytest.mark.long
def test_a_stop_that_may_not_look_ends_and_calls_nothing_stopped(cluster: Cluster) -> None:
    cluster.fill()
    cluster.kube.create(samples.workload("other", 8))
    cluster.replay(0.5)
    code, out, err = cluster.run_toy("--detach")
    assert code == 0, out + err
    wait_for(lambda: cluster.standing()["detail"].startswith("Quota: "))

    no_login = cluster.folder / "other-kubeconfig"
    shutil.copy(cluster.kube.environment["KUBECONFIG"], no_login)
    no_login.write_text(no_login.read_text().replace("gke_my-project", "gke_their-project"))
    cluster.without = {"KUBECONFIG": str(no_login)}
    code, out, err = cluster.call("list")
    fix = "type gcloud container clusters get-credentials my-cluster --location=us-central1 --project=my-project"
    assert "waiting (NoContext)" in out, out
    assert f"r: NoContext: kubectl has no login for cluster my-cluster; {fix}" in err, err
    code, out, err = cluster.call("report", "r")
    assert code == 0 and "nobody has seen its end; podwright list asks its target" in out, out + err
    cluster.without = {}

    cluster.kube.fault("forbidden", verb="deletecollection", resource="jobsets")
    cluster.kube.fault("forbidden", verb="delete", resource="jobsets")
    code, out, err = cluster.call("stop", "r")
    assert code == 2 and "error: run r was not stopped: NoPermission: " in err, out + err
    assert "may not delete jobsets" in err and err.rstrip().endswith("then type podwright stop r"), err
    assert len(cluster.kube.objects("jobsets")) == 1
    cluster.kube.clear_faults()

    cluster.kube.fault("forbidden", verb="list", resource="jobsets")
    code, out, err = cluster.call("stop", "r")
    assert code == 2 and "error: run r was told to stop, and whether it has ended cannot be seen: NoPermission: " in err
    assert "may not list jobsets" in err and err.rstrip().endswith("then type podwright stop r"), err
    row = cluster.standing()
    assert (row["state"], row["ending"]) == ("waiting", None) and row["detail"].startswith("NoPermission: "), row
    cluster.kube.clear_faults()

    code, out, err = cluster.call("stop", "r")
    assert code == 0 and cluster.left() == ["workloads/other"], out + err
    assert "r STOPPED at step 0/12: stopped before it had logged anything\n" in out, out
    row = json.loads(cluster.call("list", "--json")[1])[0]
    assert (row["ending"], row["fix"]) == ("STOPPED", "`podwright resume r` starts it: nothing was trained yet")
    assert "starts it: nothing was trained yet" in cluster.call("report", "r")[1]
