"""What a plan predicted stands beside what the run measured, for every kind of recipe and wherever the run stopped."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import made_runs
import pytest

from podwright import __version__
from podwright.cli.app import main
from podwright.plan.document import CostEntry
from podwright.report import page, prediction
from podwright.report.comparison import side_by_side
from podwright.report.result import result
from podwright.rundir import RunDir, append_jsonl, write_json
from podwright.targets.machines import Request

TPU = {"device_kind": "TPU v6 lite"}
MEMORY = [{"name": "update", "estimated_gib": 0.8, "limit_gib": 31.25, "parts_gib": {}}]


def predicted(run: RunDir) -> dict[str, dict[str, Any]]:
    return {row["what"]: row for row in result(run)["predicted"]}


def with_plan(run: RunDir, plan: Any, **environment: Any) -> RunDir:
    write_json(run.plan, plan)
    lines = [json.loads(line) for line in run.events.read_text().splitlines()]
    changed = [line | environment if line["event"] == "environment" else line for line in lines]
    run.events.write_text("".join(json.dumps(line) + "\n" for line in changed))
    return run


def test_a_compiled_plan_is_compared_in_memory_time_and_cost(tmp_path: Path) -> None:
    run = with_plan(made_runs.finished(tmp_path / "made", 40), made_runs.compiled_plan().document(), **TPU)
    got, rows = result(run), predicted(run)
    steady = got["steady_state"]
    assert {row["source"] for row in rows.values()} == {"compiled"}
    assert (rows["peak memory per device"]["predicted"], rows["peak memory per device"]["measured"]) == (0.66, 0.71)
    assert rows["peak memory per device"]["error"] == pytest.approx(0.71 / 0.66 - 1)
    assert (rows["memory of rollout"]["predicted"], rows["memory of rollout"]["measured"]) == (0.52, None)
    for what, measured in (("step time", "step_s"), ("step time: rollout", "rollout_s")):
        assert rows[what]["measured"] == steady[measured]
        assert rows[what]["error"] == pytest.approx(steady[measured] / rows[what]["predicted"] - 1)
    assert rows["step time: update"]["measured"] == steady["update_s"]
    assert rows["throughput"]["measured"] == steady["sequences_per_s"]
    assert rows["throughput per device"]["measured"] == steady["tokens_per_s_per_device"]
    hours = got["wall_time"]["total_s"] / 3600
    assert rows["run time"]["measured"] == pytest.approx(hours)
    assert rows["chip-hours"]["measured"] == pytest.approx(2 * hours)
    assert rows["cost"]["measured"] == pytest.approx(4 * hours), "two chips at a price of 2"
    assert "model FLOPs utilization (MFU)" not in rows, "what was not predicted has no row"


def test_chip_hours_and_cost_of_created_machines_are_those_of_their_usage(tmp_path: Path) -> None:
    run = with_plan(made_runs.finished(tmp_path / "made", 40), made_runs.compiled_plan().document(), **TPU)
    request = {"request": asdict(Request("pw-1", "a-1", chip="v6e", num_chips=2)), "target": {}}
    append_jsonl(run.journal, {"event": "allocation requested", "time": 0.0, "allocation": 1, **request})
    append_jsonl(run.journal, {"event": "allocation ready", "time": 0.0, "allocation": 1, "hosts": []})
    append_jsonl(run.journal, {"event": "allocation gone", "time": 7200.0, "allocation": 1})
    got, rows = result(run), predicted(run)
    assert rows["chip-hours"]["measured"] == got["usage"]["chip_hours"] == 4.0
    assert rows["cost"]["measured"] == 8.0, "at the plan's price of 2"
    assert rows["run time"]["measured"] == pytest.approx(got["wall_time"]["total_s"] / 3600)


def test_at_list_prices_the_measured_cost_is_that_of_the_usage(tmp_path: Path) -> None:
    plan = made_runs.compiled_plan()
    assert plan.step
    row = CostEntry(provisioning="on-demand", price=2.7, cost=0.135, source="a page")
    totals = plan.step.run.model_copy(update={"price": 2.7, "cost": 0.135, "costs": (row,)})
    plan = plan.model_copy(update={"step": plan.step.model_copy(update={"run": totals})})
    run = with_plan(made_runs.finished(tmp_path / "made", 40), plan.document(), **TPU)
    request = {"request": asdict(Request("pw-1", "a-1", chip="v6e", num_chips=2, price=3.0)), "target": {}}
    for event in ("requested", "ready"):
        append_jsonl(
            run.journal, {"event": f"allocation {event}", "time": 0.0, "allocation": 1, "hosts": [], **request}
        )
    append_jsonl(run.journal, {"event": "allocation gone", "time": 7200.0, "allocation": 1})
    got, rows = result(run), predicted(run)
    assert (rows["cost"]["predicted"], rows["cost"]["measured"]) == (0.135, 12.0)
    assert rows["cost"]["measured"] == got["usage"]["cost"], "4 chip-hours at the price of the request"


def test_hours_and_cost_of_a_run_that_has_not_finished_are_not_measured(tmp_path: Path) -> None:
    rows = predicted(with_plan(made_runs.stopped(tmp_path / "made"), made_runs.compiled_plan().document(), **TPU))
    assert [rows[what]["measured"] for what in ("run time", "chip-hours", "cost")] == [None] * 3
    assert rows["step time"]["error"] is not None


def test_the_memory_of_a_cpu_is_not_measured(tmp_path: Path) -> None:
    run = with_plan(made_runs.finished(tmp_path / "made", 8), made_runs.EMPTY_PLAN | {"memory": MEMORY})
    (row,) = result(run)["predicted"]
    assert (row["what"], row["measured"], row["error"], row["source"]) == (
        "peak memory per device",
        None,
        None,
        "estimated",
    )
    page.write(run)
    assert (
        "| peak memory per device | 0.800 | not measured | – | GiB | estimated |"
        in (run.report / "report.md").read_text()
    )


@pytest.mark.parametrize("recipe", ["qwen3-tiny-arithmetic-grpo", "almodel-tiny", "phase2-tiny", "phase1-tiny"])
def test_every_kind_of_recipe_has_the_table(tmp_path: Path, recipe: str) -> None:
    made = made_runs.Made(tmp_path / "made", recipe)
    made.environment |= TPU
    update = {"name": "update", "runs": 1, "seconds": 2.0, "bound": None}
    step = {"estimated": True, "programs": [update], "step_s": 2.0, "tokens_per_s_per_device": 9.0, "mfu": None}
    step |= {"run": made_runs.RUN_TOTALS, "notes": []}
    write_json(made.run.plan, made_runs.EMPTY_PLAN | {"memory": MEMORY, "step": step})
    made.start()
    for step in range(1, 6):
        made.metric(made.model.kind, step, 2.5, peak_memory_gib=1.0)
    made.end(step=5)
    rows = predicted(made.run)
    for what in ("peak memory per device", "step time"):
        assert (rows[what]["error"], rows[what]["source"]) == (pytest.approx(0.25), "estimated")
    page.write(made.run)
    assert "| step time | 2.00 | 2.50 | +25.0 % | s | estimated |" in (made.run.report / "report.md").read_text()
    assert '<td class="num">+25.0 %</td>' in (made.run.report / "report.html").read_text()


def in_all_reports(run: RunDir, folder: Path, sentence: str) -> None:
    """`sentence` stands in the report of `run`, which has no predictions, and in its comparison with another run."""
    assert (page.write(run)["predicted"], page.write(run)["not_predicted"]) == ([], sentence)
    other = made_runs.finished(folder / "other", 8)
    document = side_by_side.write([run, other], folder / "out")
    assert document["predicted"] == [] and sentence in side_by_side.text(document)
    pages = [run.report / "report.md", run.report / "report.html", *(folder / "out").glob("compare.[hm]*")]
    assert len(pages) == 4 and all(words(sentence) in words(each.read_text()) for each in pages)


def words(text: str) -> str:
    """Letters and digits, whatever the page escapes."""
    return "".join(re.findall(r"\w", re.sub(r"&#?\w+;", "", text)))


def test_without_a_prediction_the_report_says_so(tmp_path: Path) -> None:
    in_all_reports(made_runs.finished(tmp_path / "made", 8), tmp_path, prediction.NOTHING)


def test_a_comparison_with_a_run_that_has_predictions_says_whose_cannot_be_read(tmp_path: Path) -> None:
    planned = with_plan(made_runs.finished(tmp_path / "a", 40), made_runs.compiled_plan().document(), **TPU)
    unread = made_runs.finished(tmp_path / "b", 8)
    unread.plan.write_text("{")
    shown = side_by_side.text(side_by_side.write([planned, unread], tmp_path / "out"))
    assert f"b: The prediction cannot be read: {unread.plan} cannot be read (it is no plan in JSON)." in shown
    assert prediction.NOTHING not in shown and prediction.NOTE in shown


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read (it is no plan in JSON)"),
        ("[]", "cannot be read (it is no plan in JSON)"),
        ('{"memory": 3}', "was written by a Podwright that did not write its version, and {here} cannot read it"),
        ('{"version": "9.1", "step": {"run": 1}}', "was written by Podwright 9.1, and {here} cannot read it"),
    ],
)
def test_a_prediction_that_cannot_be_read_is_not_called_missing(tmp_path: Path, text: str, why: str) -> None:
    run = made_runs.finished(tmp_path / "made", 8)
    run.plan.write_text(text)
    sentence = result(run)["not_predicted"]
    assert sentence.startswith(f"The prediction cannot be read: {run.plan} {why.format(here=__version__)}")
    in_all_reports(run, tmp_path, sentence)


def test_what_the_command_line_plans_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "qwen3-tiny-arithmetic-grpo", "--on", "v6e-1", "--json"])
    plan = json.loads(capsys.readouterr().out)
    rows = predicted(with_plan(made_runs.finished(tmp_path / "made", 8), plan, **TPU))
    need = {entry["name"]: entry["estimated_gib"] for entry in plan["memory"]}
    assert need and rows["peak memory per device"]["predicted"] == max(need.values())
    assert {f"memory of {name}" for name in need} < set(rows)
    assert rows["step time"]["predicted"] == plan["step"]["step_s"]
    assert {row["source"] for row in rows.values()} == {"estimated"}


def test_a_comparison_has_the_predictions_of_each_run(tmp_path: Path) -> None:
    planned = with_plan(made_runs.finished(tmp_path / "a", 40), made_runs.compiled_plan().document(), **TPU)
    unplanned = with_plan(made_runs.finished(tmp_path / "b", 40, seed=1), made_runs.EMPTY_PLAN, **TPU)
    document = side_by_side.write([planned, unplanned], tmp_path / "out")
    (row,) = [row for row in document["predicted"] if row["what"] == "step time"]
    assert row["runs"][0]["predicted"] == 0.9 and row["runs"][1] is None
    shown = side_by_side.text(document)
    assert "Predicted and measured" in shown and "0.660 → 0.710 (+7.6 %)" in shown
    assert "0.520 → not measured" in (tmp_path / "out" / "compare.html").read_text()
