"""What a test sets of the controllers: how long things take, and what goes wrong. The names are those of `DEFAULTS`."""

import fnmatch
from collections.abc import Mapping
from typing import Any

from lab.kube.controllers.objects import Json, namespace
from lab.kube.store import Store

DEFAULTS: Json = {
    # seconds
    "image_s": 0.05,  # to pull an image
    "plugin_s": 0.0,  # from a node's readiness to its google.com/tpu, where the node was created without
    "node_ready_s": 0.0,  # from a node's creation to its readiness, where the node was created without
    "unreachable_s": 1.0,  # from the loss of a node to the deletion of its pods, which is 300 s on GKE
    "gc_s": 0.5,  # from the deletion of a node to that of its pods, which is 40 s on GKE
    "backoff_s": 0.2,  # between two attempts to create pods that were refused, or to pull an image
    "ttl_s": None,  # in place of every ttlSecondsAfterFinished
    "grace_s": None,  # at most, in place of every terminationGracePeriodSeconds
    "deadline_s": None,  # in place of every activeDeadlineSeconds
    # JobSet and Kueue
    "webhooks_down": [],  # of jobset, kueue
    "controllers_down": [],  # of jobset, job, kueue, scheduler, kubelet
    "kueue_manages_all": False,  # also JobSets without the label of a queue
    "kueue_reasons": "old",  # new: those of Kueue 0.19
    "pods_ready_timeout_s": None,  # Kueue evicts what has not all its pods ready by then
    "admission_check_s": 0.0,  # from a workload's quota to its admission
    "evict": [],  # {"jobset": glob, "reason": ..., "message": ..., "displaced_s": 0.0}: Kueue evicts it once
    # nodes and pods; globs are matched with NAMESPACE/NAME of a pod, or the name of a node or image
    "images": [],  # {"image": glob, "reason": ErrImagePull, "message": ...}
    "stuck_creating": [],  # globs of pods that stay in ContainerCreating
    "scale_up": [],  # {"pod": glob, "message": ...} of the cluster autoscaler
    "oom": [],  # {"pod": glob, "container": glob, "after_s": 0.0}
    "kill": [],  # {"pod": glob, "container": glob, "after_s": 0.0, "code": 1}: ends with that code
    "nodes": [],  # {"node": glob, "event": preempted | unreachable | gone, "notice_s": 0.0, "back_s": None}: once for each node
    "replay": [],  # {"pod": glob, "container": glob, "file": path, "lines_per_s": 0.0, "exit_code": 0, "wait_s": 0.0}
    "log_bytes": 10 << 20,  # after which a log is set aside
    "path": [],  # folders in front of PATH in every container
    "environment": {},  # further variables of every container
    "hidden": [],  # folders of this machine that are empty in every container
}

OF_SERVER = ("absent_groups", "kueue_versions", "watch_s", "garbage_s", "token")  # see lab/kube/__init__.py


def of(store: Store) -> Json:
    return DEFAULTS | store.knobs


def check(settings: Mapping[str, Any]) -> None:
    unknown = sorted(set(settings) - {*DEFAULTS, *OF_SERVER})
    assert not unknown, f"no such knob: {', '.join(unknown)}"


def pod_name(pod: Json) -> str:
    return f"{namespace(pod)}/{pod['metadata'].get('name') or pod['metadata'].get('generateName', '')}"


def matching(rows: list[Json], pod: Json, container: str = "") -> Json | None:
    """The first row for a pod and, where it names one, a container."""
    for row in rows:
        if not fnmatch.fnmatch(pod_name(pod), pod_glob(row["pod"])):
            continue
        if not container or fnmatch.fnmatch(container, row.get("container", "*")):
            return row
    return None


def pod_glob(glob: str) -> str:
    return glob if "/" in glob else f"*/{glob}"


def names(globs: list[str], pod: Json) -> bool:
    return any(fnmatch.fnmatch(pod_name(pod), pod_glob(glob)) for glob in globs)
