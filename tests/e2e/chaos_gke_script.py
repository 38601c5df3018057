"""What happens in a life of a run on GKE under disturbances, all of it drawn from a seed: where its node pools come from, when launchers are
killed, and which faults the cloud, the cluster and the bucket have."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.e2e import chaos_hazards
from tests.e2e.chaos_phases import CLOUDY, GKE_PHASES, LifePhase
from tests.e2e.chaos_script import (
    CLOUDY_EVENTS,
    EVENTS,
    FAULTS,
    NOTICE_S,
    Kill,
    Script,
    at_event,
    drawn_kill,
    with_verbs,
)

Row = dict[str, Any]
CAPACITIES = ("reserved", "spot", "flex-start", "on-demand")
SHAPES = ("tpu7x-2x2x2", "tpu7x-2x2x2", "2x tpu7x-2x2x2")
"""two hosts, with a workload policy; two slices of that"""
STEPS = 16
LAST_PREEMPTED = 12
"""the last step after which nodes are taken"""
CALLS = (
    "container clusters describe",
    "container node-pools list",
    "container node-pools create",
    "container node-pools delete",
    "container operations list",
    "compute resource-policies create*",
    "compute resource-policies list",
    "compute resource-policies delete",
)
REQUESTS: tuple[Row, ...] = (
    {"kind": "http", "status": 429},
    {"kind": "http", "status": 500},
    {"kind": "http", "status": 503, "verb": "create"},
    {"kind": "http", "status": 503, "verb": "delete"},
    {"kind": "lost", "verb": "create"},
    {"kind": "lost", "verb": "create", "resource": "jobsets"},
    {"kind": "lost", "verb": "patch"},
    {"kind": "lost", "verb": "delete"},
    {"kind": "reset", "verb": "get"},
    {"kind": "reset", "verb": "list"},
    {"kind": "slow", "verb": "create", "delay_s": 2.0},
    {"kind": "slow", "verb": "list", "delay_s": 1.0},
    {"kind": "cut", "resource": "pods/log", "lines": 3},
)
"""faults of the API server, for some of its next calls"""
REFUSALS: dict[str, tuple[Row, ...]] = {
    "reserved": (
        {"kind": "later"},
        {"kind": "later", "fill_after_s": 2.0},
        {"kind": "reservation-short"},
        {"kind": "reservation-exceeded"},
    ),
    "spot": ({"kind": "stockout"}, {"kind": "zone"}, {"kind": "atomic-resize"}),
    "on-demand": ({"kind": "stockout"}, {"kind": "zone-capacity"}, {"kind": "exhausted"}),
    "flex-start": (),
}
"""of a place, for the first pool that is requested there: those that fill themselves later, leave a pool in ERROR behind, or are refused at once"""
ZONES = 3
"""of the target; a run waits for capacity, and does not try elsewhere, where all have refused"""


@dataclass(frozen=True)
class BriefLife:
    capacity: str
    shape: str
    zones: int
    kills: tuple[str, ...]
    """MOMENT, or MOMENT > VERB with what is typed next if it is not resume; a moment is a phase, or before:EVENT or after:EVENT of the journal"""
    cloud: tuple[tuple[str, float, Row], ...]
    """as in Script"""


BRIEF = (
    BriefLife(
        "on-demand",
        SHAPES[2],
        ZONES,
        (
            "preparing the run",
            "before:allocation requested > stop",
            "creating",
            "after:submitting",
            "training",
            "after:allocation deleting",
        ),
        (
            ("fault", 0.0, {"verb": "container node-pools create", "calls": 1, "kind": "killed"}),
            ("lag", 0.0, {"seconds": 0.2}),
            ("bucket", 0.5, {"status": 503, "count": 2}),
        ),
    ),
    BriefLife(
        "spot",
        SHAPES[0],
        1,
        (
            "after:created",
            "before:allocation refused",
            "deleting what was refused > clean",
            "cleaning",
            "waiting for capacity",
            "booting",
            "before:submitted",
            "saving",
            "after:retrying",
            "releasing",
            "deleting",
        ),
        (
            ("refusal", 0.0, {"kind": "zone"}),
            ("busy", 0.0, {"seconds": 1.0}),
            ("evicted", 0.5, {"after_step": 9}),
            ("evicted", 0.6, {"after_step": 13}),
        ),
    ),
    BriefLife(
        "reserved",
        SHAPES[0],
        ZONES,
        (
            "requesting",
            "after:allocation ready",
            "before:ended",
            "preempted",
            "after:allocation gone",
            "replacing",
            "reporting",
        ),
        (
            ("exhausted", 0.0, {}),
            ("request", 0.5, {"kind": "lost", "verb": "create", "resource": "jobsets", "calls": 1}),
            ("nodes lost", 0.6, {"notice_s": 0.0, "after_step": 5}),
        ),
    ),
    BriefLife(
        "flex-start",
        SHAPES[0],
        ZONES,
        (
            "after:allocation requested > clean",
            "submitting",
            "starting > stop",
            "stopping",
            "before:allocation lost",
            "collecting",
            "before:released",
            "after:reported",
        ),
        (
            ("pool deleted", 0.5, {"after_step": 12}),
            ("unreachable", 0.6, {"seconds": 0.5}),
        ),
    ),
    BriefLife("spot", SHAPES[0], 1, (), tuple(chaos_hazards.short(0, chaos_hazards.GKE))),
    BriefLife("on-demand", SHAPES[0], 1, (), tuple(chaos_hazards.short(1, chaos_hazards.GKE))),
)
"""together all phases, all lines of the journal around which launchers are killed, and all kinds of faults"""


def of_gke(seed: int) -> Script:
    """Seeds go through the phases and the events of the journal in turn; odd ones have faults of the cloud."""
    draw, with_cloud = random.Random(seed), seed % 2 == 1
    phases = GKE_PHASES if with_cloud else tuple(phase for phase in GKE_PHASES if phase not in CLOUDY)
    wanted = [phases[seed // 2 % len(phases)], *draw.choices(phases, k=draw.choice((1, 1, 2)))]
    kills = [drawn_kill(draw, phase, draw.choice((0.0, draw.uniform(0.0, 1.5)))) for phase in wanted]
    kills.append(drawn_kill(draw, "", draw.uniform(0.0, 20.0)))
    events = (*EVENTS, *CLOUDY_EVENTS) if with_cloud else EVENTS
    kills.append(at_event(draw, events[seed // 2 % len(events)]))
    capacity = CAPACITIES[seed // 2 % len(CAPACITIES)]
    disturbances = list(_disturbances(draw, wanted, capacity)) if with_cloud else []
    kills = list(with_verbs(kills, draw))
    if with_cloud and draw.random() < 0.2:
        disturbances.append(("pool deleted", draw.uniform(2.0, 12.0), {"after_step": draw.randint(1, LAST_PREEMPTED)}))
    disturbances += chaos_hazards.drawn(seed, chaos_hazards.GKE, bucket=True, last_step=LAST_PREEMPTED)
    few = LifePhase.WAITING in wanted and not any(what == "exhausted" for what, _, _ in disturbances)
    shape, zones = SHAPES[seed % len(SHAPES)], 1 if few else ZONES
    return Script(seed, True, tuple(kills), tuple(disturbances), capacity, shape, zones)


def of_gke_briefly(number: int) -> Script:
    """One of BRIEF; the same number draws the same delays."""
    draw, life = random.Random(number), BRIEF[number]
    kills = tuple(_kill_of(draw, text) for text in life.kills)
    return Script(number, True, kills, life.cloud, life.capacity, life.shape, life.zones)


def _kill_of(draw: random.Random, text: str) -> Kill:
    """`text` as in BriefLife."""
    moment, _, verb = text.partition(" > ")
    event = moment if ":" in moment else ""
    pause_s = draw.choice((0.0, draw.uniform(0.0, 1.0)))
    return Kill("" if event else moment, draw.uniform(0.0, 0.2), draw.random() < 0.5, pause_s, verb or "resume", event)


def _disturbances(draw: random.Random, wanted: list[LifePhase], capacity: str) -> Iterator[tuple[str, float, Row]]:
    for _ in range(draw.randint(0, 2)):
        yield "fault", 0.0, {"verb": draw.choice(CALLS), "calls": draw.choice((1, 1, 2, 5)), **draw.choice(FAULTS)}
    for _ in range(draw.randint(0, 3)):
        yield "request", draw.uniform(0.5, 15.0), {"calls": draw.choice((1, 1, 2, 5)), **draw.choice(REQUESTS)}
    if draw.random() < 0.3:
        yield "lag", 0.0, {"seconds": draw.uniform(0.1, 0.6)}
    refused = bool({LifePhase.WAITING, LifePhase.DISCARDING} & set(wanted))
    if REFUSALS[capacity]:
        for _ in range(max(draw.choice((0, 1, 1, 2)), refused)):
            yield "refusal", 0.0, draw.choice(REFUSALS[capacity])
        if draw.random() < 0.3:
            yield "exhausted", 0.0, {}
    if draw.random() < 0.3:
        yield "busy", draw.choice((0.0, draw.uniform(0.5, 10.0))), {"seconds": draw.uniform(1.0, 4.0)}
    robbed = bool({LifePhase.PREEMPTED, LifePhase.REPLACING} & set(wanted))
    for number in range(max(draw.choice((0, 1, 1, 2)), robbed)):
        step = {"after_step": draw.randint(1, LAST_PREEMPTED)} if number == 0 or draw.random() < 0.5 else {}
        if draw.random() < 0.2:
            yield "evicted", draw.uniform(2.0, 12.0), step
        else:
            how = {"notice_s": draw.choice((0.0, 0.0, 1.0, NOTICE_S)), "all": draw.random() < 0.6}
            back_s = draw.choice((None, None, 2.0))
            yield "nodes lost", draw.uniform(2.0, 12.0), how | {"back_s": back_s} | step
    if draw.random() < 0.3:
        yield "unreachable", draw.uniform(1.0, 12.0), {"seconds": draw.uniform(0.5, 4.0)}
    if draw.random() < 0.3:
        yield "bucket", draw.uniform(0.0, 12.0), {"status": draw.choice((429, 503)), "count": draw.randint(1, 5)}
