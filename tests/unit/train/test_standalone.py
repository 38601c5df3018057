"""Which questions an evaluation asks: all of a foreign file, the held-out part of a run's own."""

import datasets
import jax
import numpy as np
import pytest
import safetensors.numpy

from podwright.attention_kernels import Layout
from podwright.data import gsm8k
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import param, qwen3
from podwright.recipe import schema
from podwright.recipe.models import find
from podwright.rundir import RunDir, append_jsonl, write_json
from podwright.storage import inputs, open_storage
from podwright.train import attention_check, checkpoint
from podwright.train.grpo import standalone
from podwright.train.mesh import make_mesh
from podwright.train.run_storage import RunStorage
from tests.unit.models import made as random_weights
from tests.unit.models import reference
from tests.unit.train import small


@pytest.fixture
def file(tmp_path):
    for n in range(30):
        append_jsonl(tmp_path / "data.jsonl", {"question": f"{n}+1?", "answer": f"#### {n + 1}"})
    return tmp_path / "data.jsonl"


def test_a_foreign_file_is_used_whole(file):
    assert len(standalone._questions(small.recipe(), str(file), "", RunDir(file.parent))) == 30


def test_of_its_own_file_a_run_is_asked_only_what_it_did_not_train_on(file):
    recipe = small.recipe(f"data.source={file}", "data.num_train=0", "data.num_test=4")
    run = RunDir(file.parent)
    asked = standalone._questions(recipe, str(file), "", run)
    assert len(asked) == 4
    assert asked == standalone._questions(recipe, str(file.parent / "." / "data.jsonl"), "", run)
    assert asked == standalone._questions(recipe, "", "", run)


def test_without_data_a_run_is_asked_the_generated_questions_that_it_was_tested_on(file):
    recipe = small.recipe("data.num_train=30", "data.num_test=5")
    asked = standalone._questions(recipe, "", "", RunDir(file.parent))
    assert asked == gsm8k.parts(recipe.data, recipe.seed).test and len(asked) == 5


def test_without_data_the_test_part_of_a_set_on_the_hub_is_asked(file, tmp_path, monkeypatch):
    table = datasets.Dataset.from_json(str(file), cache_dir=str(tmp_path))
    parts = {"train": table.select(range(20)), "test": table.select(range(20, 30))}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *_, streaming: parts if name == "some/set" else None)
    recipe = small.recipe("data.source=some/set", "data.num_train=0", "data.num_test=4")
    asked = standalone._questions(recipe, "", "", RunDir(tmp_path))
    assert [e.question for e in asked] == ["20+1?", "21+1?", "22+1?", "23+1?"]


def test_the_file_that_a_run_in_a_storage_was_started_with_is_its_own(file, tmp_path):
    """What it trained on is a copy in its directory then."""
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    recipe = small.recipe(f"data.source={file}", "data.num_train=0", "data.num_test=4")
    write_json(run.recipe, recipe.model_dump(mode="json"))
    write_json(run.storage, {"url": str(tmp_path / "kept")})
    inputs.upload(run, recipe.model_dump(mode="json"), tmp_path, open_storage(run.storage_url))
    copied = standalone._recipe_for(run.path)
    assert copied.data.source != recipe.data.source
    asked = standalone._questions(copied, str(file), str(file), run)
    assert asked == standalone._questions(recipe, str(file), "", run) and len(asked) == 4


@pytest.fixture
def begun(tmp_path):
    """A run that has the weights of step 0 and a tokenizer, and no checkpoint."""
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    write_json(run.recipe, small.recipe("model.name=qwen3-micro").model_dump(mode="json"))
    Tokenizer.train(["What is 3+4?"], 384).save(run.tokenizer)
    weights = param.initialize(qwen3.declare(find("qwen3-micro")), make_mesh(schema.GrpoMesh(), jax.devices()[:1]), 0)
    checkpoint.save_weights(RunStorage(run), weights)
    return run


def test_a_run_before_its_first_step_is_exported_as_it_starts(begun, tmp_path):
    assert standalone.export(begun.path, tmp_path / "out")["step"] == 0


