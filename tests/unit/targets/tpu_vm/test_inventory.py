"""What the cloud's lists say of each slice: whose it is, which run it belongs to, and whether its machines cost."""

import pytest

from podwright.rundir import Record
from podwright.targets.google.labels import creator
from podwright.targets.machines import AllocationState, ChargedChips
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import calls, inventory
from podwright.targets.tpu_vm.calls import Place
from tests.unit.targets.tpu_vm.test_cloud_states import CREATED, NOW

ZONE = "projects/my-project/locations/us-east5-b"
LABELS = {"podwright-run": "0a1b2c3d", "podwright-expires": "1795190400"}


def settings(**given: object) -> TpuVmSettings:
    base = {"kind": "tpu-vm", "project": "my-project", "zones": ["us-east5-b"], "accelerator_type": "v6e-16"}
    return TpuVmSettings.model_validate(base | given)


def node(name: str = "q", **more: object) -> Record:
    row = {"name": f"{ZONE}/nodes/{name}", "createTime": CREATED, "state": "READY", "labels": LABELS}
    return row | {"acceleratorType": "v6e-16"} | more


def request(state: str, labels: dict[str, str], metadata: dict[str, str] | None = None) -> Record:
    spec = {"labels": labels, "metadata": metadata or {}, "acceleratorType": "v6e-16"}
    return {
        "name": f"{ZONE}/queuedResources/q",
        "createTime": CREATED,
        "state": {"state": state},
        "tpu": {"nodeSpec": [{"nodeId": "q", "node": spec}]},
    }


class Lists:
    """Answers each of the two lists and the description of one node."""

    def __init__(self, queue: list[Record], nodes: list[Record], borrowed: Record | None = None):
        self.queue, self.nodes, self.borrowed = queue, nodes, borrowed

    def rows(self, argv: tuple[str, ...]) -> list[Record]:
        return self.queue if "queued-resources" in argv else self.nodes

    def read(self, argv: tuple[str, ...], zone: str) -> Record | None:
        return self.borrowed


def test_rows_of_the_list_are_ours_by_their_label_alone() -> None:
    owned = inventory.owned(request("SUSPENDED", LABELS), settings(), True, None)
    assert owned and (owned.request.name, owned.request.zone, owned.state) == ("q", "us-east5-b", AllocationState.LOST)
    assert owned.created == pytest.approx(NOW - 3600, abs=1) and owned.expires == 1795190400.0
    assert (owned.request.chip, owned.request.num_chips, owned.charged) == ("v6e", 16, ChargedChips(0))
    assert inventory.owned(request("SUSPENDED", {"team": "nlp"}), settings(), True, None) is None


def test_what_another_user_or_machine_has_created_is_not_mine() -> None:
    mine = inventory.owned(request("ACTIVE", LABELS | {"podwright-by": creator()}), settings(), True, None)
    others = inventory.owned(request("ACTIVE", LABELS | {"podwright-by": "00000000"}), settings(), True, None)
    older = inventory.owned(request("ACTIVE", LABELS), settings(), True, None)
    assert [each and each.mine for each in (mine, others, older)] == [True, False, False]


def test_the_directory_of_a_run_comes_back_from_the_metadata() -> None:
    own = settings()
    for run_dir in ("/elsewhere/runs/a b", "/~me/r,s=t^~^"):
        argv = calls.create(Place("q", own.project, "us-east5-b", True), own, LABELS, "u", "KEY", run_dir)
        (metadata,) = [word for word in argv if word.startswith("--metadata=")]
        pairs = dict(pair.split("=", 1) for pair in metadata.removeprefix("--metadata=^~^").split("~"))
        owned = inventory.owned(request("ACTIVE", LABELS, pairs), own, True, None)
        assert owned and owned.run_dir == run_dir


def test_a_slice_is_listed_once_with_the_health_of_its_node() -> None:
    lists = Lists([request("ACTIVE", LABELS)], [node(health="UNHEALTHY_TPU")])
    (owned,) = inventory.listed(lists, settings(price=2.0))
    assert (owned.state, owned.cloud_state, owned.remark) == (AllocationState.READY, "ACTIVE", "health UNHEALTHY_TPU")
    assert owned.request.details["queued"] is True and owned.request.price == 2.0
    assert owned.charged and owned.charged.chips == 16 and owned.charged.since == pytest.approx(NOW - 3600, abs=1)


def test_a_node_whose_queued_resource_is_gone_is_listed() -> None:
    (owned,) = inventory.listed(Lists([], [node(queuedResource=f"{ZONE}/queuedResources/q")]), settings())
    assert owned.request.details["queued"] is False and owned.state is AllocationState.READY


def test_a_borrowed_node_is_never_listed_as_ours() -> None:
    lists = Lists([], [node("n"), node("m")], node("n"))
    borrowed, other = inventory.listed(lists, settings(node="n"))
    assert borrowed.request.borrowed and not borrowed.mine and borrowed.request.name == "n"
    assert not other.request.borrowed and other.request.name == "m"
