"""The report of a MaxText run: what `report --log` writes of its logs, with what the run knows of its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podwright.cli.app import main
from podwright.report import page
from podwright.report.words import Words
from podwright.rundir import Ending, RunDir, append_jsonl, write_json
from tests.unit.recipe.maxtext.example import example
from tests.unit.report.test_maxtext_report import DEEPSEEK, deepseek, source_log, step


def made(folder: Path, log: str, ending: Ending, detail: str = "", **changes: Any) -> RunDir:
    run = RunDir(folder / "runs" / "r")
    write_json(run.recipe, example(**changes).model_dump(mode="json"))
    created = {"event": "created", "recipe": "r", "target": "pod", "cwd": "/", "retries": 0}
    append_jsonl(run.journal, created | {"time": 0.0})
    add(run, 1, log, ending, detail)
    return run


def add(run: RunDir, attempt: int, log: str, ending: Ending, detail: str = "") -> None:
    if attempt > 1:
        append_jsonl(run.journal, {"event": "retrying", "attempt": attempt - 1, "time": 0.0})
    for event in ("submitting", "submitted", "ended"):
        more = {"ending": ending, "detail": detail, "fix": "", "step": None} if event == "ended" else {"handle": {}}
        append_jsonl(run.journal, {"event": event, "attempt": attempt, "time": 0.0, **more})
    run.attempt(attempt).mkdir(parents=True)
    lines = [f"2026-11-23T0{attempt}:00:{n % 60:02}.{n:09}Z {text}" for n, text in enumerate(log.splitlines())]
    run.log(attempt).write_text("\n".join(lines) + "\n")


PUBLIC: dict[str, Any] = {"topology": "tpu7x-4x4x8", "arguments": DEEPSEEK | {"steps": "10"}}


def test_the_write_up_of_a_run_is_that_of_its_log_with_the_published_figure(tmp_path: Path) -> None:
    run = made(tmp_path, deepseek(), Ending.FINISHED, **PUBLIC)
    readme = tmp_path / "README.md"
    result = page.write(run, readme)
    assert (result["name"], result["ending"], result["steps"]) == ("r", "FINISHED", 10)
    assert result["published"]["step_s"] == 27.02 and result["steady_state"]["step_s"] == 27.42
    assert "4k-bf16-tpu7x-4x4x8" in readme.read_text()
    assert "published: Step Time (s) 27.020, measured 27.420 (+1.5 %)" in "\n".join(page.summary(result))
    assert json.loads((run.report / "result.json").read_text()) == result
    assert (run.report / "report.html").exists() and (run.report / "report.md").exists()
    once = readme.read_text()
    page.write(run, readme)
    assert readme.read_text() == once


def test_the_run_knows_of_an_end_that_the_log_does_not_tell(tmp_path: Path) -> None:
    run = made(tmp_path, deepseek(), Ending.PREEMPTED, "node n was taken", **PUBLIC | {"arguments": DEEPSEEK})
    result = page.write(run)
    assert result["ending"] == "PREEMPTED"
    assert "PREEMPTED: 10 of 30 steps. node n was taken." in page.summary(result)


def test_attempts_are_put_together(tmp_path: Path) -> None:
    run = made(tmp_path, deepseek(), Ending.PREEMPTED, **PUBLIC)
    add(run, 2, deepseek(seconds=27.5), Ending.FINISHED)
    result = page.write(run)
    assert (len(result["attempts"]), result["steps_recomputed"], result["ending"]) == (2, 10, "FINISHED")
    assert result["steady_state"]["step_s"] == 27.5
    assert [a["ending"] for a in result["attempts"]] == ["PREEMPTED", "FINISHED"]


@pytest.mark.parametrize(("code", "model"), [(0, "almodel-8b"), (1, "almodel-8b"), (1, "al_model")])
def test_the_model_of_a_fork_has_its_true_flops(tmp_path: Path, code: int, model: str) -> None:
    """Logged: 32.0 TFLOP/s a device; the architecture makes 11.07 of 549 tokens/s."""
    arguments = {"model_name": model, "per_device_batch_size": "1", "max_target_length": "4096", "steps": "10"}
    log = source_log().replace("EXIT_CODE=1", f"EXIT_CODE={code}")
    run = made(tmp_path, log, Ending.OUT_OF_DATA, "7 of 10 steps", topology="tpu7x-2x4x4", arguments=arguments)
    result = page.write(run)
    assert result["steady_state"]["tflops_per_device"] == pytest.approx(11.07, abs=0.03)
    assert result["steady_state"]["tflops_source"] == "architecture"
    assert "OUT_OF_DATA: 7 of 10 steps" in "\n".join(page.summary(result))


def test_another_model_by_the_name_of_a_fork_is_not_checked(tmp_path: Path) -> None:
    arguments = {"model_name": "al_model", "num_experts": "8", "max_target_length": "4096", "steps": "10"}
    run = made(tmp_path, source_log(), Ending.OUT_OF_DATA, "7 of 10 steps", topology="tpu7x-2x4x4", arguments=arguments)
    result = page.write(run)
    assert result["steady_state"]["tflops_source"] != "architecture"
    (check,) = [check for check in result["checks"] if check["check"] == "flops"]
    text = Words("en")(check["sentence"], **check)
    assert "the architecture of al_model is not known here" in text and "--recipe" in text


def test_an_attempt_without_a_step_has_the_report_of_any_run(tmp_path: Path) -> None:
    run = made(tmp_path, "ModuleNotFoundError: No module named 'MaxText'", Ending.BAD_INPUT, "no MaxText")
    result = page.write(run)
    assert (result["ending"], result["steps"], result["steps_planned"]) == ("BAD_INPUT", 0, 30)
    assert (run.report / "report.md").exists()
    add(run, 2, "\n".join(step(n, 2.0) for n in range(30)), Ending.FINISHED)
    assert page.write(run)["steps"] == 30 and "Steady state: 2.000 s/step" in (run.report / "report.md").read_text()


def test_a_run_and_a_log_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path, deepseek(), Ending.FINISHED, **PUBLIC)
    page.write(run)
    log, out = tmp_path / "other.log", tmp_path / "other-report"
    log.write_text(deepseek(seconds=30.0))
    assert main(["report", "--log", str(log), "--on", "tpu7x-4x4x8", "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["report", "--compare", str(run.path), str(out), "--json"]) == 0
    figures = {row["figure"]: row["values"] for row in json.loads(capsys.readouterr().out)["figures"]}
    assert figures["steady_state.step_s"] == [27.42, 30.0]
