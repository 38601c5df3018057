"""What refusals of node pools mean, whether the call, its operation or the pool has the message. Pure."""

from __future__ import annotations

from dataclasses import replace

from podwright.targets.gke.pool_calls import zone_of
from podwright.targets.google.replies import Classify, Reply, of_gcloud
from podwright.targets.settings.gke import GkeSettings

BUSY_CLUSTER = "ClusterBusy"
"""the name of rows for a cluster that does not take a request now"""


def classifier(own: GkeSettings, target: str = "NAME") -> Classify:
    """Of stderr of a call that failed, or the message of an operation or a pool, and the place that the request is for."""
    fields = {"project": own.project, "location": own.location, "cluster": own.cluster}
    fields |= {"machine_type": own.machine_type, "target": target}

    def classify(text: str, place: str) -> Reply:
        reply = of_gcloud(text, "gke", fields | {"zone": zone_of(place)})
        return replace(reply, reason=reply.reason.replace("  ", " "))  # of a text that names no quota

    return classify
