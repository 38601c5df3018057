"""What a cluster lacks for runs of a target: login, JobSet, queue, flavor, nodes of the slice, and what the pods ask for besides."""

from __future__ import annotations

from podwright.targets.base import Remark
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.settings.gke import GkeSettings


def check(own: GkeSettings, kubectl: Kubectl) -> list[Remark]:
    """Each remark says what was looked at; after an error that all further calls would repeat there are none."""
    return []
