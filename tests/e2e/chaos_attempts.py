"""Whether what the attempts of a life did follows from its interruptions: why each began, from which step, and what was computed again."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.chaos_script import NOTICE_S

EVERY = 4
"""steps between two checkpoints"""
EARLIER_S = 5.0
"""before the submission of an attempt: what was typed or announced then may still end it"""


@dataclass(frozen=True)
class Circumstances:
    """Of the attempts of a life. Times are Unix seconds."""

    bucket: bool
    submitted: Sequence[float]
    """when each attempt was"""
    stops: Sequence[float]
    """when `podwright stop` was typed"""
    preemptions: Sequence[tuple[float, float]]
    """when their notices came, and the seconds until the machines were off"""
    could_bring: Callable[[float, float], bool]
    """whether a launcher lived between two times for long enough to bring a checkpoint from the hosts"""
    breaks: Sequence[float] = ()
    """when the trainer was killed, or its storage began or ceased to refuse requests"""


@dataclass
class Verdict:
    recomputed: int = 0
    explained: int = 0
    """steps that may be computed again: those after the newest checkpoint of each attempt that was interrupted"""
    faults: list[str] = field(default_factory=list)


def judge(facts: Sequence[dict[str, Any]], life: Circumstances) -> Verdict:
    """`facts` as chaos_trainer.py writes them. An attempt follows another one only after a stop or a preemption: a killed launcher is neither."""
    verdict = Verdict()
    by_attempt = {n: [f for f in facts if f["attempt"] == n] for n in sorted({f["attempt"] for f in facts})}
    by_attempt = {n: rows for n, rows in by_attempt.items() if not _refused(rows, life)}
    taken = [f["step"] for f in facts if f["what"] == "step"]
    verdict.recomputed = len(taken) - len(set(taken))
    saved: list[dict[str, Any]] = []
    for (n, before), (m, after) in itertools.pairwise(by_attempt.items()):
        saved += [f for f in before if f["what"] == "saved"]
        if before[0]["what"] != "started" or after[0]["what"] != "started":
            verdict.faults.append(f"attempts {n} and {m} began with {before[0]} and {after[0]}")
            continue
        done = max(f["step"] for f in before if f["what"] in ("started", "step"))
        kept, faults = _kept(n, before, saved, after[0]["time"], life)
        verdict.faults += faults
        if not kept <= (begins := after[0]["step"]) <= done:
            verdict.faults.append(f"attempt {m} began at step {begins}; {n} had come to {done} and must leave {kept}")
        verdict.explained += done - kept
    if verdict.recomputed > verdict.explained:
        verdict.faults.append(f"{verdict.recomputed} steps were recomputed, of which {verdict.explained} may be")
    if life.bucket and verdict.explained > EVERY * (len(by_attempt) - 1):
        verdict.faults.append(f"{verdict.explained} steps were lost in {len(by_attempt) - 1} interruptions")
    return verdict


def _refused(own: Sequence[dict[str, Any]], life: Circumstances) -> bool:
    """Whether an attempt ended before it had read its checkpoint, while its storage refused requests: it has nothing and loses nothing."""
    since = life.submitted[own[0]["attempt"] - 1] - EARLIER_S
    broken = any(since < at < own[0]["time"] for at in life.breaks)
    return broken and own[0]["what"] == "ended" and own[0].get("ending") == "STORAGE_UNREACHABLE"


def _kept(
    attempt: int, own: Sequence[dict[str, Any]], saved: Sequence[dict[str, Any]], until: float, life: Circumstances
) -> tuple[int, list[str]]:
    """The step that must be left of an attempt with the facts `own` when the next one starts at the time `until`; and what is wrong.

    Of all that was `saved` so far it is the newest in a bucket. Without one it is that which the attempt began with, or the newest of its own
    that a launcher could bring before the machines went.
    """
    last, faults = own[-1], list[str]()
    since = life.submitted[attempt - 1] - EARLIER_S
    robbed = [(at, notice_s) for at, notice_s in life.preemptions if since < at < until]
    stopped = any(since < at < until for at in life.stops)
    broken = last["what"] == "crashed" or any(since < at < until for at in life.breaks)
    orderly = last["what"] == "ended"
    if not robbed and not stopped and not broken:
        faults.append(f"an attempt followed although nothing interrupted attempt {attempt}")
    if not robbed and not broken and not orderly:
        faults.append(f"attempt {attempt} was stopped and did not save: {last}")
    # one that has saved may be killed while the bucket refuses its last records
    all_saved = last["what"] == "saved" and last["step"] == max(f["step"] for f in own)
    if life.bucket and robbed and not broken and min(robbed)[1] >= NOTICE_S and not orderly and not all_saved:
        faults.append(f"attempt {attempt} did not save within a notice of {NOTICE_S} s: {last}")
    if not life.bucket and robbed:
        brought = [f for f in own if f["what"] == "saved" and life.could_bring(f["time"], sum(min(robbed)))]
        saved = [own[0], *brought]
    return max((f["step"] for f in saved), default=0), faults
