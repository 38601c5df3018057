"""What gcloud's refusals of Cloud TPU mean: which of them let another zone be tried, which let the same call be repeated, and which end a run."""

from __future__ import annotations

from podwright.targets.google.replies import Classify, Reply, of_gcloud


def classify(text: str, project: str, zone: str, target: str = "NAME") -> Reply:
    """`text`: stderr of a call that failed, or the message of an operation that did."""
    return of_gcloud(text, "tpu_vm", {"project": project, "zone": zone, "target": target})


def of_project(project: str, target: str = "NAME") -> Classify:
    """`classify` for calls about `project`, for `target`."""
    return lambda text, zone: classify(text, project, zone, target)
