"""What a report says of a pretraining run, wherever it stopped."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import made_runs
import pytest
from test_page import Page, html_of

from podwright.errors import UserError
from podwright.report import kinds, page, records, timing, wording
from podwright.report.figures.drawing import Plot
from podwright.report.kinds import pretrain
from podwright.report.result import of_records, result
from podwright.rundir import RunDir, append_jsonl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAKERS = [made_runs.pretrained, made_runs.pretrain_stopped, made_runs.pretrain_empty, made_runs.out_of_data]
ALL = ["loss", "learning-rate", "experts", "tokens-per-s", "data-wait"]


def draw(run: RunDir) -> list[Plot]:
    read = records.read(run)
    return kinds.plots(read, of_records(run, read))


def test_a_finished_run(tmp_path: Path) -> None:
    got = result(made_runs.pretrained(tmp_path / "made"))
    assert (got["kind"], got["steps"], got["steps_planned"], got["ending"]) == ("pretrain", 200, 200, "FINISHED")
    assert (got["loss_before"], got["loss_after"], got["loss_drop"]) == (5.58, 1.18, pytest.approx(4.4))
    assert got["perplexity_after"] == pytest.approx(math.exp(1.18)) and got["unigram_entropy"] == 2.71
    assert (got["loss"]["n"], got["loss"]["last"]) == (20, pytest.approx(1.11, abs=0.02))
    assert (got["tokens"], got["epochs"], got["vocab_size"]) == (819_200, pytest.approx(0.4096), 259)
    assert (got["dead_experts"], got["dead_experts_most"]) == (0, 3)
    assert got["data_wait_share"] == pytest.approx(0.02, rel=0.1)
    assert (got["peak_memory_gib"], got["num_active_params"]) == (0.9, 402_816)
    assert [(e["when"], e["step"]) for e in got["evaluations"]] == [("before", 0), ("during", 100), ("after", 200)]
    assert got["warnings"] == []
    assert set(got["units"]) <= set(got) | {"perplexity"}
    assert got["command"] == "podwright run almodel-tiny --on local"
    assert not {"accuracy_after", "reward", "paired_test"} & set(got)


def test_steady_state_leaves_out_what_compiles_and_waits_count(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start()
    for step, seconds in ((1, 90.0), (2, 80.0), (3, 1.0), (4, 2.0)):
        made.pretrain_step(step, 5.0, seconds, data_wait_s=0.25 if step > 2 else 60.0)
    made.attempt = 2
    made.start().event("resumed", step=4, stage="pretrain")
    for step, seconds in ((5, 60.0), (6, 50.0), (7, 3.0), (8, 9.0)):
        made.pretrain_step(step, 5.0, seconds, data_wait_s=1.0)
    assert result(made.run)["profile"] is None
    made.pretrain_step(9, 5.0, 700.0, profiled=True)
    got = result(made.run)
    steady = got["steady_state"]
    assert (steady["step_s"], steady["num_steps"], steady["num_left_out"]) == (2.5, 4, 4)
    assert steady["tokens_per_s_per_device"] == pytest.approx((16 * 256 / 2 / 2 + 16 * 256 / 2 / 3) / 2)
    assert steady["units"]["tflops_per_device"] == "TFLOP/s"
    assert got["data_wait_share"] == pytest.approx(2.5 / 15)
    assert "waited for data for 16.7 % of the time" in pretrain.also(got)
    assert got["wall_time"]["inside_pretrain_s"] == {"waiting for data": 124.51, "computing": pytest.approx(870.49)}


def test_curves_of_speed_leave_out_the_steps_that_compile(tmp_path: Path, drawn: list[Figure]) -> None:
    """These are the first two steps of each process. The third attempt did not write that it resumes, and SLURM started it twice."""
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start().pretrain(1, 10, 20)
    made.resume(10).pretrain(11, 20, 20)
    made.attempt, made.cold = 3, 2
    made.start().pretrain(21, 24, 28)
    made.cold = 2
    made.event("resumed", step=24).pretrain(25, 28, 28)
    lines = {plot.name: fig.axes[0].lines for plot, fig in zip(draw(made.run), drawn, strict=True)}
    steps = {name: [list(line.get_xdata()) for line in drawn_lines] for name, drawn_lines in lines.items()}
    warm = [*range(3, 11), *range(13, 21), 23, 24, 27, 28]
    assert steps["tokens-per-s"] == steps["data-wait"] == [warm, warm]
    assert steps["loss"][0] == list(range(1, 29))
    assert min(lines["tokens-per-s"][0].get_ydata()) > 16 * 256 / 2, "a step that compiles takes 8 s, others half a one"


def test_the_loss_stands_beside_what_it_is_without_context(tmp_path: Path) -> None:
    with_it, without = draw(made_runs.pretrained(tmp_path / "made")), draw(made_runs.out_of_data(tmp_path / "untested"))
    assert "unigram entropy" in with_it[0].svg and "the dashed line is the unigram entropy" in with_it[0].caption
    assert "unigram entropy" not in without[0].svg and "dashed" not in without[0].caption


@pytest.mark.long
@pytest.mark.parametrize("make", MAKERS)
def test_every_run_gets_a_whole_page(tmp_path: Path, make) -> None:
    run = make(tmp_path / "made")
    page.write(run, tmp_path / "README.md")
    parsed = Page(html_of(run))
    shown = "".join(parsed.text)
    text = (run.report / "report.md").read_text() + (tmp_path / "README.md").read_text()
    for word in ("GRPO", "ccuracy", "None", "reward"):
        assert word not in shown + text, word
    assert "script" not in parsed.tags
    json.loads((run.report / "result.json").read_text())
    for plot in draw(run):
        ET.fromstring(plot.svg)
        assert "nan" not in plot.svg.lower()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            made_runs.pretrained,
            "After 200 steps and 819,200 tokens the held-out loss is 1.18 nats per token; before it was 5.58.",
        ),
        (
            made_runs.pretrain_stopped,
            "The run was stopped after 73 of 200 steps. The training loss went from 5.06 to 1.64 nats per token; "
            "the held-out loss was 2.40 at step 50.",
        ),
        (made_runs.pretrain_empty, "The run has not reached its first step. No training step was completed."),
        (
            made_runs.out_of_data,
            "The run ran out of data after 7 of 10 steps. The training loss went from 12.2 to 0.213 nats per token.",
        ),
    ],
)
def test_what_a_run_came_to(tmp_path: Path, make, said: str) -> None:
    assert pretrain.say(result(make(tmp_path / "made"))) == said


def test_the_run_of_the_source_is_flagged_on_every_page(tmp_path: Path) -> None:
    run = made_runs.out_of_data(tmp_path / "made")
    got = page.write(run, tmp_path / "README.md")
    (warning,) = got["warnings"]
    assert "fell from 12.15 to 0.21 nats in 7 steps" in warning and "the data is memorized" in warning
    assert got["steady_state"]["step_s"] == 7.5
    assert f'<p class="warning">{warning}</p>' in html_of(run)
    for text in ((run.report / "report.md").read_text(), (tmp_path / "README.md").read_text()):
        assert f"> **Warning:** {warning}" in text


def test_plots(tmp_path: Path) -> None:
    run = made_runs.pretrained(tmp_path / "made", steps=500)
    assert [p.name for p in draw(run)] == ALL
    assert all(len(p.svg) <= 40_000 for p in draw(run))
    assert [p.svg for p in draw(run)] == [p.svg for p in draw(run)]
    assert "held-out" in draw(run)[0].svg
    assert draw(made_runs.pretrain_empty(tmp_path / "empty")) == []


def test_one_step_and_figures_that_are_never_known(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start()
    made.metric("pretrain", 1, 1.0, loss=5.5, grad_norm=None, expert_load_max=1.5)
    assert [p.name for p in draw(made.run)] == ["loss", "experts"]
    made.metric("pretrain", 2, 1.0, loss=math.nan, grad_norm=math.inf)
    got = result(made.run)
    json.dumps(got, allow_nan=False)
    assert got["loss"]["last"] == 5.5
    page.write(made.run)


def test_a_test_that_found_no_loss(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start().held_out("before", 0, math.nan).pretrain(1, 3, 3)
    append_jsonl(made.run.events, {"event": "evaluation", "when": "after", "step": 3, "time": 9.0})
    got = result(made.run)
    assert (got["loss_before"], got["loss_after"], got["perplexity_after"]) == (None, None, None)
    page.write(made.run)


def test_steps_that_a_resume_went_back_behind_do_not_count(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start().pretrain(1, 12, 40).held_out("during", 12, 3.0)
    made.attempt = 2
    made.start().event("resumed", step=8, stage="pretrain")
    got = result(made.run)
    assert (got["steps"], got["evaluations"]) == (8, [])


@pytest.mark.parametrize("told", [True, False])
def test_a_step_that_two_attempts_computed_counts_once_as_the_last_one_did_it(tmp_path: Path, told: bool) -> None:
    """`told`: whether the trainer wrote from which checkpoint it resumed. One without checkpoints computes all steps again."""
    made = made_runs.Made(tmp_path / "made", "almodel-tiny").start()
    for step in range(1, 13):
        made.pretrain_step(step, 9.0, 50.0)
    made.attempt, first = 2, 9 if told else 1
    made.start()
    if told:
        made.event("resumed", step=8, stage="pretrain")
    for step in range(first, 17):
        made.pretrain_step(step, 2.0, 1.0)
    read = records.read(made.run)
    steps = read.steps()
    assert [s["step"] for s in steps] == list(range(1, 17)), "no curve goes back"
    assert all((s["attempt"], s["loss"]) == ((2, 2.0) if s["step"] >= first else (1, 9.0)) for s in steps)
    got = result(made.run)
    assert (got["steps"], got["tokens"]) == (16, 16 * 16 * 256)
    seconds = 8 * 50.0 + 8 * 1.0 if told else 16.0
    assert sum(timing.breakdown(read).values()) == pytest.approx(seconds)
    assert got["steady_state"]["step_s"] == (25.5 if told else 1.0)


@pytest.mark.parametrize(
    ("measured", "verdict"), [(1.18, "within tolerance"), (1.4, "outside tolerance"), (None, "not measured")]
)
def test_expected_against_measured(tmp_path: Path, measured: float | None, verdict: str) -> None:
    promise = ("expect.value=1.2", "expect.tolerance=0.05")
    made = made_runs.Made(tmp_path / "made", "almodel-tiny", promise).start()
    if measured is not None:
        made.held_out("after", 200, measured)
    got = result(made.run)
    assert got["expected"]["metric"] == "loss_after" and got["expected"]["verdict"] == verdict
    assert wording.verdict(got).startswith("The recipe expects loss_after 1.20 ± 0.0500")


def test_passes_over_the_data_bound_what_is_memorised(tmp_path: Path) -> None:
    """Where the run does not say how large its data is, a recipe that allows one pass is believed."""

    def warnings(name: str, *overrides: str) -> list[str]:
        made = made_runs.Made(tmp_path / name, "almodel-tiny", overrides)
        made.environment |= {"data": {}}
        made.start().pretrain(1, 60, 60).held_out("after", 60, 3.0)
        found: list[str] = result(made.run)["warnings"]
        return found

    assert warnings("once") == []
    assert "far below the held-out loss" in warnings("again", "data.num_epochs=0")[0]


def test_a_report_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    run = made_runs.pretrain_stopped(tmp_path / "made")
    run.recipe.write_text(json.dumps(json.loads(run.recipe.read_text()) | {"kind": "distil"}))
    with pytest.raises(UserError, match="kind='distil' is not a kind of recipe") as refused:
        page.write(run)
    assert refused.value.fix == "known: grpo, pretrain, multimodal, contrastive, maxtext"


def test_how_many_parameters_are_active(tmp_path: Path) -> None:
    got = result(made_runs.pretrained(tmp_path / "made", steps=8))
    assert wording.parameters(got) == "853,248, 402,816 active per token"
