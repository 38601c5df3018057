"""Every finding, by the recipe that causes it: what is wrong, then what to type."""

import ast
import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from podwright.cli.app import main
from podwright.cli.exit_codes import ExitCode
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.plan.checks import rewards
from podwright.plan.document import Plan
from podwright.plan.findings import Finding, Verdict, verdict_of
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.load import load, shipped
from podwright.recipe.models import find
from podwright.slices import parse
from tests.unit.plan.static import SMALL_CONFIG, check

REWARD = "def score(prompts, completions, **columns):\n    return [0.0] * len(prompts)\n"
CONFIG = SMALL_CONFIG | {"tie_word_embeddings": True}


def findings(folder: Path, *overrides: str, devices: int | None = None) -> list[Finding]:
    (folder / "reward.py").write_text(REWARD)
    base = ("model.name=qwen3-micro", "rewards=[{function: 'reward.py:score'}]")
    return check(
        load("qwen3-tiny-arithmetic-grpo", [*base, *overrides]), parse(f"cpu-{devices}") if devices else None, folder
    )


def faults(found: list[Finding]) -> list[str]:
    return [f"{f.message}; {f.fix}" for f in found if f.level == "error"]


def said(found: list[Finding]) -> str:
    return "\n".join(f.message for f in found)


def test_a_good_recipe_has_no_faults_and_says_how_long_the_data_lasts(tmp_path: Path) -> None:
    found = findings(tmp_path, "batch_size=16", "training.max_steps=100", "data.num_train=400")
    assert faults(found) == []
    assert "1,600 prompts out of 400 training examples: 4 epochs; one epoch is 25 steps" in said(found)


def test_epochs_are_steps_by_the_data_and_the_batch(tmp_path: Path) -> None:
    epochs = ("training.max_steps=0", "batch_size=16", "data.num_train=403")
    # 403 = 25 * 16 + 3: a remainder of 3 in one pass, of 2 * 403 - 50 * 16 = 6 in two
    for number, steps, prompts in ((1, 25, "400"), (2, 50, "800"), (16, 403, "6,448")):
        found = findings(tmp_path, *epochs, f"training.num_epochs={number}")
        assert faults(found) == []
        assert f"training.num_epochs={number} of 403 examples is {steps} steps" in said(found)
        assert f"{prompts} prompts out of 403 training examples" in said(found)
    assert "is 2,147,483,647 steps" in said(findings(tmp_path, *epochs, "training.num_epochs=2147483647"))


def test_a_plan_bills_the_steps_that_epochs_come_to(tmp_path: Path) -> None:
    epochs = ["training.max_steps=0", "training.num_epochs=1", "batch_size=16", "data.num_train=403", "mesh.fsdp=8"]
    destination = Destination("v6e-8", parse("v6e-8"))
    planned = make(load("qwen3-tiny-arithmetic-grpo", epochs), destination)
    assert planned.step is not None and planned.step.run is not None and planned.step.run.steps == 25
    hub = ["training.max_steps=0", "training.num_epochs=1"]
    unread = make(load("qwen3-1.7b-gsm8k-grpo", hub), destination)
    assert "steps of training.num_epochs=1 are counted when the run has read" in said(list(unread.findings))
    assert unread.step is None or unread.step.run is None


