"""What the cloud's own states of queued resources and nodes mean for a run. Pure; a state that nobody knows is one of waiting, never
one of being gone."""

from __future__ import annotations

from pathlib import Path

import yaml

from podwright.rundir import Ending, Record
from podwright.targets.google.replies import Classify, refusal
from podwright.targets.machines import Allocation, deleting, lost, refused, repairing, waiting

_STATES: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("states.yaml").read_text())


def of_queued(record: Record, classify: Classify, zone: str, expired_s: float = 0.0) -> Allocation | None:
    """Of a queued resource; None when its node decides. `expired_s`: the life that the cloud had granted it, if that is over, else 0."""
    state = record.get("state", {}).get("state", "")
    if state == "ACTIVE":
        return None
    if state == "DELETING":
        return deleting()
    if state == "FAILED":
        return failed(record["state"].get("failedData", {}).get("error", {}).get("message", ""), classify, zone)
    if state in ("SUSPENDING", "SUSPENDED"):
        if expired_s:
            return lost(
                Ending.TIMED_OUT, f"Expired: its life of {expired_s / 3600:g} h (max_life of the target) is over"
            )
        if record["state"].get("stateInitiator") == "USER":
            return lost(Ending.NODE_LOST, "Suspended: the machines were suspended")
        return lost(Ending.PREEMPTED, "Preempted: the cloud has taken the machines")
    return waiting(_STATES["queued"].get(state, f"{state or 'Unknown'}: the cloud says no more"))


def failed(message: str, classify: Classify, zone: str) -> Allocation:
    """Of a queued resource or an operation that has ended with an error; what is left of it holds quota until it is deleted."""
    if not message:
        return refused(zone, "Failed: the request was not granted in time")
    reply = classify(message, zone)
    return refusal(reply, zone) or refused(zone, reply.advice, reply.ending)


def of_node(record: Record) -> Allocation | None:
    """None when it is ready."""
    state = record.get("state", "")
    match state:
        case "READY":
            return None
        case "DELETING":
            return deleting()
        case "PREEMPTED":
            return lost(Ending.PREEMPTED, "Preempted: the cloud has taken the machines")
        case "TERMINATED":
            return lost(
                Ending.PREEMPTED,
                "Terminated: the cloud has ended the machines for maintenance, or at the end of their life",
            )
        case "STOPPED" | "STOPPING":
            return lost(Ending.NODE_LOST, "Stopped: the machines were stopped")
    if away := _STATES["away"].get(state):
        return repairing(away)
    return waiting(_STATES["starting"].get(state, f"{state or 'Unknown'}: the cloud says no more"))


def in_maintenance(record: Record) -> bool:
    """Of a node that is ready: its machines answer, or are about to leave or have left for maintenance."""
    return bool(record.get("health") == "UNHEALTHY_MAINTENANCE")


def remark_of(record: Record) -> str:
    """What a user may want to know of a node that is ready: maintenance to come, or a health that is not HEALTHY."""
    coming = record.get("upcomingMaintenance", {})
    if coming:
        begin = coming.get("windowStartTime", "")
        return f"maintenance is {coming.get('maintenanceStatus', 'planned').lower()}" + (
            f" from {begin}" if begin else ""
        )
    health = record.get("health", "HEALTHY")
    if health in ("HEALTHY", "HEALTH_UNSPECIFIED"):
        return ""
    return f"health {health}: {record.get('healthDescription', '')}".rstrip(": ")


def addresses(record: Record) -> list[tuple[str, str]]:
    """Of the workers of a node in the cloud's order: the internal address, and the external one or ""."""
    return [
        (point["ipAddress"], point.get("accessConfig", {}).get("externalIp", ""))
        for point in record.get("networkEndpoints", [])
        if point.get("ipAddress")
    ]
