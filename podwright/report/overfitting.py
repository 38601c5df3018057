"""Whether a training curve looks memorised or leaked instead of learned: by the curve alone, and against held-out documents.

Each rule is one that no healthy run meets: language of a large vocabulary is not learned in a few dozen steps, and
documents that are seen once are as new to the model as held-out ones.
"""

from __future__ import annotations

import math
import statistics

from podwright.report.records import known, number
from podwright.report.words import Sentence
from podwright.rundir import Record

LARGE = math.log(8192)  # nats: a loss at or above this is the guess of a model of that vocabulary or a larger one
KNOWN_BY_HEART = 1.0  # nats a token: far below what the best models reach on text with such a vocabulary (about 2)
FEW_STEPS = 30  # from a guess to that; a warm-up alone takes longer
AS_GOOD_AS_NEW = 4.0  # epochs that still teach (arXiv 2305.16264)
GAP = 0.5  # nats between training and held-out loss
RISE = 0.1  # nats that the held-out loss rises from its lowest while the training loss goes on falling


def suspicions(steps: list[Record], tests: list[Record], epochs: float | None) -> list[str]:
    """What about the curve no healthy run has, in a sentence; [] when there is nothing.

    `epochs`: at most; None if nobody knows.
    """
    losses = []
    for step in steps:
        loss = number(step.get("loss"))
        if loss is not None:
            losses.append((step["step"], loss))
    if not losses:
        return []
    sentence = _fast(losses) or _apart(steps, tests, epochs) or _by_heart(losses, tests, epochs)
    return [sentence] if sentence else []


def _fast(losses: list[tuple[int, float]]) -> str:
    begin, first = losses[0]
    early = [(step, loss) for step, loss in losses if step - begin < FEW_STEPS]
    if first < LARGE or min(loss for _, loss in early) >= KNOWN_BY_HEART:
        return ""
    step, last = early[-1]
    return Sentence(
        "The training loss fell from {first:.2f} to {last:.2f} nats in {n} steps. No model learns that fast: "
        "the data is memorized (too little of it, or repeated rows), or the targets leak into the input.",
        first=first,
        last=last,
        n=step - begin + 1,
    )


def _by_heart(losses: list[tuple[int, float]], tests: list[Record], epochs: float | None) -> str:
    """Where held-out documents cannot tell: many passes, and a loss that text of such a vocabulary does not have."""
    last = statistics.fmean(loss for _, loss in losses[-max(1, len(losses) // 10) :])
    if _later(tests) or epochs is None or epochs <= AS_GOOD_AS_NEW or losses[0][1] < LARGE or last >= KNOWN_BY_HEART:
        return ""
    return (
        f"The training loss is {last:.2f} nats after {epochs:.1f} epochs, and there is no held-out loss. "
        "The data has probably been memorized."
    )


def _apart(steps: list[Record], tests: list[Record], epochs: float | None) -> str:
    """Training loss far below held-out loss, or held-out loss that rises, when documents were seen more than once."""
    later = _later(tests)
    if not later or (epochs is not None and epochs <= 1.0):
        return ""
    step, held_out = later[-1]
    trained = _around(steps, step)
    if trained is None:
        return ""
    passes = "" if epochs is None else f" after {epochs:.1f} epochs"
    if held_out - trained > GAP:
        return Sentence(
            "The training loss ({trained:.2f} nats) is far below the held-out loss ({tested:.2f}){passes}: "
            "the model memorizes its training data.",
            trained=trained,
            tested=held_out,
            passes=passes,
        )
    best_step, best = min(later, key=lambda point: point[1])
    then = _around(steps, best_step)
    if then is not None and held_out - best > RISE and then - trained > RISE:
        return Sentence(
            "The held-out loss rises (from {best:.2f} nats at step {step} to {tested:.2f}) while the training loss still falls"
            "{passes}: the model overfits from there on. Use more data or fewer steps.",
            best=best,
            step=best_step,
            tested=held_out,
            passes=passes,
        )
    return ""


def _later(tests: list[Record]) -> list[tuple[int, float]]:
    """(step, loss) of each test but that of the random weights."""
    later = []
    for test in tests:
        loss = number(test.get("loss"))
        if test["step"] and loss is not None:
            later.append((test["step"], loss))
    return later


def _around(steps: list[Record], step: int) -> float | None:
    """Mean training loss over the tenth of the steps that led up to `step`."""
    values = known([s for s in steps if s["step"] <= step], "loss")
    return statistics.fmean(values[-max(1, len(values) // 10) :]) if values else None
