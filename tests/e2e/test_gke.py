"""Runs in the queue of a cluster: the product's command line and the real kubectl on a simulated API server, whose pods replay a log of MaxText."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright import slices
from podwright.targets.gke import jobset
from tests.e2e.conftest import Bench, wait_for
from tests.lab.kube import samples
from tests.lab.kube.control import Kube
from tests.unit.recipe.maxtext.example import example

LOG = Path(__file__).parents[1] / "unit" / "watch" / "maxtext_cpu.log"
LAUNCH = Path(__file__).parents[1] / "lab" / "launch_gke.py"
TARGET = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": ["us-central1-ai1a"],
    "bucket": "gs://my-bucket/runs",
    "image": "us-docker.pkg.dev/my-project/images/maxtext:v1",
}
SLICE = "tpu7x-2x2x2"
HOSTS = 2


class Cluster(Bench):
    """A bench whose target `pod` is the simulated cluster, with the nodes of a slice and a queue for it."""

    launch = LAUNCH

    def __init__(self, folder: Path, kube: Kube):
        super().__init__(folder)
        self.kube = kube
        self.target()
        recipe = example(topology=SLICE, xpk={}).model_dump(mode="json")
        (folder / "toy.yaml").write_text(yaml.safe_dump(recipe))

    def target(self, **settings: object) -> None:
        (self.folder / "targets.yaml").write_text(yaml.safe_dump({"pod": TARGET | settings}))

    def fill(self, quota: int = 8, hosts: int = HOSTS) -> None:
        """Nodes, queue and priorities, as a cluster for the slice has them."""
        labels = jobset.node_selector(slices.parse(SLICE))
        for each in samples.priority_classes():
            self.kube.create(each)
        for each in samples.queues(quota, topology="2x2x2"):
            self.kube.create(each)
        for number in range(hosts):
            node = samples.node(f"gke-np-{number}", "np", "2x2x2")
            node["metadata"]["labels"] |= labels
            self.kube.create(node)

    def replay(self, lines_per_s: float = 0.0, exit_code: int = 0, **rule: Any) -> None:
        self.kube.set(
            replay=[{"pod": "*", "file": str(LOG), "lines_per_s": lines_per_s, "exit_code": exit_code} | rule]
        )

    def start(self, *argv: str, **env: str):  # type: ignore[no-untyped-def]
        own = self.kube.environment | {"PODWRIGHT_TARGETS": str(self.folder / "targets.yaml"), "HOME": str(self.folder)}
        return super().start(*argv, **own, **env)

    def run_toy(self, *argv: str, **env: str) -> tuple[int, str, str]:
        return self.call(*self.words(*argv), **env)

    def start_toy(self, *argv: str, **env: str):  # type: ignore[no-untyped-def]
        return self.start(*self.words(*argv), **env)

    def words(self, *argv: str) -> list[str]:
        return ["run", "toy.yaml", "--on", "pod", "--name", "r", "--force", *argv]

    def events(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.records("journal.jsonl") if record["event"] == event]

    def waits(self, reason: str) -> str:
        """The line of `podwright list` for the run, once it has `reason` in it."""
        line = ""

        def listed() -> bool:
            nonlocal line
            line = self.call("list")[1]
            return reason in line

        wait_for(listed, 60)
        return line

    def left(self) -> list[str]:
        """What exists of the run in the cluster."""
        kinds = ("jobsets", "jobs", "pods", "workloads", "configmaps", "secrets")
        return [f"{kind}/{each['metadata']['name']}" for kind in kinds for each in self.kube.objects(kind)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube:
        made = Cluster(tmp_path, kube)
        yield made
        made.close()


def test_a_run_waits_in_the_queue_trains_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.fill()
    cluster.replay(200)
    code, out, err = cluster.run_toy()
    assert code == 0, out + err
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"]
    assert cluster.path("attempts/1/log.txt").read_text().count("completed step: ") > 1
    assert cluster.left() == [] and len(cluster.kube.objects("nodes")) == HOSTS
