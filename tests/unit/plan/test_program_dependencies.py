"""What a program of a recipe does not depend on: its text is the same with all of that changed."""

import jax
import pytest

from podwright.plan import kinds
from podwright.plan.compiled.compile import IRRELEVANT
from podwright.recipe import load
from podwright.recipe.dimensions import find
from podwright.rundir import flat
from podwright.train import aot, entry

GRPO = [
    *["data.source=elsewhere.jsonl", "data.num_train=7", "data.num_test=5", "data.max_operations=5"],
    "data.columns={question: q, answer: a}",
    *["data.instruction=x", "data.enable_thinking=true", "checkpoint.every_n_steps=3", "trackers=[tensorboard]"],
    *["grpo.dynamic_sampling=3", "grpo.mask_truncated=true", "grpo.overlong_buffer=2", "grpo.num_iterations=2"],
    *["grpo.loss=dapo", "grpo.epsilon=0.3", "grpo.epsilon_high=0.4", "grpo.kl=k2", "grpo.importance_cap=3"],
    *["rollout.top_k=3", "rollout.top_p=0.5", "rollout.min_p=0.2", "rollout.temperature=0.7", "batch_size=24"],
    *["optimizer.learning_rate=1e-3", "optimizer.warmup_ratio=0.3", "optimizer.b1=0.5", "optimizer.b2=0.6"],
    *["optimizer.weight_decay=0.3", "optimizer.max_grad_norm=3", "training.max_steps=0", "training.num_epochs=2"],
    *["training.gradient_accumulation_steps=2", "model.remat=layer", "evaluation.every_n_steps=9"],
    *["evaluation.batch_size=12", "warm_start.max_steps=11", "warm_start.batch_size=6", "warm_start.terse_share=0.1"],
    *["warm_start.learning_rate=0.5", "seed=7", "grpo.num_generations=4"],
    "rewards=[{function: podwright.train.grpo.reward:check_answer, weight: 0.5}]",
    "rewards_timeout=5",
]
PRETRAIN = [
    *["data.source=elsewhere.jsonl", "data.tokenizer=elsewhere", "data.eos_id=3", "data.num_documents=5"],
    "data.columns={text: body}",
    *["data.num_epochs=2", "checkpoint.every_n_steps=3", "trackers=[tensorboard]", "optimizer.learning_rate=1e-2"],
    *["optimizer.warmup_ratio=0.3", "optimizer.final_ratio=0.4", "optimizer.momentum=0.5"],
    *["optimizer.muon_weight_decay=0.3", "optimizer.b1=0.5", "optimizer.b2=0.6", "optimizer.weight_decay=0.3"],
    *["optimizer.max_grad_norm=3", "training.max_steps=77", "training.gradient_accumulation_steps=2"],
    *["evaluation.every_n_steps=9", "evaluation.num_batches=3", "seed=7"],
]
NOT_TYPED = ("name", "description", "expect")  # the same for every recipe


def left_out(key, program, part):
    return bool({*IRRELEVANT, *part.irrelevant(program)} & {key, key.partition(".")[0]})


def lowered(recipe, name):
    dims = find(recipe.model.name)
    program = entry.of(recipe.kind).programs(recipe, vars(dims), jax.devices()[:1])[name]
    sizes = {kind: list(aot._sizes(tree)) for kind, tree in program.resident.items()}
    return program.trace().lower().as_text(), sizes


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    ("recipe", "changes", "program"),
    [
        *(
            ("qwen3-tiny-arithmetic-grpo", GRPO, name)
            for name in ("update", "score", "rollout", "evaluate", "warm_start")
        ),
        *(("almodel-tiny", PRETRAIN, name) for name in ("update", "evaluate")),
    ],
)
def test_a_program_is_the_same_without_what_its_verdict_is_kept_without(recipe, changes, program):
    small = ["mesh.fsdp=1", "model.name=qwen3-micro"] if changes is GRPO else ["mesh.fsdp=1"]
    base = load.load(recipe, small)
    part = kinds.of(base)
    irrelevant = [change for change in changes if left_out(change.partition("=")[0], program, part)]
    other = load.load(recipe, [*small, *irrelevant])
    before, after = (flat(r.model_dump(mode="json")) for r in (base, other))
    unchanged = {key for key in before if left_out(key, program, part) and (key, before[key]) in after.items()}
    assert not {key for key in unchanged if key.partition(".")[0] not in NOT_TYPED}, "give these another value"
    assert lowered(other, program) == lowered(base, program)
