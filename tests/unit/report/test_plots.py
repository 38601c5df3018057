"""Plots are small, valid and the same each time, wherever the run stopped."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import made_runs
import pytest

from podwright.report import kinds, records
from podwright.report.figures import series, style
from podwright.report.figures.drawing import Plot
from podwright.report.result import of_records
from podwright.rundir import RunDir

ALL = ["accuracy", "reward", "kl", "completion-length", "step-time", "loss", "warm_start-loss", "entropy"]


def draw(run: RunDir) -> list[Plot]:
    read = records.read(run)
    return kinds.plots(read, of_records(run, read))


def test_every_plot_is_small_valid_and_the_same_each_time(tmp_path: Path) -> None:
    run = made_runs.finished(tmp_path / "made", steps=500)
    first, again = draw(run), draw(run)
    assert [p.name.replace("warm-start", "warm_start") for p in first] == ALL
    assert [p.svg for p in first] == [p.svg for p in again]
    for name, text in ((plot.name, style.standalone(plot.svg)) for plot in first):
        assert len(text) <= 40_000, name
        ET.fromstring(text)


def test_a_plot_carries_no_date_and_follows_the_page(tmp_path: Path) -> None:
    (plot,) = draw(made_runs.warm_only(tmp_path / "made"))
    assert plot.name == "warm-start-loss"
    assert "date" not in plot.svg.lower() and "<metadata" not in plot.svg
    assert "stroke: var(--pw-orange,#d96b27)" in plot.svg
    assert "prefers-color-scheme" not in plot.svg
    assert "prefers-color-scheme:dark" in style.standalone(plot.svg)


@pytest.mark.parametrize("make", [made_runs.empty, made_runs.stopped, made_runs.not_finite, made_runs.hostile])
def test_runs_that_stopped_anywhere(tmp_path: Path, make) -> None:
    for plot in draw(make(tmp_path / "made")):
        assert "nan" not in plot.svg.lower()
        ET.fromstring(plot.svg)


def test_one_step_and_figures_that_are_never_known(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    made.metric("grpo", 1, 1.0, reward=0.5, kl=None, entropy=float("nan"), rollout_s=0.5, score_s=0.1, update_s=0.2)
    assert [p.name for p in draw(made.run)] == ["reward", "step-time"]


def test_rewards_by_function_with_awkward_names(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    names = ("reward/<b>bold</b>", "reward/$x^{", "reward/a_very_long_name_of_a_reward_function_of_somebody")
    for step in range(1, 9):
        made.metric("grpo", step, 1.0, reward=0.5, **dict.fromkeys(names, step / 10))
    (plot,) = draw(made.run)
    ET.fromstring(plot.svg)
    assert "&lt;b&gt;bold&lt;/b&gt;" in plot.svg and "$x^{" in plot.svg and "of_somebody" not in plot.svg


def test_a_long_run_is_thinned_to_means() -> None:
    steps = [{"step": n, "reward": float(n % 2)} for n in range(1, 4801)]
    raw = series.line(steps, "reward")
    assert (len(raw.values), raw.per_point) == (240, 20)
    assert set(raw.values) == {0.5}
    assert raw.steps[0] == 10.5
    assert series.note(raw) == " Each point is the mean of 20 steps."


def test_matplotlib_is_left_as_it_was(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw(made_runs.warm_only(tmp_path / "made"))
    assert dict(matplotlib.rcParams) == before
