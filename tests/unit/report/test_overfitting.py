"""Curves that are memorised or leaked are called so; healthy ones never are."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from podwright.report.overfitting import suspicions

SOURCE_64_DEVICES = (12.153, 12.154, 8.509, 5.272, 2.599, 0.695, 0.213)  # on 448 rows
SOURCE_8_DEVICES = (
    12.586,
    12.584,
    12.530,
    11.992,
    8.0,
    5.0,
    2.5,
    1.2,
    0.4,
    0.078,
)  # steps 5 to 9 of ten are not written down there


def steps(*losses: float) -> list[dict[str, Any]]:
    return [{"step": n, "loss": loss} for n, loss in enumerate(losses, 1)]


def _tested(*found: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"when": "before" if step == 0 else "during", "step": step, "loss": loss} for step, loss in found]


def falling(
    first: float, floor: float, num: int, fast: float, noise: float = 0.03, seed: int = 0
) -> list[dict[str, Any]]:
    r = random.Random(seed)
    return steps(*(floor + (first - floor) * math.exp(-fast * n / num) + r.gauss(0, noise) for n in range(num)))


@pytest.mark.parametrize("losses", [SOURCE_64_DEVICES, SOURCE_8_DEVICES])
@pytest.mark.parametrize("epochs", [None, 0.2, 1.0, 50.0])
def test_the_curves_of_the_source_are_called_what_they_are(losses: tuple[float, ...], epochs: float | None) -> None:
    (said,) = suspicions(steps(*losses), [], epochs)
    assert f"fell from {losses[0]:.2f} to {losses[-1]:.2f} nats in {len(losses)} steps" in said
    assert "the data is memorized" in said and "leak" in said


def test_a_fast_fall_is_seen_when_the_run_goes_on_and_when_held_out_documents_leak_too() -> None:
    curve = steps(*SOURCE_64_DEVICES, *[0.05] * 200)
    assert "in 30 steps" in suspicions(curve, _tested((0, 12.1), (207, 0.05)), 1.0)[0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("first", "floor", "num", "fast"),
    [
        (12.0, 2.4, 2000, 30.0),  # a large vocabulary, web text
        (12.0, 3.9, 40, 4.0),  # the first steps of it, with a high learning rate
        (5.56, 0.6, 200, 8.0),  # bytes of made problems: low by nature, and fast
        (5.56, 0.3, 12, 6.0),  # a smoke run of them
        (12.0, 0.7, 400, 8.0),  # templates in a large vocabulary
    ],
)
def test_healthy_curves_are_left_alone(first: float, floor: float, num: int, fast: float, seed: int) -> None:
    curve = falling(first, floor, num, fast, seed=seed)
    noise = random.Random(seed)
    held_out = [
        (n, curve[max(0, n - 1)]["loss"] + noise.gauss(0.02, 0.04)) for n in range(0, num + 1, max(1, num // 8))
    ]
    for epochs in (None, 0.5, 1.0, 3.5):
        assert suspicions(curve, _tested(*held_out), epochs) == []
        assert suspicions(curve, [], epochs) == []


def test_training_loss_far_below_held_out_loss_after_several_passes() -> None:
    curve, held_out = falling(12.0, 1.6, 1000, 12.0), _tested((0, 12.0), (500, 3.3), (1000, 3.4))
    (said,) = suspicions(curve, held_out, 6.0)
    assert "far below the held-out loss (3.40) after 6.0 epochs" in said
    assert "far below" in suspicions(curve, held_out, None)[0]
    ten = steps(*(3.0 - 0.2 * n for n in range(10)))
    assert "The training loss (1.20 nats) is far below" in suspicions(ten, _tested((10, 2.5)), 6.0)[0], (
        "of the last step"
    )
    assert suspicions(curve, held_out, 0.9) == [], "what was seen once is no better known than what was held out"


def test_held_out_loss_that_rises_while_training_goes_on() -> None:
    curve = steps(*(4.0 - 0.002 * n for n in range(500)))
    (said,) = suspicions(curve, _tested((0, 4.0), (250, 3.15), (500, 3.3)), 3.0)
    assert "rises (from 3.15 nats at step 250 to 3.30) while the training loss still falls after 3.0 epochs" in said
    flat = steps(*([3.2] * 500))
    assert suspicions(flat, _tested((250, 3.15), (500, 3.3)), 3.0) == [], "both may rise for another reason"


def test_many_passes_without_held_out_documents() -> None:
    curve = falling(12.0, 0.5, 400, 9.0)
    (said,) = suspicions(curve, [], 40.0)
    assert "after 40.0 epochs, and there is no held-out loss" in said
    assert suspicions(curve, _tested((400, 0.52)), 40.0) == [], "held-out documents say that it learned"
    assert suspicions(curve, [], 3.9) == []


def test_curves_with_holes() -> None:
    assert suspicions([], [], None) == []
    assert suspicions([{"step": 1, "loss": None}, {"step": 2}], _tested((2, math.nan)), None) == []
    assert suspicions([{"step": 1, "loss": math.nan}, {"step": 2, "loss": 12.0}], [{"step": 2}], 9.0) == []
