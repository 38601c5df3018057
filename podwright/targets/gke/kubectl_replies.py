"""What a failed call of kubectl lets one conclude: that nothing of the name is there, that the same call may be made again, or that a
person has to act first. Pure.

A text that no row of podwright/failures matches has an unknown outcome: the call may have done its work.
"""

from __future__ import annotations

from podwright.failures.match import match
from podwright.targets.google.replies import Consequence, Reply, of_failure, summary
from podwright.targets.settings.gke import GkeSettings


def context_of(own: GkeSettings) -> str:
    """The name that `gcloud container clusters get-credentials` gives to the login for a cluster."""
    return f"gke_{own.project}_{own.location}_{own.cluster}"


def classify(text: str, own: GkeSettings) -> Reply:
    """`text`: stderr of a call that failed."""
    message = summary(text, r"[EWIF]\d{4} |Warning:")  # notes of klog: E1123 07:02:09 ...
    fields = {
        "project": own.project,
        "location": own.location,
        "cluster": own.cluster,
        "namespace": own.namespace,
        "context": context_of(own),
        "summary": message,
        "message": message,
    }
    failure = match(text, "kubectl")
    if failure is None:
        return Reply(Consequence.UNKNOWN, f"Unclear: kubectl says {message!r}")
    return of_failure(failure, fields)


def is_done(failure: Reply | None) -> bool:
    """Of a call that reads or deletes: whether it succeeded, or nothing of the name is there."""
    return failure is None or failure.consequence is Consequence.ABSENT
