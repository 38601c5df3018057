"""plan.json is read back as it was made; one that is damaged or of another version is refused in a line."""

import json
from pathlib import Path

import pytest

from podwright import __version__
from podwright.errors import UserError
from podwright.plan.document import Plan, StepEntry
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe.load import load
from podwright.rundir import write_json
from podwright.slices import parse


def made(*overrides: str, on: str = "v6e-8") -> Plan:
    return make(load("qwen3-1.7b-gsm8k-grpo", ["batch_size=32", *overrides]), Destination(on, parse(on)))


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = made()
    write_json(tmp_path / "plan.json", plan.document())
    read = Plan.read(tmp_path / "plan.json")
    assert read == plan and read.document() == plan.document()
    assert list(plan.document()) == [
        *("version", "recipe", "target", "slice", "verdict", "ok", "findings", "memory", "programs", "step")
    ]


def test_without_a_compiler_the_time_of_a_grpo_step_is_estimated() -> None:
    step = made().step
    assert step is not None and step.estimated and step.step_s == sum(p.seconds for p in step.programs)
    assert [p.name for p in step.programs] == ["rollout", "score", "update"]
    assert step.run.hours == 467 * step.step_s / 3600 and "estimated in closed form" in step.notes[0]
    assert "--compile reads the times" in step.notes[0]
    on_gpu = made("batch_size=16", "rollout.total_generation_steps=256", on="1xH200-141GB").step
    assert on_gpu and "--compile" not in on_gpu.notes[0], "no compiler answers for GPUs"
    assert made(on="cpu-8").step is None, "no data sheet says how fast it is"
    assert made("model.source=some/model", "model.name=mine").step is None, "the dimensions are not known"
    assert made("mesh.fsdp=7").step is None, "what is refused takes no time"


def test_without_a_compiler_the_time_of_a_step_of_pretraining_is_estimated() -> None:
    def step(name: str, on: str, *overrides: str) -> StepEntry | None:
        return make(load(name, list(overrides)), Destination(on, parse(on))).step

    planned = step("qwen3-0.6b-pretrain", "v6e-8")
    # libtpu's program takes 1.777 s (docs/log.md)
    assert planned and planned.estimated and planned.step_s == pytest.approx(1.777, rel=0.1)
    assert planned.tokens_per_s_per_device == 128 * 4096 / planned.step_s / 8 and planned.mfu
    assert planned.run.hours == 20_000 * planned.step_s / 3600 and "estimated in closed form" in planned.notes[0]
    assert step("qwen3-0.6b-pretrain", "cpu-8") is None, "no data sheet says how fast it is"
    assert step("qwen3-0.6b-pretrain", "v6e-8", "mesh.fsdp=7") is None, "what is refused takes no time"


def test_memory_that_nobody_estimated_is_inconclusive() -> None:
    plan = make(load("phase2-tiny"), Destination("4xA100-40GB", parse("4xA100-40GB")))
    (unseen,) = [f for f in plan.findings if f.level == "inconclusive" and f.check == "memory"]
    assert (plan.verdict, unseen.fix) == ("inconclusive", "type --compile")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "cannot be read (it is no plan in JSON)"),
        ("[]", "cannot be read (it is no plan in JSON)"),
        (
            json.dumps({"recipe": "r", "target": "t", "slice": None, "ok": True, "findings": []}),
            f"by a Podwright that did not write its version, and {__version__} cannot read it",
        ),
        (json.dumps({"version": "9.1", "recipe": 1}), f"by Podwright 9.1, and {__version__} cannot read it"),
        (json.dumps({"version": __version__, "recipe": 1}), "plan.json is damaged"),
    ],
)
def test_a_plan_of_another_version_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError) as refused:
        Plan.read(tmp_path / "plan.json")
    assert what in refused.value.what and "\n" not in str(refused.value)
