"""What refusals of node pools mean, whether the call, its operation or the pool has the message: which let another place be tried, which let
the same call be repeated, and which end a run. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from podwright.rundir import Ending
from podwright.targets.gke.pool_calls import zone_of
from podwright.targets.google.replies import Classify, Consequence, Reply, of_gcloud, region_of
from podwright.targets.machines import Allocation, refused
from podwright.targets.settings.gke import GkeSettings

BUSY_CLUSTER = "ClusterBusy"
"""the name of rows for a cluster that does not take a request now"""


@dataclass(frozen=True)
class PoolReplies:
    """Classifies for one target."""

    own: GkeSettings
    target: str = "NAME"

    def classify(self, text: str, place: str) -> Reply:
        """`text`: stderr of a call that failed, or the message of an operation or a pool; `place`: that the request is for."""
        own = self.own
        fields = {"project": own.project, "location": own.location, "cluster": own.cluster}
        fields |= {"zone": zone_of(place), "machine_type": own.machine_type, "target": self.target}
        reply = of_gcloud(text, "gke", fields)
        return replace(reply, reason=reply.reason.replace("  ", " "))  # of a text that names no quota

    def refusal(self, reply: Reply, place: str) -> Allocation | None:
        """What a reply to a request refuses; None where the same request may be repeated, or may have done its work."""
        match reply.consequence:
            case Consequence.PLACE:
                return refused(place, reply.advice, reply.ending)
            case Consequence.ZONE:
                return refused(zone_of(place), reply.advice, reply.ending)
            case Consequence.REGION:
                return refused(region_of(zone_of(place)), reply.advice, reply.ending)
            case Consequence.FINAL:
                quota = reply.reason.startswith("Quota")
                return refused("", reply.advice, Ending.NO_CAPACITY if quota else Ending.BAD_INPUT)
        return None


def classifier(own: GkeSettings, target: str = "NAME") -> Classify:
    return PoolReplies(own, target).classify
