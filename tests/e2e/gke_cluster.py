"""The simulated cluster of GKE with the product's command line on it: what tests/e2e/test_gke*.py share. Its fixtures are in conftest.py."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from lab.gcloud.control import Folder, Gcloud
from lab.kube import samples
from lab.kube.control import Kube
from podwright import slices
from podwright.targets.gke import jobset
from tests.e2e.conftest import Bench, wait_for
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.targets.gke.entry import ENTRY

LOG = Path(__file__).parents[1] / "unit" / "watch" / "maxtext_cpu.log"
LAUNCH = Path(__file__).parents[2] / "lab" / "launch_gke.py"
SLICE = "tpu7x-2x2x2"
HOSTS = 2
A, B = "us-central1-a", "us-central1-b"
QUEUES = ("resourceflavors", "clusterqueues", "localqueues")


def simulated(root: Path) -> Kube:
    """The cluster that `ENTRY` names, with controllers."""
    return Kube(root, controllers=True, project="my-project", cluster="my-cluster")


@contextlib.contextmanager
def simulated_cloud(root: Path, *zones: str) -> Iterator[tuple[Kube, Gcloud]]:
    """The cluster in a simulated cloud, which has it in `zones`."""
    with Folder(root) as folder, Gcloud(folder) as gcloud, simulated(root) as kube:
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=zones)
        yield kube, gcloud


def objects_of_runs(kube: Kube) -> list[str]:
    kinds = ("jobsets", "jobs", "pods", "workloads", "configmaps", "secrets")
    return [f"{kind}/{each['metadata']['name']}" for kind in kinds for each in kube.objects(kind)]


class Cluster(Bench):
    """A bench whose target `pod` is the simulated cluster, with the nodes of a slice and a queue for it."""

    launch = LAUNCH

    def __init__(self, folder: Path, kube: Kube):
        super().__init__(folder)
        self.kube = kube
        self.without: dict[str, str] = {}
        """variables in place of those that reach the cluster"""
        self.target()
        recipe = example(topology=SLICE, xpk={}, arguments=RAW["arguments"] | {"steps": "12"}).model_dump(mode="json")
        (folder / "toy.yaml").write_text(yaml.safe_dump(recipe))

    def target(self, **settings: object) -> None:
        (self.folder / "targets.yaml").write_text(yaml.safe_dump({"pod": ENTRY | settings}))

    def fill(self, quota: int = 8, hosts: int = HOSTS) -> None:
        """Nodes, queue and priorities, as a cluster for the slice has them."""
        for each in samples.priority_classes():
            self.kube.create(each)
        for each in samples.queues(quota, topology="2x2x2"):
            self.kube.create(each)
        self.nodes(hosts)

    def nodes(self, hosts: int = HOSTS) -> None:
        """Those of a slice, as far as they are missing."""
        there = [node["metadata"]["name"] for node in self.kube.objects("nodes")]
        for number in range(hosts):
            node = samples.node(f"gke-np-{number}", "np", "2x2x2")
            node["metadata"]["labels"] |= jobset.node_selector(slices.parse(SLICE))
            if node["metadata"]["name"] not in there:
                self.kube.create(node)

    def running(self) -> list[dict[str, Any]]:
        return [pod for pod in self.kube.objects("pods") if pod.get("status", {}).get("phase") == "Running"]

    def replay(self, lines_per_s: float = 0.0, exit_code: int = 0, **rule: Any) -> None:
        self.kube.set(
            replay=[{"pod": "*", "file": str(LOG), "lines_per_s": lines_per_s, "exit_code": exit_code} | rule]
        )

    @property
    def environment(self) -> dict[str, str]:
        own = {"PODWRIGHT_TARGETS": str(self.folder / "targets.yaml"), "HOME": str(self.folder)}
        return self.kube.environment | own

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return super().start(*argv, **self.environment | self.without | env)

    def run_toy(self, *argv: str, **env: str) -> tuple[int, str, str]:
        return self.call(*self.words(*argv), **env)

    def start_toy(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """What it prints goes to `shown`."""
        with (self.folder / "shown").open("w") as out:
            process = subprocess.Popen(
                [sys.executable, str(self.launch), *self.words(*argv)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **self.environment, **env},
                stdout=out,
                stderr=out,
                text=True,
            )
        self.started.append(process)
        return process

    @property
    def shown(self) -> str:
        return (self.folder / "shown").read_text()

    def ends(self, process: subprocess.Popen[str], seconds: float = 200) -> str:
        """What it has printed when it has ended."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.shown) from None
        return self.shown

    def waits(self, reason: str) -> None:
        """Until the run says that it waits for `reason`."""
        try:
            wait_for(lambda: reason in self.shown)
        except AssertionError:
            raise AssertionError(self.shown) from None

    def words(self, *argv: str) -> list[str]:
        return ["run", "toy.yaml", "--on", "pod", "--name", "r", "--force", *argv]

    def events(self, event: str) -> list[dict[str, Any]]:
        return [record for record in self.records("journal.jsonl") if record["event"] == event]

    def left(self) -> list[str]:
        """What exists of the run in the cluster."""
        return objects_of_runs(self.kube)


