"""What happens in a life of a run under disturbances, all of it drawn from a seed: when launchers are killed, what is typed then, and
which faults the cloud has."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.e2e import chaos_hazards
from tests.e2e.chaos_phases import CLOUDY, VM_PHASES, LifePhase

NOTICE_S = 5.0
"""of a preemption, in which what was trained is saved in the bucket"""
LAST_PREEMPTED = 20
"""the last step after which a slice is preempted"""
EVENTS = (
    "created",
    "allocation requested",
    "allocation ready",
    "submitting",
    "submitted",
    "ended",
    "released",
    "allocation deleting",
    "allocation gone",
    "reported",
)
"""of the journal, in every life"""
CLOUDY_EVENTS = ("allocation refused", "allocation lost", "retrying")
VERBS = (
    "queued-resources create",
    "queued-resources describe",
    "queued-resources delete",
    "tpu-vm describe",
    "tpu-vm get-guest-attributes",
)
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "cut", "keep": 0},
    {"kind": "cut"},
    {"kind": "killed"},
    {"kind": "timeout"},
    {"status": 429},
    {"status": 500, "before": False},
    {"status": 503},
    {"status": 503, "kind": "http"},
    {"delay_s": 1.5},
    {"delay_s": 3.0, "kind": "killed"},
)
TRAINERS = (
    LifePhase.TRAINING,
    LifePhase.SAVING,
    LifePhase.STARTING,
    LifePhase.CHECKING,
    LifePhase.SHIPPING,
    LifePhase.COLLECTING,
)
CALM = tuple(phase for phase in VM_PHASES if phase not in CLOUDY)


@dataclass(frozen=True)
class Kill:
    """SIGKILL for a launcher `delay_s` seconds after the run has entered a phase, or when it leaves it; with `phase` "" `delay_s` seconds
    after the start of the life. For its process group too with `group`."""

    phase: str
    delay_s: float
    group: bool
    pause_s: float
    """until the next launcher starts"""
    following: str
    """the verb that is typed next; `resume` follows `stop` and `clean`"""
    event: str = ""
    """`before:EVENT` or `after:EVENT`: around the line of the journal, in place of a time"""


@dataclass(frozen=True)
class Script:
    """Of one life, all of it drawn from the seed."""

    seed: int
    bucket: bool
    """whether checkpoints and records are kept in a bucket"""
    kills: tuple[Kill, ...]
    cloud: tuple[tuple[str, float, dict[str, Any]], ...]
    """(what, from when on in seconds from the start of the life or 0 for before it, how and `after_step` of which number)"""
    capacity: str = ""
    """on GKE, how node pools are paid for"""
    shape: str = ""
    """on GKE, the slice"""
    zones: int = 0
    """on GKE, how many the target has"""

    @classmethod
    def of(cls, seed: int) -> "Script":
        """Seeds go through the phases in turn; odd ones have faults of the cloud, and every second pair a bucket."""
        draw, with_cloud = random.Random(seed), seed % 2 == 1
        phases = VM_PHASES if with_cloud else CALM
        wanted = [phases[seed // 2 % len(phases)], *draw.choices(phases, k=draw.choice((1, 2, 2, 3)))]
        kills = [drawn_kill(draw, phase, draw.choice((0.0, draw.uniform(0.0, 1.5)))) for phase in wanted]
        kills.append(drawn_kill(draw, "", draw.uniform(0.0, 25.0)))
        disturbances = list(_disturbances(draw, wanted)) if with_cloud else []
        kills = list(with_verbs(kills, draw))
        events, bucket = (*EVENTS, *CLOUDY_EVENTS) if with_cloud else EVENTS, seed % 4 >= 2
        kills.append(at_event(draw, events[seed // 2 % len(events)]))
        disturbances += chaos_hazards.drawn(seed, chaos_hazards.TPU_VM, bucket=bucket, last_step=LAST_PREEMPTED)
        return cls(seed, bucket, tuple(kills), tuple(disturbances))

    @classmethod
    def of_training(cls, seed: int) -> "Script":
        """For the real trainer, which takes minutes: two phases of its own, an instant of the minutes, and a preemption with odd seeds."""
        draw, with_cloud = random.Random(seed), seed % 2 == 1
        phases = (*TRAINERS, LifePhase.PREEMPTED, LifePhase.REPLACING) if with_cloud else TRAINERS
        wanted = [phases[seed // 2 % len(phases)], draw.choice(phases)]
        kills = [drawn_kill(draw, phase, draw.uniform(0.0, 5.0), ("resume",)) for phase in wanted]
        kills.append(drawn_kill(draw, "", draw.uniform(0.0, 120.0), ("resume", "stop")))
        cloud = (("preempt", 1.0, {"notice_s": draw.choice((0.0, 30.0))}),) if with_cloud else ()
        return cls(seed, True, tuple(kills), cloud)

    @classmethod
    def undisturbed(cls) -> "Script":
        return cls(0, True, (), ())


def drawn_kill(
    draw: random.Random, phase: str, delay_s: float, verbs: tuple[str, ...] = (*["resume"] * 6, "stop", "clean")
) -> Kill:
    following = draw.choice(verbs)
    return Kill(phase, delay_s, draw.random() < 0.5, draw.choice((0.0, draw.uniform(0.0, 3.0))), following)


def at_event(draw: random.Random, event: str, verbs: tuple[str, ...] = (*["resume"] * 6, "stop", "clean")) -> Kill:
    kill = drawn_kill(draw, "", 0.0, verbs)
    return Kill("", 0.0, False, kill.pause_s, kill.following, f"{draw.choice(('before', 'after'))}:{event}")


def with_verbs(kills: list[Kill], draw: random.Random) -> Iterator[Kill]:
    """With the verbs typed in which `kills` are to come, before them."""
    for phase, verb in ((LifePhase.STOPPING, "stop"), (LifePhase.CLEANING, "clean")):
        if any(kill.phase == phase for kill in kills) and not any(kill.following == verb for kill in kills):
            before = draw.choice((LifePhase.TRAINING, LifePhase.SAVING, LifePhase.STARTING))
            before = (
                before if verb == "stop" else draw.choice((LifePhase.CREATING, LifePhase.BOOTING, LifePhase.RELEASING))
            )
            yield Kill(before, 0.3, draw.random() < 0.5, 0.5, verb)
    yield from kills


def _disturbances(draw: random.Random, wanted: list[LifePhase]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    for _ in range(draw.randint(1, 4)):
        verb, calls = draw.choice(VERBS), draw.choice((1, 1, 2, 5))
        yield "fault", 0.0, {"verb": verb, "calls": calls, **draw.choice(FAULTS)}
    if draw.random() < 0.3:
        yield "lag", 0.0, {"seconds": draw.uniform(0.1, 0.8)}
    if draw.random() < 0.3:
        yield "stockout", 0.0, {}
    if LifePhase.WAITING in wanted or draw.random() < 0.1:
        yield "no capacity", 0.0, {"seconds": draw.uniform(4.0, 12.0)}
    robbed = bool({LifePhase.PREEMPTED, LifePhase.REPLACING} & set(wanted))
    for number in range(max(draw.choice((0, 0, 1, 1, 2)), robbed)):
        if (robbed and number == 0) or draw.random() < 0.6:
            how = {"notice_s": draw.choice((0.0, 0.0, 1.0, NOTICE_S)), "after_step": draw.randint(1, LAST_PREEMPTED)}
        else:
            how = {"notice_s": draw.choice((0.0, 1.0, NOTICE_S))}
        yield "preempt", draw.uniform(2.0, 20.0), how
    if draw.random() < 0.3:
        yield "unreachable", draw.uniform(2.0, 15.0), {"worker": draw.randrange(4), "seconds": draw.uniform(1.0, 6.0)}
    if draw.random() < 0.3:
        yield "bucket", draw.uniform(0.0, 15.0), {"status": draw.choice((429, 503)), "count": draw.randint(1, 5)}
