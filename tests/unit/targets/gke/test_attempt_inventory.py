"""What attempts left in a cluster, by what kubectl prints of it."""

import json
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.shell import Shell
from podwright.targets.gke import attempt_inventory
from podwright.targets.gke.attempt_inventory import AttemptInventory, with_attempts
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.left_resources import LeftResources
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.google import labels
from podwright.targets.machines import AllocationState, Owned, Request
from tests.unit.targets.gke.entry import gke

OWN = gke(namespace="research")
LABELS = {"podwright-run": "1a", "podwright-by": labels.creator(), "podwright-attempt": "2"}
FORBIDDEN = 'Error from server (Forbidden): secrets is forbidden: User "u" cannot list resource "secrets"'


def metadata(name: str, created: str = "2026-11-23T07:00:00Z", **more: Any) -> dict[str, Any]:
    return {"name": name, "labels": LABELS, "creationTimestamp": created} | more


def jobset(name: str, condition: str = "", suspended: bool = False, **more: Any) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True"}] if condition else []
    spec, status = {"suspend": suspended}, {"conditions": conditions}
    return {"kind": "JobSet", "metadata": metadata(name, **more), "spec": spec, "status": status}


class Cluster(Shell):
    """kubectl that prints these objects, and fails with `failures` by kind."""

    def __init__(
        self, *jobsets: dict[str, Any], failures: dict[str, str] | None = None, **others: list[dict[str, Any]]
    ):
        super().__init__()
        self.jobsets, self.others, self.failures = jobsets, others, failures or {}
        self.calls: list[list[str]] = []

    def ask(self, argv, *_, given="", **__):  # type: ignore[no-untyped-def]
        words = [word for word in argv[1:] if not word.startswith(("--context", "--namespace", "--request"))]
        self.calls.append(words)
        if argv[0] == "gcloud":
            return (
                1,
                "",
                "ERROR: (gcloud.container.node-pools.list) You do not currently have an active account selected.",
            )
        kind = words[1].partition(".")[0]
        if text := self.failures.get(kind):
            return 1, "", text
        if words[0] == "delete":
            return 0, "", ""
        if kind == "jobsets":
            return 0, json.dumps({"kind": "List", "items": list(self.jobsets)}), ""
        shown = {"configmaps": "ConfigMap", "secrets": "Secret"}[kind]
        return 0, "".join(f"{shown}\t{json.dumps(each)}\n" for each in self.others.get(kind, [])), ""


def listed(cluster: Cluster) -> list[Owned]:
    return AttemptInventory(Kubectl(cluster, OWN), OWN).list_owned()


@pytest.mark.parametrize(
    ("left", "state", "shown"),
    [
        (jobset("a"), AllocationState.READY, "JobSet running"),
        (jobset("a", suspended=True), AllocationState.READY, "JobSet queued"),
        (jobset("a", "Completed"), AllocationState.LOST, "JobSet completed"),
        (jobset("a", "Failed", suspended=True), AllocationState.LOST, "JobSet failed"),
        (jobset("a", "Failed", deletionTimestamp="x"), AllocationState.DELETING, "JobSet being deleted"),
    ],
)
def test_a_jobset_counts_as_alive_unless_it_has_ended(left: dict[str, Any], state: AllocationState, shown: str) -> None:
    (owned,) = listed(Cluster(left, configmaps=[metadata("a", "2026-11-23T06:59:00Z")]))
    assert (owned.state, owned.cloud_state, owned.mine) == (state, shown, True)
    assert owned.created == labels.unix("2026-11-23T06:59:00Z"), "the oldest of its objects"
    assert owned.request.details["namespace"] == "research" and owned.request.num_chips == 0


def test_attempts_are_listed_and_deleted_also_where_gcloud_lists_no_pools() -> None:
    """The target's own pools have no provisioner; those that an earlier entry has created are gcloud's to list."""
    cluster = Cluster(jobset("a"))
    attempts, pools = AttemptInventory(Kubectl(cluster, OWN), OWN), NodePoolProvisioner(cluster, OWN)
    left = LeftResources(attempts, pools)
    (owned,) = left.list_owned()
    assert owned.request.name == "a" and left.unlisted and "gcloud" in left.unlisted.what
    cluster.calls.clear()
    left.delete(owned.request)
    ((verb, kinds, selector, *_),) = cluster.calls
    assert (verb, selector) == ("delete", "--selector=podwright-run=1a,podwright-attempt=2") and "jobsets" in kinds


def test_objects_are_put_together_by_attempt_and_name_the_directory_of_their_run() -> None:
    run_dir = metadata("b", annotations={"podwright-run-dir": "/runs/my%20run"})
    cluster = Cluster(jobset("a"), configmaps=[metadata("a"), run_dir], secrets=[metadata("b")])
    first, second = listed(cluster)
    assert (first.request.name, second.request.name, second.cloud_state) == ("a", "b", "only ConfigMap and Secret")
    assert second.state is AllocationState.PARTIAL and second.run_dir == "/runs/my run"
    for words in cluster.calls:
        assert "--selector=podwright-run,podwright-attempt" in words
        assert words[1].startswith("jobsets") or "--output=json" not in words, "values of Secrets are not read"


def test_what_is_not_listed_is_said_and_hides_no_jobset() -> None:
    (owned,) = listed(Cluster(jobset("a"), failures={"secrets": FORBIDDEN}))
    assert owned.remark.startswith("secrets were not listed (NoPermission: ")
    with pytest.raises(UserError, match="does not list its JobSets: NoPermission"):
        listed(Cluster(jobset("a"), failures={"jobsets": FORBIDDEN}))
    missing = {"jobsets": 'error: the server doesn\'t have a resource type "jobsets"'}
    assert [each.request.name for each in listed(Cluster(failures=missing, secrets=[metadata("b")]))] == ["b"]


def test_only_objects_with_the_labels_of_the_attempt_are_deleted() -> None:
    words = attempt_inventory.deletion(Request("pw-r-1a-a2", "z", labels=LABELS))
    assert words[:3] == (
        "delete",
        "jobsets.jobset.x-k8s.io,configmaps,secrets",
        "--selector=podwright-run=1a,podwright-attempt=2",
    )
    of_run = {key: value for key, value in LABELS.items() if key != "podwright-attempt"}
    assert "--selector=podwright-run=1a" in attempt_inventory.deletion(Request("pw-r-1a-1", "z", labels=of_run))
    inventory = AttemptInventory(Kubectl(Cluster(failures={"jobsets": FORBIDDEN}), OWN), OWN)
    with pytest.raises(UserError, match="pw-r-1a-a2 in z cannot be deleted: NoPermission"):
        inventory.delete(Request("pw-r-1a-a2", "z", labels=LABELS))


def test_attempts_of_runs_whose_pools_are_listed_go_with_the_pools() -> None:
    inventory = AttemptInventory(Kubectl(Cluster(jobset("a")), OWN), OWN)
    of_run = Owned(Request("pw-r-1a-1", "z", labels={"podwright-run": "1a"}), "", AllocationState.READY)
    assert with_attempts([of_run], inventory) == [of_run]
    assert [each.request.name for each in with_attempts([], inventory)] == ["a"]
    away = AttemptInventory(Kubectl(Cluster(failures={"jobsets": FORBIDDEN}), OWN), OWN)
    (listed,) = with_attempts([of_run], away)
    assert listed.request == of_run.request and listed.remark.startswith(
        "the cluster does not list its JobSets: NoPerm"
    )
    with pytest.raises(UserError, match="the cluster does not list its JobSets"):
        with_attempts([], away)
