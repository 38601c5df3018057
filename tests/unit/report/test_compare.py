"""Runs side by side: what differs, what changed, and what is refused because it is not comparable."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import made_runs
import pytest
from test_page import Page

from podwright.errors import UserError
from podwright.recipe.kinds import KINDS
from podwright.report import kinds
from podwright.report.comparison import compare, side_by_side
from podwright.report.comparison.comparable import CONDITIONS
from podwright.rundir import RunDir

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pretrained(path: Path, *overrides: str, steps: int = 40, seed: int = 0, **environment: Any) -> RunDir:
    made = made_runs.Made(path, "almodel-tiny", overrides, seed)
    made.environment |= environment
    made.start().held_out("before", 0, 5.58).pretrain(1, steps, steps).held_out("after", steps, 1.18 + seed / 10)
    return made.end(step=steps).run


def figure(document: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(f for f in document["figures"] if f["figure"] == key)
    return found


def apart(document: dict[str, Any]) -> set[str]:
    return {one["what"] for one in document["not_comparable"]}


def test_two_runs_that_differ_in_one_setting(tmp_path: Path) -> None:
    runs = [pretrained(tmp_path / "muon"), pretrained(tmp_path / "adamw", "optimizer.name=adamw", seed=1)]
    got = side_by_side.write(runs, tmp_path / "out")
    assert got["settings"] == [{"key": "optimizer.name", "values": ["muon", "adamw"]}]
    assert got["not_comparable"] == []
    assert figure(got, "loss_after")["changes"] == [None, pytest.approx(0.1)]
    assert figure(got, "steady_state.step_s")["changes"][1] == pytest.approx(1.0, rel=0.05)
    assert not [f for f in got["figures"] if f["figure"] == "steady_state.mfu"], "what no run measured is left out"
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {
        "compare.md",
        "compare.html",
        "compare.json",
        "compare-loss.svg",
        "compare-tokens-per-s-per-device.svg",
    } <= names
    loss = (tmp_path / "out" / "compare-loss.svg").read_text()
    ET.fromstring(loss)
    assert ">muon<" in loss and ">adamw<" in loss and "nan" not in loss.lower()
    assert json.loads((tmp_path / "out" / "compare.json").read_text()) == got


@pytest.mark.parametrize(
    ("overrides", "environment", "what", "key", "compared"),
    [
        (("data.tokenizer=other",), {}, "vocabulary", "loss_after", "steady_state.step_s"),
        (("data.source=elsewhere",), {}, "data", "loss_after", "steady_state.step_s"),
        (("sequence_length=512",), {}, "sequence length", "loss_before", "steady_state.tflops_per_device"),
        ((), {"device_kind": "TPU v6 lite"}, "hardware", "steady_state.tokens_per_s_per_device", "loss_after"),
        ((), {"devices": 8}, "number of devices", "steady_state.step_s", "steady_state.tokens_per_s_per_device"),
        (("batch_size=32",), {}, "work of a step", "steady_state.step_s", "loss_before"),
        (("model.name=almodel-8b",), {}, "model", "steady_state.peak_memory_gib", "data_wait_share"),
    ],
)
def test_what_differs_is_said_and_not_compared(
    tmp_path: Path, overrides: tuple[str, ...], environment: dict[str, Any], what: str, key: str, compared: str
) -> None:
    got = compare.document(
        compare.read([pretrained(tmp_path / "a"), pretrained(tmp_path / "b", *overrides, **environment)])
    )
    assert what in apart(got)
    row = figure(got, key)
    assert (row["comparable"], row["changes"]) == ([True, False], [None, None])
    assert row["words"] in next(one["figures"] for one in got["not_comparable"] if one["what"] == what)
    assert figure(got, compared)["comparable"][1]
    shown = side_by_side.text(got)
    assert f"not comparable: {what} (a: " in shown and "†" in shown


def test_unequal_training_and_hardware_that_nobody_wrote_down(tmp_path: Path) -> None:
    runs = [pretrained(tmp_path / "a"), pretrained(tmp_path / "b", steps=60)]
    got = compare.document(compare.read(runs))
    assert apart(got) == {"amount of training"}
    assert figure(got, "tokens")["changes"] == [None, 1.5]
    unknown = [pretrained(tmp_path / name, device_kind=None) for name in ("c", "d")]
    assert "hardware (c: not known; d: not known)" in side_by_side.text(compare.document(compare.read(unknown)))


def test_the_two_runs_of_the_source(tmp_path: Path) -> None:
    """8 devices against 64: another sequence, another number of devices; losses of memorised data."""
    small = made_runs.Made(
        tmp_path / "small", "almodel-8b-source", ("sequence_length=2048", "batch_size=8", "mesh.fsdp=2")
    )
    small.environment |= {"devices": 8, "device_kind": "TPU7x"}
    small.start()
    for step in range(1, 11):
        small.pretrain_step(step, 12.6 / step**3, 220.0, 8 * 2048, tflops_per_device=0.53, peak_memory_gib=52.73)
    got = side_by_side.write([small.end(step=10).run, made_runs.out_of_data(tmp_path / "large")], tmp_path / "out")
    assert {"sequence length", "number of devices", "work of a step", "amount of training"} <= apart(got)
    assert figure(got, "steady_state.tflops_per_device")["changes"][1] == pytest.approx(60, rel=0.01)
    assert figure(got, "steady_state.peak_memory_gib")["changes"][1] == pytest.approx(63.9 / 52.73)
    assert figure(got, "steady_state.step_s")["changes"] == [None, None], (
        "not 29 times faster: a step holds 16 times as many tokens"
    )
    assert "warning: large: The training loss fell from 12.15 to 0.21" in side_by_side.text(got)
    assert not (tmp_path / "out" / "compare-loss.svg").exists()
    assert "> **Warning:** `large`: The training loss fell" in (tmp_path / "out" / "compare.md").read_text()


def test_runs_of_two_kinds_share_a_page_but_no_figure(tmp_path: Path) -> None:
    runs = [pretrained(tmp_path / "a"), made_runs.finished(tmp_path / "b", steps=8)]
    got = side_by_side.write(runs, tmp_path / "out")
    (one,) = got["not_comparable"]
    assert (one["what"], one["values"]) == ("kind of run", ["pretrain", "grpo"])
    assert not any(f["comparable"][1] for f in got["figures"])
    assert not list((tmp_path / "out").glob("*.svg"))
    assert {"optimizer.learning_rate", "model.name"} <= {s["key"] for s in got["settings"]}


def test_grpo_runs(tmp_path: Path) -> None:
    runs = [
        made_runs.finished(tmp_path / "a", 20),
        made_runs.finished(tmp_path / "b", 20, seed=1, overrides=("grpo.beta=0.2",)),
    ]
    got = side_by_side.write([*runs, made_runs.stopped(tmp_path / "c")], tmp_path / "out")
    assert [s["key"] for s in got["settings"]] == ["grpo.beta"]
    assert figure(got, "accuracy_after")["values"] == [0.782, 0.782, None]
    assert figure(got, "reward.last")["comparable"] == [True, True, False]
    assert {p.name for p in (tmp_path / "out").glob("*.svg")} >= {"compare-strict-accuracy.svg", "compare-reward.svg"}


@pytest.mark.parametrize(
    "make", [made_runs.pretrain_empty, made_runs.hostile, made_runs.not_finite, made_runs.warm_only]
)
def test_any_run_can_stand_beside_any_other(tmp_path: Path, make) -> None:
    for order in (0, 1):
        runs = [pretrained(tmp_path / f"a{order}"), make(tmp_path / f"<b>{order}")]
        out = tmp_path / f"out{order}"
        got = side_by_side.write(runs if order else runs[::-1], out)
        json.dumps(got, allow_nan=False)
        parsed = Page((out / "compare.html").read_text())
        assert not {"script", "img", "b"} & set(parsed.tags)
        assert "None" not in "".join(parsed.text).split()
        assert "None" not in side_by_side.text(got).split()


def test_batches_of_two_sizes_are_drawn_over_tokens(tmp_path: Path) -> None:
    runs = [pretrained(tmp_path / "a"), pretrained(tmp_path / "b", "batch_size=32")]
    (loss, *_) = side_by_side.curves(compare.read(runs))
    assert "tokens seen" in loss.svg
    (same, *_) = side_by_side.curves(compare.read([runs[0], pretrained(tmp_path / "c")]))
    assert "tokens seen" not in same.svg and ">step<" in same.svg


def test_a_loss_begins_at_the_first_step_and_a_rate_once_all_is_compiled(tmp_path: Path, drawn: list[Figure]) -> None:
    plots = side_by_side.curves(compare.read([pretrained(tmp_path / "a"), pretrained(tmp_path / "b", seed=1)]))
    axes = {plot.title: fig.axes[0] for plot, fig in zip(plots, drawn, strict=True)}
    first = {
        title: {line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) > 2} for title, ax in axes.items()
    }
    assert first["Loss"] == {1} and first["Tokens per second per device"] == {3}
    assert axes["Gradient norm"].get_ylim()[0] > 0 == axes["Tokens per second per device"].get_ylim()[0]


def test_a_test_without_a_step_or_a_loss_is_no_point(tmp_path: Path, drawn: list[Figure]) -> None:
    runs = []
    for name in ("a", "b"):
        made = made_runs.Made(tmp_path / name, "almodel-tiny").start().held_out("before", 0, 5.5).pretrain(1, 8, 8)
        made.held_out("during", 4, math.nan).event("evaluation", when="during", num=9, loss=2.5)
        runs.append(made.held_out("after", 8, 1.5).end(step=8).run)
    (loss, *_) = side_by_side.curves(compare.read(runs))
    places = [line.get_xydata().tolist() for line in drawn[0].axes[0].lines if line.get_marker() == "o"]
    assert places == [[[0, 5.5], [8, 1.5]]] * 2 and "Points: the evaluations." in loss.caption


def test_names_that_two_runs_share(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    got = compare.document(compare.read([pretrained(tmp_path / folder / "run") for folder in ("x", "y")]))
    assert [run["label"] for run in got["runs"]] == ["run (1)", "run (2)"]


def test_what_cannot_be_compared_at_all(tmp_path: Path) -> None:
    run = pretrained(tmp_path / "a")
    with pytest.raises(
        UserError, match="nothing to compare one run with; name two or more: podwright report --compare RUN RUN"
    ):
        compare.read([run])
    with pytest.raises(UserError, match="a is named twice; name each run once"):
        compare.read([run, RunDir(tmp_path / "a")])
    with pytest.raises(UserError, match="13 runs do not fit side by side; name 12 at most"):
        compare.read([run] * 13)
    with pytest.raises(UserError, match=r"recipe\.json is not there"):
        compare.read([run, RunDir(tmp_path / "nothing")])
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="File exists"):
        side_by_side.write([run, pretrained(tmp_path / "b")], tmp_path / "file")


def test_figures_and_curves_need_conditions_that_there_are() -> None:
    for name in KINDS:
        part = kinds.of({"kind": name})
        for one in (*part.FACTS.compared, *part.FACTS.curves):
            assert set(one.needs) <= set(CONDITIONS), one


def test_logs_are_compared_like_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The two runs of ALModel that the original project published: 60 times the TFLOP/s by its own table, and by ours."""
    from podwright.recipe import load
    from podwright.report.maxtext import log_run

    for name, seconds, recipe, on in (
        (
            "small",
            (485, 355, 220, 220),
            load.load("almodel-8b-source", ["sequence_length=2048", "batch_size=8", "mesh.fsdp=2"]),
            "tpu7x-2x2x1",
        ),
        ("large", (485, 67.3, 7.954, 7.450, 7.462), load.load("almodel-8b-source"), ""),
    ):
        text = "".join(f"Step {n}: loss={12 - n:.3f}, {s}s\n" for n, s in enumerate(seconds))
        log_run.create(tmp_path / name, [text.encode()], f"{name}.log", recipe, on)
    document = side_by_side.write([RunDir(tmp_path / name) for name in ("small", "large")], tmp_path / "compared")
    rows = {row["figure"]: row for row in document["figures"]}
    assert rows["steady_state.tflops_per_device"]["changes"][1] == pytest.approx(59.8, abs=0.1)
    assert rows["steady_state.step_s"]["values"] == [220.0, 7.462] and not rows["steady_state.step_s"]["comparable"][1]
    assert {row["what"] for row in document["not_comparable"]} >= {"sequence length", "number of devices"}
    assert {s["key"]: s["values"] for s in document["settings"]}["sequence_length"] == [2048, 4096]
    assert (tmp_path / "compared" / "compare.html").is_file()
