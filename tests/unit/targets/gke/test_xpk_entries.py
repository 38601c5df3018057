"""The entries that runs add to the ConfigMap of xpk, by the real kubectl on the simulated API server."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lab.kube.control import Kube
from podwright import slices
from podwright.shell import Shell
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.gke.queues import QueueObjects
from podwright.targets.gke.xpk_entries import Entry, XpkEntries, correction, shortage
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.machines import Request
from tests.unit.targets.gke.entry import gke

MAP = "my-cluster-resources-configmap"


@pytest.mark.parametrize(
    ("slice_", "device", "machines"),
    [("tpu7x-4x4x8", "tpu7x-256", 32), ("2x tpu7x-4x4x4", "tpu7x-128", 32), ("v6e-16", "v6e-16", 4), ("v5p-2x2x2", "v5p-16", 2)],
)  # fmt: skip
def test_an_entry_has_the_name_by_number_and_counts_machines_of_all_slices(
    slice_: str, device: str, machines: int
) -> None:
    assert Entry.of(slices.parse(slice_)) == Entry(device, machines)


def test_xpk_submits_where_the_machines_are_enough_or_come_by_themselves() -> None:
    slice_ = slices.parse("v6e-16")
    entry = Entry.of(slice_)
    cases: list[tuple[dict[str, str] | None, str]] = [
        (None, "missing"),
        ({"v6e-4": "9"}, "missing"),
        ({"v6e-16": "3"}, "3"),
        ({"v6e-16": "4"}, ""),
        ({"v6e-16": "16"}, ""),
        ({"tpu-v6e-slice": "AUTOPROVISION"}, ""),
    ]
    assert [shortage({"data": data}, entry, slice_) for data, _ in cases] == [short for _, short in cases]


class Cluster:
    """The ConfigMap of a cluster, and the provisioners' requests."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.entries = XpkEntries(Kubectl(Shell(), gke(submit="xpk")), gke(submit="xpk"))

    def create(self, data: dict[str, str] | None, **metadata: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP} | metadata}
        self.kube.create(body | ({"data": data} if data is not None else {}))
        return self.contents()

    def contents(self) -> dict[str, Any]:
        (config,) = self.kube.objects("configmaps")
        return {"data": config.get("data") or {}, "annotations": config["metadata"].get("annotations") or {}}

    @staticmethod
    def request(run: str, topology: str = "tpu7x-2x2x2") -> Request:
        own = gke(submit="xpk", xpk="1.16.0", provisioning="spot", topology=topology)
        return NodePoolProvisioner(Shell(), own).describe_request(Path(f"/runs/{run}"), 1.0, 1, ())

    def names(self, request: Request) -> list[str]:
        seen = self.entries.of(request)
        assert isinstance(seen, QueueObjects)
        return [each["metadata"]["name"] for each in seen.objects]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    with Kube(tmp_path, project="my-project", cluster="my-cluster") as kube:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name, value in kube.environment.items():
            monkeypatch.setenv(name, value)
        yield Cluster(kube)


def test_a_missing_entry_is_added_and_removed_and_all_else_is_as_before(cluster: Cluster) -> None:
    before = cluster.create({"v6e-16": "4"}, annotations={"owner": "me"})
    request = cluster.request("r")
    assert cluster.names(request) == [] and cluster.entries.delete(request) is None
    for _ in range(2):
        assert cluster.entries.create(request) == (None, False)
        assert cluster.contents()["data"] == {"v6e-16": "4", "tpu7x-16": "2"}
        assert cluster.names(request) == [request.name]
    for _ in range(2):
        assert cluster.entries.delete(request) is None
        assert cluster.contents() == before and cluster.names(request) == []


def test_runs_of_one_slice_share_an_entry_until_the_last_ends(cluster: Cluster) -> None:
    before = cluster.create(None)
    small, large = cluster.request("small"), cluster.request("large", "2x tpu7x-2x2x2")
    assert cluster.entries.create(small) == (None, False) and cluster.entries.create(large) == (None, False)
    assert cluster.contents()["data"] == {"tpu7x-16": "4"} and cluster.names(small) == [small.name]
    assert cluster.entries.delete(large) is None and cluster.contents()["data"] == {"tpu7x-16": "2"}
    assert cluster.entries.delete(small) is None and cluster.contents() == before


