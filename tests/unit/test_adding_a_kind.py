"""A kind of recipe whose trainer is not ours plans, renders, runs and reports; a kind that nobody knows does none of that."""

import json
from pathlib import Path

import pytest

from podwright.cli.app import main
from podwright.errors import UserError
from podwright.plan.document import Plan
from podwright.recipe import kinds
from podwright.report import kinds as report_kinds
from podwright.rundir import RunDir, main_stage, read_jsonl
from podwright.train import entry
from tests.unit import counting_kind

RECIPE = """
kind: counting
name: count
description: Counts.
expect: {hardware: any machine, time: 1 s, metric: count, value: 12}
by: 4
training: {max_steps: 3}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(kinds.KINDS, "counting", counting_kind.ROW)
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count.yaml").write_text(RECIPE)
    return tmp_path


def test_a_kind_with_a_trainer_of_its_own_plans_runs_and_reports(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "count.yaml", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["findings"][0]["message"] == "counts to 12"
    assert main(["plan", "count.yaml", "by=101"]) == 3
    capfd.readouterr()
    assert main(["run", "count.yaml", "--dry-run", "--json", "--name", "r"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["argv"][1] == "-c" and shown["argv"][-2:] == [str(folder / "runs/r"), "1"]
    assert shown["env"] == {"COUNTED": "sheep"}
    assert main(["run", "count.yaml", "--name", "r", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["ending"] == "FINISHED"
    run = RunDir(folder / "runs/r")
    assert Plan.read(run.plan).verdict == "ok"
    assert {record["unit"] for record in read_jsonl(run.metrics)} == {"sheep"}, (
        "its process has the environment of its kind"
    )
    assert main(["report", "r", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["kind"], result["count"], result["expected"]["verdict"]) == ("counting", 12, "within tolerance")
    assert "It counted to 12." in (run.report / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["plan", "count.yaml", "--compile", "--on", "cpu-1"], "a recipe of kind counting has nothing to compile"),
        (
            ["plan", "count.yaml", "--fit", "--on", "v6e-8"],
            "--fit searches settings of GRPO and pretraining, count is of kind counting; leave --fit out",
        ),
        (["run", "count.yaml", "--profile", "1"], "jax's profiler cannot trace a run of kind counting"),
    ],
)
def test_what_a_kind_does_not_answer_is_refused_in_one_line(
    folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], what: str
) -> None:
    assert main(arguments) == 2
    err = capfd.readouterr().err
    assert what in err and err.count("\n") == 1


def test_an_unknown_kind_fails_everywhere(tmp_path: Path) -> None:
    for ask in (kinds.find, entry.of, lambda kind: report_kinds.of({"kind": kind})):
        with pytest.raises(UserError, match="kind='distil' is not a kind of recipe") as refused:
            ask("distil")
        assert refused.value.fix == "known: grpo, pretrain, multimodal, contrastive, maxtext"
    with pytest.raises(UserError, match="without a kind"):
        main_stage({"training": {}})
