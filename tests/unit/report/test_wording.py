"""Figures, durations and endings in words."""

from __future__ import annotations

from pathlib import Path

import made_runs
import pytest

from podwright.report import wording
from podwright.report.result import result


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (0.0, "0"), (7, "7"), (12345, "12,345"), (1.0, "1.00"), (0.08862, "0.0886"), (3836.4, "3,836"),
     (-0.0153, "−0.0153"), (99.96, "100"), (-99.96, "−100"), (99.94, "99.9"),
     (float("nan"), "–"), (3e-7, "3.00e-07"), ("text", "–"), (True, "–")],
)  # fmt: skip
def test_figure(value: object, text: str) -> None:
    assert wording.figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (3.04, "3.0 s"), (59.99, "60.0 s"), (348, "5 min 48 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds: float | None, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("gain", "text"), [(0.448, "+44.8 points"), (-0.02, "−2.0 points"), (0.0, "0.0 points"), (None, "–")]
)
def test_points(gain: float | None, text: str) -> None:
    assert wording.points(gain) == text


@pytest.mark.parametrize(
    ("after", "test", "headline", "paired"),
    [
        (180, (20, 7, 0.019), "36.0 % of 500 test questions correctly, 2.6 points more than before.",
         "is significant at 5 % (exact McNemar test, p"),
        (170, (20, 17, 0.74), "34.0 % of 500 test questions correctly, 0.6 points more than before.", "is not significant at 5 %"),
        (137, (0, 30, 1e-9), "27.4 % of 500 test questions correctly, 6.0 points less than before.", "p < 0.0001"),
        (167, (0, 0, 1.0), "33.4 % of 500 test questions correctly, as many as before.", "No answer changed"),
    ],
)  # fmt: skip
def test_what_a_run_came_to(
    tmp_path: Path, after: int, test: tuple[int, int, float], headline: str, paired: str
) -> None:
    made = (
        made_runs.Made(tmp_path / "made")
        .start()
        .evaluation("before", 0, 167)
        .grpo(1, 5, 5)
        .evaluation("after", 5, after)
    )
    made.event("comparison", gained=test[0], lost=test[1], p_value=test[2])
    got = result(made.run)
    assert wording.headline(got) == f"After 5 GRPO steps the model answers {headline}"
    assert paired in wording.paired(got)


def test_stopped_runs_say_how_far_they_came(tmp_path: Path) -> None:
    def of(make) -> str:
        return wording.headline(result(make(tmp_path / make.__name__)))

    assert of(made_runs.empty) == "The run has not reached its first GRPO step. No training step was completed."
    assert of(made_runs.warm_only) == "The run has not reached its first GRPO step. Its accuracy was not tested."
    assert of(made_runs.not_finite).startswith(
        "The run reached a value that is not finite (NaN or infinity) after 21 of 80 GRPO steps. In the last test, before GRPO,"
    )


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "853,248"),
        ({"num_trained_params": 853_248}, "853,248"),
        ({"num_trained_params": 4_096}, "853,248 frozen, 4,096 trained in adapters"),
        ({"num_params": None}, "–"),
    ],
)
def test_parameters_say_what_is_trained(tmp_path: Path, counts: dict[str, int], text: str) -> None:
    made = made_runs.Made(tmp_path / "made").start().event("environment", **(made_runs.ENVIRONMENT | counts))
    assert wording.parameters(result(made.run)) == text


@pytest.mark.parametrize("text", ["a\u202eb", "\x00", "\x1b[31m", "\ud800", "\u200b"])
def test_characters_that_hide_or_turn_text_are_spelled_out(text: str) -> None:
    shown = wording.visible(text)
    assert "\\u" in shown and shown.isprintable()
    shown.encode()


def test_very_long_text_says_how_much_is_left_out() -> None:
    assert wording.visible("x" * 4000).endswith("x … (2,500 more characters)")