def test_dynamic_sampling_may_use_the_data_up_sooner(tmp_path: Path) -> None:
    found = findings(
        tmp_path, "batch_size=16", "training.max_steps=100", "data.num_train=400", "grpo.dynamic_sampling=1"
    )
    assert "4 to 8 epochs; one epoch is 12 to 25 steps" in said(found)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("model.name=qwen3-micr", "model.name='qwen3-micr' is not a known model; type model.name=qwen3-micro"),
        ("model.source=ranom", "there is no model.source=ranom; did you mean model.source=random?"),
        ("model.source=./weights", "model.source=./weights is not there; check the path"),
        ("data.source=arithmetics", "there is no data.source=arithmetics; did you mean data.source=arithmetic?"),
        ("data.source=none.jsonl", "data.source=none.jsonl is not there; check the path"),
        ("data.num_train=0", "data.source=arithmetic has no training examples; type data.num_train=1000"),
        ("data.num_train=8", "batch_size=16 is more than the 8 training examples; type batch_size=8 or less"),
        ("rewards=[{function: score}]", "reward 'score' names no function; write file.py:function"),
        ("rewards=[{function: 'none.py:score'}]", "there is no reward file none.py; check the path"),
        ("rewards=[{function: 'reward.py:scor'}]", "defines no function 'scor'; did you mean score?"),
        (
            "rewards=[{function: 'podwright.trian.x:f'}]",
            "there is no reward module podwright.trian.x; check the spelling",
        ),
        (
            "model.lora_rank=33",
            "model.lora_rank=33 is more than the hidden size of qwen3-micro, 32; type model.lora_rank=16, or 0",
        ),
        ("mesh.fsdp=0", "mesh.fsdp=0 is no number of devices; type mesh.fsdp=-1"),
        ("mesh.tensor=2", "mesh.tensor=2 does not divide 1 key/value heads; type mesh.tensor=1"),
        (
            "mesh.fsdp=32",
            "batch_size=16 cannot be split over 32 batch shards (data x fsdp) x 1 micro-batches; type batch_size=32",
        ),
        (
            "mesh.fsdp=3",
            "mesh.fsdp=3 does not divide a hidden size of 32; type mesh.fsdp=1 mesh.data=3",
        ),
        (
            "rollout.total_generation_steps=2000",
            "rollout.max_prompt_length=56 and rollout.total_generation_steps=2000 are 2,056 tokens, the model has 2,048 "
            "positions; type rollout.max_prompt_length=72 rollout.total_generation_steps=1976",
        ),
    ],
)
def test_a_fault_says_what_is_wrong_and_what_to_type(tmp_path: Path, override: str, fault: str) -> None:
    (found,) = faults(findings(tmp_path, override))
    assert fault in found


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["mesh.fsdp=1"], "mesh.data x fsdp x tensor = 1, not 4 devices; type mesh.fsdp=4"),
        (
            ["mesh.data=3", "mesh.fsdp=-1"],
            "mesh.data x mesh.tensor = 3 does not divide 4 devices; type mesh.data=4 mesh.fsdp=1",
        ),
        (
            ["mesh.fsdp=-1", "warm_start.batch_size=6"],
            "warm_start.batch_size=6 cannot be split over 4 batch shards (data x fsdp); type warm_start.batch_size=8",
        ),
        (["mesh.fsdp=-1", "batch_size=6"], "batch_size=6 cannot be split over 4 batch shards"),
        (
            ["mesh.fsdp=-1", "batch_size=12", "training.gradient_accumulation_steps=2"],
            "over 4 batch shards (data x fsdp) x 2 micro",
        ),
    ],
)
def test_a_mesh_is_checked_against_known_devices(tmp_path: Path, overrides: list[str], fault: str) -> None:
    (found,) = faults(findings(tmp_path, *overrides, devices=4))
    assert fault in found