@pytest.mark.parametrize("record", ["step", "checkpoint"])
def test_a_trained_run_whose_checkpoints_are_gone_is_not_exported_as_it_started(begun, tmp_path, record):
    if record == "step":
        append_jsonl(begun.metrics, {"time": 1.0, "stage": "warm_start", "step": 90, "loss": 1.0})
        append_jsonl(begun.metrics, {"time": 2.0, "stage": "grpo", "step": 3, "loss": 1.0})
    else:
        append_jsonl(begun.events, {"time": 2.0, "event": "checkpoint", "step": 3})
    words = r"run r was trained to step 3, and there is no checkpoint in .*/r/checkpoints; bring one back from a copy"
    with pytest.raises(UserError, match=words):
        standalone.export(begun.path, tmp_path / "out")
    with pytest.raises(UserError, match=words):
        standalone.evaluate(begun.path, "arithmetic", 2)
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_directory_to_export_to(begun, tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match=r"out is a file, and a directory is written; name a directory that"):
        standalone.export(begun.path, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_option_of_eval_is_named_and_not_the_key_of_a_recipe(begun, file, tmp_path, monkeypatch):
    monkeypatch.chdir(file.parent)
    with pytest.raises(UserError) as refused:
        standalone.evaluate(begun.path, f"{file.name} ", 2)
    assert str(refused.value) == f"--data='{file.name} ' is not there; did you mean --data={file.name}?"


def test_a_run_without_its_tokenizer_is_not_advised_to_take_another(begun, tmp_path):
    (begun.tokenizer / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer has no tokenizer\.json; bring it back from a copy$"):
        standalone.export(begun.path, tmp_path / "out")


def test_an_export_of_adapters_has_their_products_added_to_the_base(begun, tmp_path):
    recipe = small.recipe("model.name=qwen3-micro", "model.lora_rank=2", "model.lora_alpha=3")
    write_json(begun.recipe, recipe.model_dump(mode="json"))
    policy = random_weights.policy(find("qwen3-micro"), make_mesh(schema.GrpoMesh(), jax.devices()[:1]), 2)
    checkpoint.save_weights(RunStorage(begun), policy.base)
    with checkpoint.Checkpoints(RunStorage(begun), 3) as checkpoints:
        checkpoints.save(2, {"params": policy.adapters}, {"step": 2})
    assert standalone.export(begun.path, tmp_path / "out")["step"] == 2
    exported = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    for name in ("down", "gate"):
        base = np.asarray(policy.base["layers"][name][1])
        a, b = (np.asarray(policy.adapters["layers"][name][k][1]) for k in "ab")
        weight = exported[f"model.layers.1.mlp.{name}_proj.weight"].T
        np.testing.assert_allclose(weight, base + 1.5 * a @ b, rtol=1e-4, atol=1e-4)
        assert np.abs(weight - base).max() > 0.1


@pytest.fixture
def saved(begun):
    """The run with a checkpoint of step 2, and records up to step 3."""
    declared = qwen3.declare(find("qwen3-micro"))
    weights = param.initialize(declared, make_mesh(schema.GrpoMesh(), jax.devices()[:1]), 0)
    with checkpoint.Checkpoints(RunStorage(begun), 3) as checkpoints:
        checkpoints.save(2, {"params": weights}, {"step": 2})
    append_jsonl(begun.metrics, {"time": 2.0, "stage": "grpo", "step": 2, "loss": 1.0})
    return begun


def test_an_export_of_an_older_step_than_the_records_reach_names_both(saved, tmp_path, capsys):
    assert standalone.export(saved.path, tmp_path / "newest")["step"] == 2 and "warning" not in capsys.readouterr().err
    append_jsonl(saved.metrics, {"time": 3.0, "stage": "grpo", "step": 3, "loss": 1.0})
    assert standalone.export(saved.path, tmp_path / "older")["step"] == 2
    said = (
        f"warning: the newest checkpoint in {saved.checkpoints} is of step 2, and the run was trained to step 3; type"
    )
    assert said in capsys.readouterr().err
    write_json(saved.exit(1), {"ending": "FINISHED", "step": 3})
    standalone.export(saved.path, tmp_path / "finished")
    assert "to step 3; bring a later one back from a copy of the run" in capsys.readouterr().err


def test_an_evaluation_compares_the_kernels_of_its_card_before_it_compiles(begun, file, monkeypatch):
    class StopError(Exception):
        pass

    def refused(mesh, heads, layouts, folder):
        raise StopError(heads.dtype, *layouts)

    monkeypatch.setattr(attention_check, "refused", refused)
    monkeypatch.setattr(standalone.program, "programs", None)
    with pytest.raises(StopError) as stopped:
        standalone.evaluate(begun.path, str(file), 2)
    assert set(stopped.value.args) == {"float32", Layout.CAUSAL, Layout.DECODE}


@pytest.mark.long
def test_overrides_that_an_evaluation_does_not_use_are_named(begun, file, tmp_path, capsys):
    exported = tmp_path / "out"
    small_test = ["evaluation.batch_size=2", "rollout.total_generation_steps=4", "rollout.max_prompt_length=64"]
    standalone.export(begun.path, exported)
    capsys.readouterr()
    standalone.evaluate(begun.path, str(file), 2, [*small_test, "batch_size=3", "optimizer={learning_rate: 1e-3}"])
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        f"warning: {text} has no effect on eval of {begun.path}: leave it out"
        for text in ("batch_size=3", "optimizer={learning_rate: 1e-3}")
    ]
    standalone.evaluate(exported, str(file), 2, [*small_test, "model.source=x", "data.instruction=Answer."])
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [f"warning: model.source=x has no effect on eval of {exported}: leave it out"]


def test_a_directory_without_a_record_is_asked_for_answers_that_its_positions_hold(tmp_path):
    """Its checkpoint has 512 positions, and the shipped recipe prompts of up to 256 and answers of up to 2048 tokens."""
    reference.checkpoint(tmp_path)
    rollout = standalone._recipe_for(tmp_path).rollout
    assert (rollout.max_prompt_length, rollout.total_generation_steps) == (256, 256)
