"""Runs whose node pools do not exist yet: the product's command line, its own gcloud calls and the real kubectl, from nothing over what a cloud
takes away to a report and back to nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import wait_for
from tests.e2e.test_gke import LAUNCH, Cluster
from tests.lab import cloud
from tests.lab.gcloud.control import Gcloud
from tests.lab.kube import samples
from tests.lab.kube.control import Kube

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
A, B = "us-central1-a", "us-central1-b"
QUEUES = ("resourceflavors", "clusterqueues", "localqueues")


class Pools(Cluster):
    """A bench whose target `pod` is a cluster without TPUs, for which runs create node pools."""

    launch = LAUNCH

    def __init__(self, folder: Path, kube: Kube, gcloud: Gcloud):
        self.gcloud = gcloud
        super().__init__(folder, kube)
        self.target(zones=[A, B], provisioning="spot", price=2.0)

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | self.gcloud.environment

    def left_in_the_cloud(self) -> list[str]:
        queues = [each["metadata"]["name"] for kind in QUEUES for each in self.kube.objects(kind)]
        return [f"{row['kind']} {row['name']}" for row in self.gcloud.resources()] + queues

    def is_billed(self, machines: int) -> None:
        """The report says what the machines of the run have cost, 8 chips each time, by the account of the cloud."""
        usage = json.loads(self.path("report/result.json").read_text())["usage"]
        assert usage == self.standing()["usage"] and not usage["open"]
        assert usage["cost"] == pytest.approx(2.0 * usage["chip_hours"])
        slack = 8 * machines * SLACK_S
        assert usage["chip_hours"] * 3600 == pytest.approx(self.gcloud.chip_hours() * 3600, abs=slack)


SLACK_S = 4.0
"""a poll of a busy machine, and the second to which the cluster rounds times"""


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    with (
        cloud.Lab(tmp_path) as lab,
        Gcloud(lab) as gcloud,
        Kube(lab.root, controllers=True, project="my-project", cluster="my-cluster") as kube,
    ):
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(A, B))
        for each in samples.priority_classes():
            kube.create(each)
        bench = Pools(tmp_path, kube, gcloud)
        yield bench
        bench.close()


def test_a_run_goes_from_no_nodes_over_a_preemption_to_a_report_and_no_nodes(pools: Pools) -> None:
    pools.gcloud.capacity(A, 0)
    pools.replay(3)
    launcher = pools.start_toy()
    wait_for(lambda: len(pools.steps()) > 1, 90)
    (pool,) = [row for row in pools.gcloud.pools() if not row["foreign"]]
    assert pool["zone"] == B and pool["nodes"] == 2
    pools.replay(200)
    pools.gcloud.lose_node(pool["name"])
    shown = pools.ends(launcher, 120)
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
    launcher = pools.start_toy(FILLING_S="6")
    shown = pools.ends(launcher, 120)
    assert launcher.returncode == 0, shown
    assert "; if they have not come at " in shown
    assert [record["ending"] for record in pools.events("ended")] == ["NO_CAPACITY", "FINISHED"]
    assert [record["scope"] for record in pools.events("allocation refused")] == [A]
    assert "0 of 2 nodes of pw-r-" in pools.events("ended")[0]["detail"]
    assert {row["zone"] for row in pools.gcloud.ledger()} == {B}
    assert pools.left() == [] and pools.left_in_the_cloud() == []
    pools.is_billed(machines=1)
