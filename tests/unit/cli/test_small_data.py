"""Data that is too small for what a recipe holds out is divided as usual; what was typed is insisted on."""

import json
from pathlib import Path

import pytest

from podwright.cli import runs
from podwright.cli.app import main
from podwright.data import gsm8k
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.kinds import Recipe
from podwright.recipe.load import load, smoke
from podwright.slices import parse
from tests.verbs import call

GRPO = "qwen3-tiny-arithmetic-grpo"
SIZE = "batch_size=8"


def questions(path: Path, number: int) -> Path:
    path.write_text("".join(json.dumps({"question": f"{n}+1?", "answer": str(n + 1)}) + "\n" for n in range(number)))
    return path


def planned(recipe: Recipe, typed: list[str]) -> tuple[Recipe, list[str]]:
    """The recipe that is planned, and the codes of what refuses its data."""
    here = Destination("cpu-1", parse("cpu-1"))
    changed, plan = runs._planned(recipe, typed, 0, lambda each: make(each, here, PlanOptions(only="data,batch")))
    return changed, [f.code for f in plan.errors]


@pytest.mark.parametrize("number", [60, 66])  # more are held out than there are; too few for a batch remain
def test_too_few_questions_for_the_recipes_test_are_divided_as_usual_and_that_is_said(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = questions(tmp_path / "a.jsonl", number)
    recipe = load(GRPO, ["data.num_train=0", "data.num_test=64", SIZE, f"data.source={path}"])
    changed, faults = planned(recipe, [f"data.source={path}"])
    assert (changed.data.num_test, faults) == (0, [])
    (line,) = capsys.readouterr().err.splitlines()
    assert "data.num_test=0" in line and str(path) in line


def test_a_test_that_was_typed_is_insisted_on(tmp_path: Path) -> None:
    path = questions(tmp_path / "a.jsonl", 60)
    recipe = load(GRPO, ["data.num_train=0", "data.num_test=64", SIZE, f"data.source={path}"])
    for typed in ("data.num_test=64", f"data={{source: {path}, num_test: 64}}"):
        assert planned(recipe, [typed]) == (recipe, ["held-out"])


def test_a_test_that_leaves_enough_to_train_on_stays(tmp_path: Path) -> None:
    path = questions(tmp_path / "a.jsonl", 80)
    recipe = load(GRPO, ["data.num_train=0", "data.num_test=64", SIZE, f"data.source={path}"])
    assert planned(recipe, []) == (recipe, [])


@pytest.mark.parametrize(("number", "held_out"), [(2, 1), (20, 2), (32, 3)])
def test_a_smoke_run_of_few_questions_holds_out_the_usual_share(tmp_path: Path, number: int, held_out: int) -> None:
    path = questions(tmp_path / "a.jsonl", number)
    recipe = smoke(load(GRPO, ["data.num_train=0", "batch_size=1", f"data.source={path}"]), 3)
    changed, faults = planned(recipe, [f"data.source={path}"])
    assert (changed.data.num_test, faults) == (0, [])
    assert [len(part) for part in gsm8k.parts(changed.data, 0)[:2]] == [number - held_out, held_out]


def test_a_smoke_run_insists_on_no_number_of_test_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It cuts that number down itself."""
    path = questions(tmp_path / "a.jsonl", 20)
    words = [
        GRPO,
        f"data.source={path}",
        "data.num_train=0",
        "data.num_test=64",
        SIZE,
        "--on",
        "cpu-1",
        "--only",
        "data",
    ]
    assert main(["plan", *words]) == 3
    assert main(["plan", *words, "--smoke", "3"]) == 0
    assert "data.num_test=0" in capsys.readouterr().err


def test_a_short_text_holds_out_one_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{n} and one more is {n + 1}. " for n in range(600)))
    recipe = load(
        "almodel-tiny", ["data.tokenizer=bytes", f"data.source={path}", "batch_size=4", "sequence_length=512"]
    )
    changed, faults = planned(recipe, [f"data.source={path}"])
    assert (changed.evaluation.num_batches, faults) == (1, [])
    assert planned(recipe, ["evaluation.num_batches=4"])[1] == ["too-few-tokens"]


def test_few_pairs_are_divided_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    (tmp_path / "a.png").write_bytes(b"")
    path.write_text("".join(json.dumps({"text": f"cat {n}", "image": "a.png"}) + "\n" for n in range(12)))
    recipe = load("phase1-tiny", [f"data.source={path}", "per_device_batch_size=4", "data.num_train=0"])
    changed, faults = planned(recipe, [f"data.source={path}"])
    assert (changed.data.num_test, faults) == (0, [])


def test_plan_and_dry_run_divide_alike(tmp_path: Path) -> None:
    path = questions(tmp_path / "a.jsonl", 60)
    words = ("qwen3-tiny-gsm8k-grpo", f"data.source={path}", "--on", "cpu-1")
    for result in (call("plan", *words), call("run", *words, "--dry-run", "--runs", str(tmp_path / "runs"))):
        assert result.code == 0 and "54 training examples" in result.stdout, result
        assert result.stderr.count("is too small for what qwen3-tiny-gsm8k-grpo holds out") == 1
    assert call("plan", *words, "data.num_test=64").code == 3