def model_directory(folder: Path, **changes: Any) -> str:
    """With weights that fit it, where it is one that we read."""
    (folder / "m").mkdir()
    config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
    (folder / "m" / "config.json").write_text(json.dumps(config))
    Tokenizer.train([], 261).save(folder / "m")
    with contextlib.suppress(UserError):
        shapes = hf_weights.qwen3(hf_config.qwen3(config))
        tensors = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}
        save_file(tensors, folder / "m" / "model.safetensors")
    return "model.source=m"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"hidden_size": 64, "vocab_size": 400},
            "model.source=m is no qwen3-micro: it has hidden_size=64 instead of 32, vocab_size=400 instead of 384; change",
        ),
        (
            {"model_type": "qwen3_moe"},
            "model.source=m: config.json says model_type='qwen3_moe'; give a directory of a dense Qwen3",
        ),
        ({"num_hidden_layers": None}, "config.json has no num_hidden_layers; give the checkpoint's own"),
    ],
)
def test_a_model_directory_must_fit(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    (found,) = faults(findings(tmp_path, model_directory(tmp_path, **changes)))
    assert fault in found


def test_a_checkpoint_of_a_model_that_we_do_not_know_goes_by_its_config(tmp_path: Path) -> None:
    source = model_directory(tmp_path, hidden_size=64, max_position_embeddings=50)
    found = findings(tmp_path, source, "model.name=mine")
    assert "the model has 50 positions" in faults(found)[0] and len(faults(found)) == 1
    assert "mine has" in said(found) and "qwen3-micro" not in said(found)
    found = findings(tmp_path, "model.source=some/model", "model.name=mine")
    assert faults(found) == [] and "parameters" not in said(found)


def test_a_model_directory_must_be_readable_and_hold_weights(tmp_path: Path) -> None:
    source = model_directory(tmp_path)
    assert faults(findings(tmp_path, source, "rollout.max_prompt_length=300")) == []
    (tmp_path / "m/tokenizer.json").unlink()
    assert "m has no tokenizer.json; give a Hugging Face directory" in faults(findings(tmp_path, source))[0]
    (tmp_path / "m/model.safetensors").write_bytes(b"half")
    assert "m/model.safetensors cannot be read" in faults(findings(tmp_path, source))[0]
    (tmp_path / "m/config.json").write_text("{")
    assert "m has no readable config.json (it is not JSON); give a Hugging" in faults(findings(tmp_path, source))[0]


def test_a_model_directory_without_weights_can_be_planned_but_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model_directory(tmp_path)
    (tmp_path / "m/model.safetensors").unlink()
    monkeypatch.chdir(tmp_path)
    overrides = ["model.name=qwen3-micro", source, "rollout.max_prompt_length=300"]
    plan = make(load("qwen3-tiny-arithmetic-grpo", overrides), Destination("v6e-1", parse("v6e-1")))
    assert plan.verdict is Verdict.INCONCLUSIVE and plan.memory and plan.step
    (finding,) = [f for f in plan.findings if f.level == "inconclusive"]
    assert "m has a config.json and no weights, which a run needs; put model.safetensors there" in str(
        UserError(finding.message, finding.fix, finding.code)
    )
    assert main(["run", "qwen3-tiny-arithmetic-grpo", *overrides]) == ExitCode.REFUSED
    assert "model.source=m has a config.json and no weights; put model.safetensors there" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            "def score(prompts, completions): pass",
            "cannot be a reward: got an unexpected keyword argument 'question'; write `def score(prompts, completions, **",
        ),
        ("def score(prompts, completions, /, **columns): pass", "cannot be a reward: "),
        (
            "def score(prompts, completions, ground_truth, **columns): pass",
            "missing a required argument: 'ground_truth'",
        ),
        ("def score(prompts, completions, *, target, **columns): pass", "missing a required"),
        ("def other(): pass", "defines no function 'score'; add `def score(prompts, completions, **columns)`"),
        ("def score(:\n", "line 1 is not Python"),
    ],
)
def test_a_reward_must_have_the_signature(tmp_path: Path, source: str, fault: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    (found,) = faults(findings(tmp_path, "rewards=[{function: 'mine.py:score'}]"))
    assert fault in found


def test_a_fault_of_cpythons_parser_among_threads_is_none_of_a_reward_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("def score(prompts, completions, **columns): ...\n")
    parse, faults_left = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=207, after=76)")]

    def disturbed(*given: str) -> ast.AST:
        if faults_left:
            raise faults_left.pop()
        return parse(*given)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert rewards.rewards("mine.py:score", tmp_path) == [] and not faults_left