def test_an_entry_of_somebody_else_is_used_and_never_changed(cluster: Cluster) -> None:
    before = cluster.create({"tpu7x-16": "2"})
    assert cluster.entries.create(cluster.request("fits")) == (None, False) and cluster.contents() == before
    refused, added = cluster.entries.create(cluster.request("large", "2x tpu7x-2x2x2"))
    assert not added
    assert refused and refused.consequence is Consequence.FINAL
    assert "has 2 machines of tpu7x-16, and the run needs 4" in refused.reason
    assert refused.fix == f"type {correction(gke(), Entry('tpu7x-16', 4))}" and cluster.contents() == before


def test_a_cluster_without_the_configmap_needs_no_entry(cluster: Cluster) -> None:
    request = cluster.request("r")
    assert cluster.entries.create(request) == (None, False) and cluster.names(request) == []
    assert not cluster.kube.objects("configmaps")


def test_a_change_by_somebody_else_at_the_same_moment_is_kept(cluster: Cluster) -> None:
    before = cluster.create({"v6e-16": "4"})
    requests = [cluster.request(f"r{number}", topology) for number, topology in enumerate(("tpu7x-2x2x2", "v6e-64"))]
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(cluster.entries.create, requests)) == [(None, False)] * 2
        assert cluster.contents()["data"] == {"v6e-16": "4", "tpu7x-16": "2", "v6e-64": "16"}
        assert list(pool.map(cluster.entries.delete, requests)) == [None, None]
    assert cluster.contents() == before


def test_an_unreachable_cluster_is_no_cluster_without_entries(cluster: Cluster) -> None:
    cluster.create({})
    cluster.kube.unreachable(30)
    seen = cluster.entries.of(cluster.request("r"))
    assert isinstance(seen, Reply) and seen.consequence is Consequence.UNKNOWN


def test_pools_for_xpk_have_its_workload_policy_which_no_run_deletes() -> None:
    request = Cluster.request("r")
    own = gke(submit="xpk", xpk="1.16.0", provisioning="spot", topology="tpu7x-2x2x2")
    provisioner = NodePoolProvisioner(Shell(), own)
    created = [" ".join(call.argv) for call in provisioner.creating(request)]
    deleted = [" ".join(call.argv) for call in provisioner.deleting(request)]
    policy = "tpu7x-16-2x2x2-placement-policy"
    assert [text.split()[0] for text in created] == ["kubectl", "gcloud", "gcloud"]
    assert f"workload-policy {policy} " in created[1] and "--description" not in created[1]
    assert f"--placement-policy={policy}" in created[2]
    assert not any(policy in text for text in deleted) and not any("kueue" in text for text in created + deleted)


def test_entries_are_in_the_default_namespace_whatever_that_of_the_target_is_now() -> None:
    own = gke(namespace="research")
    (call,) = XpkEntries(Kubectl(Shell(), own), own).deleting(Cluster.request("a"))
    assert "--namespace=default" in call.argv and "--namespace=research" not in call.argv


@pytest.mark.long
@pytest.mark.parametrize(
    "edited",
    ["", "spot", "[1]", "7", '{"device": "tpu7x-16"}', '{"device": "tpu7x-16", "machines": "2", "labels": {}}', '{"device": 1, "machines": 2, "labels": {}}', '{"device": "tpu7x-16", "machines": 2, "labels": null}'],
)  # fmt: skip
def test_an_annotation_that_somebody_edited_is_one_line_and_nothing_is_changed(cluster: Cluster, edited: str) -> None:
    before = cluster.create({"v6e-16": "4"}, annotations={"podwright.entry/pw-r-1": edited})
    request = cluster.request("r")
    seen, (created, there), deleted = (
        cluster.entries.read(),
        cluster.entries.create(request),
        cluster.entries.delete(request),
    )
    for failure in (seen, created, deleted):
        assert isinstance(failure, Reply) and failure.consequence is Consequence.FINAL
        assert failure.reason.startswith(f"Damaged: annotation podwright.entry/pw-r-1 of ConfigMap {MAP} ")
        assert failure.fix.startswith(f"type kubectl edit configmap {MAP} ") and "\n" not in failure.advice
    assert not there and cluster.contents() == before
