"""What an attempt has in a cluster: how its objects are selected and deleted, and what of them is left after that."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.targets import clock
from podwright.targets.base import RUN_LABEL, Handle, Released
from podwright.targets.gke import pod_failures
from podwright.targets.gke.attempt import ATTEMPT_LABEL
from podwright.targets.gke.cluster_view import name_of, node_of, seconds
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import context_of, is_done
from podwright.targets.settings.gke import GkeSettings

RELEASE_LIMIT_S = 5400.0
"""after the end of its grace, for which a pod may keep an attempt from being released: GKE repairs a node that hangs after some 10 min, and
may give its pods an hour to end first"""


def labels(handle: Handle) -> str:
    """Of the jobs and pods of an attempt. An earlier version submitted by xpk, whose objects have no labels of a run."""
    if handle.get("by_xpk"):
        what = f"JobSet {handle['jobset']} was submitted by xpk, which only an earlier version can follow"
        raise UserError(what, f"type kubectl delete jobset {handle['jobset']}", "other-version")
    return f"{RUN_LABEL}={handle['tag']},{ATTEMPT_LABEL}={handle['attempt']}"


def listing(kinds: Sequence[str], handle: Handle) -> tuple[str, ...]:
    """The words of kubectl that list objects of some kinds, and the jobs and pods, of the attempt."""
    return ("get", ",".join([*kinds, "jobs", "pods"]), f"--selector={labels(handle)}")


def deletion(handle: Handle) -> tuple[str, ...]:
    """Of everything that the attempt created."""
    return ("delete", ",".join(handle["kinds"]), f"--selector={labels(handle)}", "--wait=false", "--ignore-not-found")


def released(kubectl: Kubectl, handle: Handle, own: GkeSettings) -> Released:
    """Of an attempt whose deletion was taken: done when the cluster lists nothing of it."""
    text, failure = kubectl.text((*listing(handle["kinds"], handle), "--output=name"))
    if failure and not is_done(failure):
        return Released(False, failure.advice, failure.is_final)
    left = text.split()
    if not left:
        return Released(True)
    if own.capacity == "existing":
        stuck = _stuck(kubectl, handle, own)
        if stuck:
            return stuck
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    return Released(False, f"being deleted: {', '.join(left[:3])}{more}")


def _stuck(kubectl: Kubectl, handle: Handle, own: GkeSettings) -> Released | None:
    """Of pods on nodes that no run deletes, where some have not ended long after their grace."""
    listed, _ = kubectl.items(("get", "pods", f"--selector={labels(handle)}"))
    now = clock.now()
    pods = pod_failures.stuck(listed, now)
    if not pods:
        return None
    first = min(pods, key=_due)
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    what = f"pod {name_of(first)} on node {node_of(first)}{more} should have ended {(now - _due(first)) / 60:.0f} min ago: the node may hang"
    words = ("delete", "pods", f"--selector={labels(handle)}", "--grace-period=0", "--force")
    where = f"--namespace={own.namespace} --context={context_of(own)}"
    given_up = now > _due(first) + RELEASE_LIMIT_S
    return Released(False, f"{what}; type kubectl {' '.join(words)} {where}", barred=True, given_up=given_up)


def _due(pod: Record) -> float:
    """Unix seconds at the end of its grace."""
    return seconds(pod["metadata"]["deletionTimestamp"])
