"""What several slices need: hosts that GKE can join, and a cluster that was created for them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from lab.gcloud import control
from podwright.shell import Shell
from podwright.targets.base import Remark
from podwright.targets.gke import pool_access
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.settings.gke import GkeSettings
from tests.unit.targets.gke.entry import gke


@pytest.mark.parametrize("topology", ["2x v6e-4", "3x tpu7x-2x2x1"])
def test_slices_of_one_host_are_refused(topology: str) -> None:
    with pytest.raises(
        ValidationError, match="has slices of one host, which GKE does not join; write one larger slice"
    ):
        gke(topology=topology)


@pytest.mark.parametrize(
    ("topology", "network", "said"),
    [
        ("v6e-16", {}, {}),
        ("2x v6e-16", {}, {"warning": "gives each host one network interface, over which the 2 slices of the target talk"}),
        ("2x v6e-16", {"enableMultiNetworking": True}, {"info": "can give hosts several network interfaces"}),
        ("2x tpu7x-4x4x4", {"enableMultiNetworking": True}, {"info": "can give hosts several network interfaces"}),
    ],
)  # fmt: skip
def test_a_check_looks_at_what_cannot_be_added_to_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, network: dict[str, bool], said: dict[str, str]
) -> None:
    own = gke(topology=topology, zones=["us-central1-a"])
    with control.Folder(tmp_path) as folder, control.Gcloud(folder) as cloud:
        cloud.cluster("my-cluster", "us-central1", project="my-project", networkConfig=network)
        monkeypatch.setenv("PATH", cloud.environment["PATH"])
        remarks = networks(own)
        cloud.set(account="")
        unread = networks(own)
    assert {r.level for r in remarks} == said.keys()
    assert all(any(r.level == level and text in r.what for r in remarks) for level, text in said.items())
    assert [(r.level, r.fix) for r in unread] == ([("inconclusive", "type gcloud auth login")] if said else [])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [r.level for r in networks(own)] == [r.level for r in unread], "without gcloud too"


def networks(own: GkeSettings) -> list[Remark]:
    return pool_access.networks(own, Gcloud(Shell(), classifier(own)))


@pytest.mark.parametrize(
    ("topology", "networks_there", "said"),
    [
        ("2x v6e-16", True, ["info: can give hosts several network interfaces", "info: knows all options of the node pools"]),
        ("2x v6e-16", False, ["warning: gives each host one network interface"]),
        ("2x tpu7x-4x4x4", True, ["info: can give hosts several network interfaces"]),
    ],
)  # fmt: skip
def test_a_check_says_whether_node_pools_get_the_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str, networks_there: bool, said: list[str]
) -> None:
    own = gke(topology=topology, zones=["us-central1-a"], provisioning="spot")
    with control.Folder(tmp_path) as folder, control.Gcloud(folder) as cloud:
        network = {"enableMultiNetworking": True} if networks_there else {}
        cloud.cluster("my-cluster", "us-central1", project="my-project", networkConfig=network)
        monkeypatch.setenv("PATH", cloud.environment["PATH"])
        remarks = networks(own)
    lines = [f"{remark.level}: {remark.what}" for remark in remarks]
    assert len(lines) == len(said)
    for line, expected in zip(lines, said, strict=True):
        level, _, text = expected.partition(": ")
        assert line.startswith(f"{level}: ") and text in line