def test_rewards_are_read_and_never_run(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys\nsys.exit('it was run')\n" + REWARD)
    (tmp_path / "made.py").write_text("score = object()\n")
    two = "rewards=[{function: 'mine.py:score'}, {function: 'made.py:score'}, {function: 'no_such_package.x:f'}]"
    found = findings(tmp_path, two)
    assert faults(found) == []
    assert [f.level for f in found if f.check == "rewards"] == ["inconclusive", "inconclusive"]


@pytest.mark.long
def test_a_reward_for_thoughts_that_the_prompt_ends_is_warned_of(tmp_path: Path) -> None:
    named = "rewards=[{function: 'podwright.train.grpo.reward:format_reward'}]"
    rewards = [f for f in findings(tmp_path, named, "data.enable_thinking=false") if f.check == "rewards"]
    (found,) = [f for f in rewards if f.level == "warning"]
    assert "format_reward looks for <think>" in found.message and found.fix.startswith("type data.enable_thinking=true")
    for other in (("data.enable_thinking=true", named), (named.replace("format_reward", "check_answer"),)):
        assert not [f for f in findings(tmp_path, *other) if (f.check, f.level) == ("rewards", "warning")]


@pytest.mark.parametrize(
    "arguments",
    [
        "prompts, completions, answer, k=1, **columns",
        "prompts, completions, question, answer, solution",
        "completions, **others",
        "prompts: list[str], *, completions: list[str], k: Unknown = unknown(), **columns",
    ],
)
def test_a_reward_that_training_can_call_is_right(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "mine.py").write_text(f"def score({arguments}): pass")
    assert rewards.rewards("mine.py:score", tmp_path) == []


@pytest.mark.parametrize("name", list(shipped()))
def test_what_we_ship_will_run(name: str) -> None:
    found = faults(check(load(name), None, Path.cwd()))
    if name in ("phase1-aligner", "phase2-qwen2.5-0.5b-cluster"):  # they name files that their user has
        found = [f for f in found if "is not there" not in f and "timm not installed" not in f]
    assert found == []


def test_legal_tensor_sizes_divide_every_sharded_dim(tmp_path: Path) -> None:
    (found,) = faults(check(load("qwen3-1.7b-gsm8k-grpo", ["mesh.tensor=3"]), None, tmp_path))
    assert "type mesh.tensor=1" in found
    assert dataclasses.asdict(find("qwen3-1.7b"))["num_kv_heads"] == 8


def test_the_worst_finding_decides_the_verdict() -> None:
    warning, unseen, error = (Finding("a", level, level, "type this") for level in ("warning", "inconclusive", "error"))
    assert verdict_of([]) == verdict_of([warning]) == "ok"
    assert verdict_of([warning, unseen]) == "inconclusive"
    assert verdict_of([warning, unseen, error]) == "refused"


def test_the_first_error_of_a_plan_is_raised() -> None:
    error = Finding("b", "error", "wrong", "type this")
    made = Plan(recipe="r", target="local", slice=None, verdict=Verdict.REFUSED, findings=(error, error))
    assert made.document()["ok"] is False and made.document()["programs"] == [] and made.document()["step"] == {}
    with pytest.raises(UserError, match=r"wrong \(and 1 more: `podwright plan` shows all\); type this"):
        made.refuse()


@pytest.mark.parametrize(
    ("reference", "fix"),
    [
        ("os:system", "name a function in a file of yours, file.py:system, that begins `def system("),
        ("json:loads", "name a function in a file of yours, file.py:loads, that begins `def loads("),
        ("podwright.train.grpo.reward:chek_answer", "did you mean check_answer?"),
    ],
)
def test_nobody_is_advised_to_edit_a_module_of_others(tmp_path: Path, reference: str, fix: str) -> None:
    (finding,) = rewards.rewards(reference, tmp_path)
    assert finding.level == "error" and finding.fix.startswith(fix), finding


def test_of_a_length_above_the_positions_a_plan_says_one_remedy() -> None:
    recipe = load("qwen3-tiny-gsm8k-grpo", ["rollout.total_generation_steps=100000000", "mesh.fsdp=-1"])
    plan = make(recipe, Destination("local", here=True))
    assert {f.check for f in plan.findings if "rollout.total_generation_steps=" in f.fix} == {"context"}
