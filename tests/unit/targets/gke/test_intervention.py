"""An attempt whose JobSet is gone: deleted by somebody, with its namespace, or by its time to live."""

from typing import Any

import pytest

from podwright.rundir import Ending
from podwright.targets.base import Polled, Process
from podwright.targets.gke import intervention
from podwright.targets.gke.cluster_view import ClusterView
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.test_waiting import BEGAN_S, conditions, jobset


def gone(ended_by_it: bool = False, since_s: float = 60.0, exists: bool = True, phase: str = "Active") -> Polled:
    namespace = {"status": {"phase": phase}} if exists else {}
    return intervention.gone("pw-r", gke(), ended_by_it, since_s, namespace, exists)


def test_a_jobset_that_somebody_deleted_stops_the_attempt() -> None:
    polled = gone(ended_by_it=True, since_s=9999.0)
    assert polled.process is Process.ENDED and polled.ending is Ending.STOPPED and not polled.inferred
    assert polled.detail == "JobSet pw-r was deleted on the cluster, not by Podwright"


def test_a_deletion_that_nobody_saw_counts_where_the_trainer_said_nothing() -> None:
    assert gone().ending is Ending.STOPPED and gone().inferred


def test_a_jobset_that_may_have_been_deleted_by_its_time_to_live_is_not_called_deleted() -> None:
    polled = gone(since_s=3700.0)
    assert polled.ending is Ending.UNKNOWN and polled.inferred
    assert "it was deleted, or it ended more than 1 h ago" in polled.detail


@pytest.mark.parametrize("kept", [{"exists": False}, {"phase": "Terminating"}])
def test_the_deletion_of_the_namespace_is_named_with_what_to_type(kept: dict[str, object]) -> None:
    polled = gone(True, **kept)  # type: ignore[arg-type]
    assert polled.detail.startswith("namespace default, and JobSet pw-r with it, was deleted on the cluster")
    assert "kubectl create namespace default --context=gke_my-project_us-central1_my-cluster" in polled.fix


def test_a_jobset_that_is_being_deleted_is_gone_unless_it_had_ended() -> None:
    being = jobset()
    being["metadata"] = being["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert ClusterView(being).is_gone and not ClusterView(jobset()).is_gone and ClusterView().is_gone
    assert not ClusterView(being | {"status": conditions(Failed=("True", "FailedJobs", "x"))}).is_gone


@pytest.mark.parametrize(
    ("status", "stamp", "resumed"),
    [
        ("False", "2026-01-01T00:06:00Z", True),
        ("False", "2026-01-01T00:05:09Z", False),  # as Kueue resumes each JobSet that it admits
        ("True", "2026-01-01T00:06:00Z", False),
    ],
)
def test_a_jobset_that_was_resumed_after_its_first_process_began_has_other_pods(
    status: str, stamp: str, resumed: bool
) -> None:
    of = conditions(Suspended=(status, "ResumeJobs", "jobset is resumed"))
    of["conditions"][0]["lastTransitionTime"] = stamp
    assert intervention.was_resumed(ClusterView(jobset() | {"status": of}), BEGAN_S) is resumed
    assert not intervention.was_resumed(ClusterView(jobset()), BEGAN_S)
    assert not intervention.was_resumed(ClusterView(jobset() | {"status": of}), float("inf"))


def node(name: str, created: str = "2026-01-01T00:00:00Z", ready: str = "True", **spec: bool) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": created}
    return {"kind": "Node", "metadata": metadata, "spec": spec, "status": conditions(Ready=(ready, "", ""))}


def test_a_pod_that_is_gone_from_a_node_that_stayed_was_deleted() -> None:
    polled = intervention.pod_deleted("pw-r", {"a"}, [node("a"), node("b")], BEGAN_S)
    assert (
        polled and polled.ending is Ending.STOPPED and "was deleted on the cluster, not by Podwright" in polled.detail
    )


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [node("b")],
        [node("a", ready="Unknown")],
        [node("a", unschedulable=True)],
        [node("a", "2026-01-01T00:06:00Z")],
    ],
)
def test_a_pod_whose_node_may_be_at_fault_is_not_called_deleted(nodes: list[dict[str, Any]]) -> None:
    assert intervention.pod_deleted("pw-r", {"a"}, nodes, BEGAN_S) is None
    assert intervention.pod_deleted("pw-r", set(), nodes, BEGAN_S) is None
