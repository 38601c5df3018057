"""What the fold of a journal and `next_action` make of recorded events; the only file of the corpus that calls inner functions of the product."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from podwright.run import journal
from podwright.run.decide import Observed, next_action
from podwright.targets.base import Process, Traits
from podwright.targets.machines import Allocation, AllocationState

SEEN: tuple[dict[str, Any], ...] = (
    {},
    {"handle_changed": True},
    {"stopping_s": 1e4},
    {"unchanged_s": 1e5},
    {"unchanged_s": 700.0, "silent_s": 700.0, "unheard_s": 700.0},
)
"""beside process and machines"""
LATER_S = (1.0, 90.0, 1e5)
"""after the newest event"""
CREATED = Traits(zones=("east-a", "east-b", "west-a"), silence_s=600.0, place_patience_s=1800.0)
"""of a target whose machines are requested"""


def decisions(events: Sequence[dict[str, Any]]) -> list[str]:
    """After each event: phase, attempt and ending, how often each action is decided, and a checksum of all decisions in order."""
    traits = CREATED if any(event["event"].startswith("allocation ") for event in events) else Traits()
    state, lines = journal.RunState(), []
    for event in events:
        state = journal.fold_into(state, event)
        decided = [
            next_action(state, Observed(process, Allocation(cloud), **seen), traits, event["time"] + later).value
            for process, cloud, seen, later in itertools.product(Process, AllocationState, SEEN, LATER_S)
            if state.allocation is not None or cloud is AllocationState.GONE
        ]
        counts = ", ".join(f"{act} {number}" for act, number in sorted(Counter(decided).items()))
        facts = f"{state.phase.value}, attempt {state.attempt}, {state.ending.value if state.ending else 'no ending'}"
        lines.append(f"{facts}: {counts}; {zlib.crc32(' '.join(decided).encode()):08x}")
    return lines