class MaxTextCluster(Cluster):
    """Recipes of MaxText, and nodes for the slice that each needs."""

    variables: Mapping[str, str] = MappingProxyType({})

    def start(self, *argv: str, **env: str):  # type: ignore[no-untyped-def]
        return super().start(*argv, **self.variables, **env)

    def recipe(self, slice_: str, arguments: dict[str, str], *, nodes: bool = True, **changes: Any) -> None:
        """recipe.yaml in the folder, and, with `nodes`, nodes and a queue for it in the cluster."""
        parsed = slices.parse(slice_)
        recipe = example(name="model", topology=slice_, arguments=arguments, **({"xpk": {}} | changes))
        (self.folder / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
        if not nodes:
            for each in samples.priority_classes():
                self.kube.create(each)
            return
        hosts, labels = parsed.num_hosts, jobset.node_selector(parsed)
        for each in (*samples.priority_classes(), *samples.queues(4 * hosts, topology=parsed.topology)):
            self.kube.create(each)
        for number in range(hosts):
            node = samples.node(f"gke-np-{number}", "np", parsed.topology)
            node["metadata"]["labels"] |= labels
            self.kube.create(node)

    def logs(self, text: str, exit_code: int = 0, lines_per_s: float = 0.0) -> None:
        """What the first pod prints; the others print a line."""
        first, others = self.folder / "first.log", self.folder / "other.log"
        first.write_text(text if text.endswith("\n") else text + "\n")
        others.write_text("Num_devices: 256\n")
        end = {"exit_code": exit_code, "lines_per_s": lines_per_s}
        lasts_s = len(text.splitlines()) / lines_per_s if lines_per_s else 0.0
        rows: list[dict[str, Any]] = [
            {"pod": "*-0-0-*", "file": str(first), **end, "wait_s": 2.0},  # the other pods are created while it runs
            {"pod": "*", "file": str(others), **end, "wait_s": lasts_s + 1.0},
        ]
        self.kube.set(replay=rows)

    def typed(self, *more: str) -> list[str]:
        return ["run", "recipe.yaml", *more, "--on", "pod", "--name", "r"]

    def created(self) -> list[str]:
        return [r["resource"] for r in self.kube.requests() if r["verb"] == "create" and "review" not in r["resource"]]


class Pools(Cluster):
    """A bench whose target `pod` is a cluster without TPUs, for which runs create node pools."""

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
        slack = 8 * machines * self.gcloud.seen_late_s()
        assert usage["chip_hours"] * 3600 == pytest.approx(self.gcloud.chip_hours() * 3600, abs=slack)
