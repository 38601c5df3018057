"""The real trainer on a checkpoint that the hub's cache holds: any name, and the same commit after a resume."""

import jax
import pytest

from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import convert, param, qwen3
from podwright.recipe import schema
from podwright.recipe.models import Qwen3Dims
from podwright.rundir import append_jsonl, read_jsonl
from podwright.train.grpo import standalone
from podwright.train.mesh import make_mesh
from tests.e2e.trainer import finish, prepare, start

A, B = "a" * 40, "b" * 40
DIMS = Qwen3Dims(16, 32, 1, 2, 1, 8, 300, True)  # no row of the table


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A hub cache that holds a whole model at commit A and a wrong one at commit B."""
    cache = tmp_path_factory.mktemp("hub")
    folder = cache / "models--some--model"
    mesh = make_mesh(schema.GrpoMesh(), jax.devices()[:1])
    weights = param.initialize(qwen3.declare(DIMS), mesh, 0)
    tokenizer = Tokenizer.train(["How many apples does Tom have?"], DIMS.vocab_size)
    good = folder / "snapshots" / A
    convert.write(good, DIMS, weights, mesh, "float32", tokenizer.stop_ids, tokenizer.pad_id)
    tokenizer.save(good)
    (folder / "snapshots" / B).mkdir()
    (folder / "snapshots" / B / "config.json").write_text('{"model_type": "other"}')
    (folder / "refs").mkdir()
    return cache


@pytest.mark.long
def test_eval_of_a_directory_takes_overrides_and_a_foreign_file_whole(hub, tmp_path):
    model = hub / "models--some--model/snapshots" / A
    data = tmp_path / "data.jsonl"
    for n in range(5):
        append_jsonl(data, {"question": f"{n}+1?", "answer": f"#### {n + 1}"})
    found = standalone.evaluate(model, str(data), 0, ["rollout.total_generation_steps=4", "evaluation.batch_size=2"])
    assert found["num"] == 5 and found["mean_tokens"] <= 4
    with pytest.raises(
        UserError, match=r"unknown key rollout\.total_generation; did you mean rollout\.total_generation_steps"
    ):
        standalone.evaluate(model, str(data), 0, ["rollout.total_generation=4"])
    with pytest.raises(UserError, match=r"the model has 40,960 positions; type rollout\.total_generation_steps=40704"):
        standalone.evaluate(
            model, str(data), 0, ["rollout.total_generation_steps=40800", "rollout.max_prompt_length=256"]
        )


def moves_to(hub, commit):
    (hub / "models--some--model/refs/main").write_text(commit)


@pytest.mark.long
def test_a_resume_uses_the_commit_that_the_run_began_with(hub, tmp_path):
    from_hub = {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    moves_to(hub, A)
    sizes = ["rollout.max_prompt_length=120", "training.max_steps=1", "data.num_train=16", "data.num_test=4"]
    run = prepare(tmp_path / "run", "model.name=mine", "model.source=some/model", "warm_start=null", *sizes)
    end = finish(run, start(run, **from_hub))
    assert end["ending"] == "FINISHED", end
    moves_to(hub, B)
    end = finish(run, start(run, attempt=2, **from_hub), attempt=2)
    assert end["ending"] == "FINISHED", end
    assert [e["model_revision"] for e in read_jsonl(run.events) if e["event"] == "environment"] == [A, A]
    other = prepare(tmp_path / "other", "model.name=mine", "model.source=some/model", "warm_start=null", *sizes)
    end = finish(other, start(other, **from_hub))
    assert end["ending"] == "BAD_INPUT" and "model_type='other'" in end["detail"] and "Traceback" not in end["log"]
