"""What may disturb a life besides kills of its launchers and faults of single calls: a table of kinds, and how lives draw from it.

`Disturbed.ACTS` does what befalls launchers, trainers and their machines; `chaos_clouds.disturb` what befalls the cloud.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.e2e.chaos_phases import CLOUDY, GKE_PHASES, VM_PHASES, LifePhase

Row = dict[str, Any]
Disturbances = Iterator[tuple[str, float, Row]]
GKE, TPU_VM = "gke", "tpu-vm"
SOON_S = 0.01
"""a time after the start that is over at once: what comes in a phase, or after a step, waits for nothing else"""
RARE = (LifePhase.PREPARING, LifePhase.STOPPING, LifePhase.CLEANING)
"""in which a launcher may not be interrupted yet, or which are not in every life"""
LIMITS = {
    "podwright.run.drive.BARRED_S": 4.0,
    "podwright.run.drive.LOCK_WAIT_S": 4.0,
    "podwright.run.drive.DELETION_LIMIT_S": 12.0,
    "podwright.run.drive.UNANSWERED_LIMIT_S": 30.0,
    "podwright.run.strays.BARRED_S": 6.0,
    "podwright.run.removal.BARRED_S": 4.0,
    "podwright.run.mirror.CHECK_EVERY_S": 1.0,
}
"""of launchers: hours, minutes and a minute are seconds here"""


@dataclass(frozen=True)
class Hazard:
    """One kind of disturbance."""

    ways: tuple[Row, ...]
    """in one of which it comes; a pair of numbers in it stands for any number between the two, and `on` names the cloud of a way for one alone"""
    comes: tuple[str, ...] = ("phase", "step")
    """`before` the life, when the run enters a `phase` of it, or after a `step`"""
    phases: tuple[LifePhase, ...] = ()
    """in which it may come; () for all that are in every life"""
    calm: bool = False
    """whether it may come in a life whose cloud has no faults"""
    in_bucket: bool = False
    """whether it takes a run that is kept in a bucket"""


_TPU_CALLS = (
    "queued-resources create",
    "queued-resources describe",
    "queued-resources delete",
    "queued-resources list",
    "tpu-vm describe",
    "tpu-vm get-guest-attributes",
    "tpu-vm list",
)
_GKE_CALLS = (
    "container clusters describe",
    "container node-pools create",
    "container node-pools delete",
    "container node-pools list",
    "container operations list",
    "compute resource-policies create*",
    "compute resource-policies delete",
    "compute resource-policies list",
)
_ORPHANS = tuple(
    {"on": cloud, "verb": verb, "before": before, "delay_s": 1.5 if before else 0.0}
    for cloud, verbs in ((TPU_VM, _TPU_CALLS), (GKE, _GKE_CALLS))
    for verb in verbs
    for before in (True, False)
)
_OF_QUEUE = ["tpu.queuedResources.create", "tpu.queuedResources.delete"]
_LOOKS = ["tpu.queuedResources.get", "tpu.queuedResources.list", "tpu.nodes.get", "tpu.nodes.list"]
_TRAINED = (LifePhase.TRAINING, LifePhase.SAVING)

HAZARDS: dict[str, Hazard] = {
    "permission missing": Hazard(
        (
            {"on": TPU_VM, "permissions": _OF_QUEUE, "seconds": (3.0, 8.0)},
            {"on": TPU_VM, "permissions": _LOOKS, "seconds": (3.0, 8.0)},
            {"on": TPU_VM, "permissions": [*_OF_QUEUE, *_LOOKS], "seconds": (3.0, 8.0)},
            {"on": GKE, "permissions": ["container.clusters.update"], "seconds": (3.0, 8.0)},
            {"on": GKE, "permissions": ["container.clusters.get", "container.clusters.list"], "seconds": (3.0, 8.0)},
            {"on": GKE, "permissions": ["compute.resourcePolicies.list"], "seconds": (3.0, 8.0)},
            {"on": GKE, "permissions": [], "api_status": 403, "seconds": (1.0, 5.0)},
        ),
    ),
    "login expired": Hazard(
        (
            {"on": TPU_VM, "login_expired": True, "seconds": (3.0, 8.0)},
            {"on": TPU_VM, "account": "", "seconds": (1.0, 6.0)},
            {"on": GKE, "login_expired": True, "api_status": 401, "seconds": (3.0, 8.0)},
        ),
    ),
    "long lag": Hazard(
        (
            {"on": TPU_VM, "describe": 3.5, "list": 3.5, "environment": {"LAG_S": "4"}},
            {"on": GKE, "describe": 1.8, "list": 1.8, "environment": {"LAG_S": "2"}},
            {"on": TPU_VM, "describe": 0.5, "list": (4.0, 15.0)},
        ),
        comes=("before",),
    ),
    "slow deletion": Hazard(({"seconds": (4.0, 14.0)},), comes=("before",)),
    "failed deletion": Hazard(({"count": 1}, {"count": 2}), comes=("before",)),
    "orphaned call": Hazard(_ORPHANS, comes=("before",), calm=True),
    "bucket refuses": Hazard(
        (
            {"status": 403, "seconds": (1.0, 5.0)},
            {"status": 503, "seconds": (3.0, 8.0)},
            {"status": 429, "seconds": (3.0, 8.0)},
        ),
        in_bucket=True,
    ),
    "upload torn": Hazard(
        ({"tears": True, "count": 2}, {"tears": True, "count": 6}, {"cuts": True, "count": 3}), in_bucket=True
    ),
    "launcher frozen": Hazard(
        (
            {"seconds": (1.0, 5.0), "group": True, "meanwhile": "nothing"},
            {"seconds": (3.0, 8.0), "group": True, "meanwhile": "resume"},
            {"seconds": (3.0, 8.0), "group": False, "meanwhile": "resume"},
        ),
        calm=True,
    ),
    "frozen, and taken over": Hazard(
        ({"seconds": (3.0, 10.0), "group": True, "meanwhile": "second machine"},), calm=True, in_bucket=True
    ),
    "second machine": Hazard(({"first": "alive"}, {"first": "killed"}), calm=True, in_bucket=True),
    "Ctrl-C": Hazard(
        ({"times": 1, "group": True}, {"times": 1, "group": False}, {"times": 2, "group": True}), calm=True
    ),
    "SIGTERM": Hazard(({"signal": "SIGTERM"}, {"signal": "SIGTERM"}, {"signal": "SIGHUP"}), calm=True),
    "clock set": Hazard(tuple({"seconds": s} for s in (3600.0, -3600.0, 86400.0, -90.0, 45.0)), calm=True),
    "trainer crashes": Hazard(({"by": "exception"}, {"by": "SIGKILL"}), ("phase", "step"), _TRAINED, calm=True),
    "maintenance": Hazard(
        (
            {"on": TPU_VM, "state": "RESTARTING", "unhealthy_s": (0.0, 1.0), "away_s": (2.0, 9.0)},
            {"on": TPU_VM, "state": "REPAIRING", "unhealthy_s": (0.0, 1.0), "away_s": (2.0, 9.0)},
            {"on": TPU_VM, "state": "RESTARTING", "unhealthy_s": 0.5, "away_s": None},
            {"on": TPU_VM, "state": "REPAIRING", "unhealthy_s": 0.5, "away_s": None},
        ),
        ("step",),
    ),
    "second run": Hazard(
        ({"steps": 6},), phases=(LifePhase.REQUESTING, LifePhase.TRAINING), comes=("phase",), calm=True
    ),
}

SHORT: tuple[tuple[tuple[str, int, int], ...], ...] = (
    (
        ("orphaned call", 0, 2),
        ("failed deletion", 0, 0),
        ("slow deletion", 0, 0),
        ("Ctrl-C", 2, 0),
        ("login expired", 4, 0),
        ("launcher frozen", 6, 1),
        ("clock set", 8, 0),
        ("trainer crashes", 9, 0),
        ("SIGTERM", 11, 0),
    ),
    (
        ("long lag", 0, 0),
        ("second run", 1, 0),
        ("permission missing", 2, 1),
        ("bucket refuses", 4, 0),
        ("upload torn", 6, 0),
        ("second machine", 8, 0),
        ("frozen, and taken over", 10, 0),
        ("maintenance", 11, 2),
    ),
)
"""lives in which each kind comes: after which step, or 0 for before the life, and which of its ways"""


def names(cloud: str, *, bucket: bool, calm: bool) -> list[str]:
    """Of what may come in a life."""
    return [
        name
        for name, hazard in HAZARDS.items()
        if _ways(hazard, cloud) and (bucket or not hazard.in_bucket) and (hazard.calm or not calm)
    ]


def drawn(seed: int, cloud: str, *, bucket: bool, last_step: int) -> Disturbances:
    """Two for a life of an even seed, whose cloud has no faults, and three for one of an odd seed. Seeds go through the table in turn."""
    draw, calm = random.Random(f"{cloud} {seed}"), seed % 2 == 0
    possible = names(cloud, bucket=bucket, calm=calm)
    first = possible[seed // 2 % len(possible)]
    of_cloud = [name for name in possible if not HAZARDS[name].calm and name != first]
    others = draw.sample(of_cloud, 1) if of_cloud else []
    others += draw.sample([name for name in possible if name not in (first, *others)], 1)
    for name in (first, *others):
        yield one(draw, name, cloud, last_step)


def one(draw: random.Random, name: str, cloud: str, last_step: int) -> tuple[str, float, Row]:
    """As Script.cloud has it."""
    hazard = HAZARDS[name]
    how = {key: _value(draw, value) for key, value in draw.choice(_ways(hazard, cloud)).items() if key != "on"}
    match draw.choice(hazard.comes):
        case "before":
            return name, 0.0, how
        case "step":
            return name, SOON_S, how | {"after_step": draw.randint(1, last_step)}
    every = VM_PHASES if cloud == TPU_VM else GKE_PHASES
    phases = hazard.phases or [phase for phase in every if phase not in (*CLOUDY, *RARE)]
    return name, SOON_S, how | {"phase": draw.choice(phases), "wait_s": draw.choice((0.0, draw.uniform(0.0, 1.5)))}


def short(number: int, cloud: str) -> Disturbances:
    """Of one of SHORT, without what the cloud does not know."""
    for name, step, way in SHORT[number]:
        if ways := _ways(HAZARDS[name], cloud):
            how = {key: min(value) if isinstance(value, tuple) else value for key, value in ways[way].items()}
            how.pop("on", None)
            yield (name, SOON_S, how | {"after_step": step}) if step else (name, 0.0, how)


def _ways(hazard: Hazard, cloud: str) -> list[Row]:
    return [way for way in hazard.ways if way.get("on", cloud) == cloud]


def _value(draw: random.Random, value: Any) -> Any:
    return draw.uniform(*value) if isinstance(value, tuple) else value
