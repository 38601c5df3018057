"""Plots are small, valid and the same each time, wherever the run stopped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import made_runs
import pytest

from podwright.report import kinds, records
from podwright.report.figures import series, style
from podwright.report.figures.drawing import Plot
from podwright.report.kinds import contrastive
from podwright.report.result import of_records
from podwright.rundir import RunDir

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    assert [p.name for p in draw(made.run)] == ["reward"]


def test_rewards_by_function_with_awkward_names(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    names = ("reward/<b>bold</b>", "reward/$x^{", "reward/a_very_long_name_of_a_reward_function_of_somebody")
    for step in range(1, 9):
        made.metric("grpo", step, 1.0, reward=0.5, **dict.fromkeys(names, step / 10))
    (plot,) = draw(made.run)
    ET.fromstring(plot.svg)
    assert "&lt;b&gt;bold&lt;/b&gt;" in plot.svg and "$x^{" in plot.svg and "of_somebody" not in plot.svg


def test_accuracies_and_their_intervals_are_within_the_axes(tmp_path: Path, drawn: list[Figure]) -> None:
    draw(made_runs.Made(tmp_path / "made").start().evaluation("before", 0, 1).evaluation("after", 20, 391).run)
    (ax,) = drawn[0].axes
    low, high = ax.get_ylim()
    heights = [y for bar in ax.containers[0].lines[2][0].get_segments() for _, y in bar]
    assert low <= min(heights) and max(heights) <= high
    assert max(heights) == pytest.approx(made_runs.graded(391, 500)["high"])


def test_the_parts_of_a_steps_time_are_stacked_to_their_sum(tmp_path: Path, drawn: list[Figure]) -> None:
    made = made_runs.Made(tmp_path / "made").start()
    for step in range(1, 7):
        made.metric("grpo", step, 2.0, rollout_s=step, score_s=0.25, update_s=0.5)
    draw(made.run)
    (ax,) = drawn[-1].axes
    tops = {layer.get_label(): max(y for _, y in layer.get_paths()[0].vertices) for layer in ax.collections}
    assert tops == {"rollout": 6, "score": 6.25, "update": 6.75}


def test_the_way_back_between_two_modalities_is_dashed_in_the_colour_of_the_way_there(drawn: list[Figure]) -> None:
    ways = [("text", "image"), ("text", "audio"), ("image", "text"), ("audio", "text")]
    directions = [{"query": query, "target": target, "recall_at_1": 0.5} for query, target in ways]
    contrastive.retrieval(None, {"evaluations": [{"step": 0, "directions": directions}], "chance_at_1": None})
    there, other, back, other_back = drawn[0].axes[0].lines
    assert [line.get_linestyle() for line in (there, other, back, other_back)] == ["-", "-", "--", "--"]
    assert there.get_color() == back.get_color() != other.get_color() == other_back.get_color()


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


def test_a_panel_without_anything_to_see_is_left_out(tmp_path: Path, drawn: list[Figure]) -> None:
    run = made_runs.finished(tmp_path / "made", steps=4)
    text = run.metrics.read_text()
    draw(run)
    titles = {ax.get_title("left") for figure in drawn for ax in figure.axes}
    assert "cut off at the limit" in titles
    drawn.clear()
    run.metrics.write_text(re.sub(r'"completion_clipped": [\d.e-]+', '"completion_clipped": 0.0', text))
    draw(run)
    titles = {ax.get_title("left") for figure in drawn for ax in figure.axes}
    assert "tokens per completion" in titles and "cut off at the limit" not in titles


def test_a_run_of_one_step_has_points_and_no_area_without_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    to_svg = style.to_svg

    def kept(fig: Figure, title: str) -> str:
        drawn.append(fig)
        return to_svg(fig, title)

    monkeypatch.setattr(style, "to_svg", kept)
    run = made_runs.finished(tmp_path / "made", steps=1)
    names = [plot.name for plot in draw(run)]
    assert "completion-length" in names and "step-time" not in names
    lines = [line for figure in drawn for ax in figure.axes for line in ax.lines]
    assert lines and all(line.get_marker() != "None" for line in lines if len(line.get_xdata()) == 1)


@pytest.mark.parametrize(
    ("text", "rounded"),
    [
        ("1.25", "1.2"),
        ("123.456", "123.5"),
        ("0.9994", "0.999"),
        ("0.5678", "0.568"),
        ("0.01234", "0.0123"),
        ("0.00", "0"),
    ],
)
def test_a_coordinate_keeps_a_tenth_or_three_digits(text: str, rounded: str) -> None:
    assert style._rounded(text) == rounded
