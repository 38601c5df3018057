"""One of several processes that sample, reward and test on meshes whose tensor axis crosses processes; prints what it came to know."""

import json
import sys

import jax

from podwright.data import gsm8k
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import param, qwen3
from podwright.recipe import load, schema
from podwright.recipe.models import Qwen3Dims
from podwright.train.grpo import program, prompts
from podwright.train.grpo.collect import Collector
from podwright.train.grpo.evaluate import Evaluator
from podwright.train.grpo.reward import LoadedReward
from podwright.train.mesh import from_first, make_mesh, start_processes

DIMS = Qwen3Dims(48, 96, 1, 6, 6, 16, 300, True)
RECIPE = [
    *("batch_size=6", "grpo.num_generations=2", "rollout.max_prompt_length=120", "rollout.total_generation_steps=6"),
    *("data.num_train=6", "data.num_test=10", "evaluation.batch_size=6"),
]


def sampled(mesh):
    recipe = load.load("qwen3-tiny-arithmetic-grpo", RECIPE)
    train, test = gsm8k.parts(recipe.data, recipe.seed)[:2]
    tokenizer = Tokenizer.train([e.question for e in train], DIMS.vocab_size)
    setup = program.GrpoSetup(recipe, DIMS, make_mesh(mesh), tokenizer.stop_ids, tokenizer.pad_id)
    made = program.programs(setup)
    params = jax.tree.map(lambda x: x * 10.0, param.initialize(qwen3.declare(DIMS), setup.mesh, 0))
    calls = []

    def reward(prompts, completions, question, **columns):
        values = [float(len(text) + sum(map(ord, q))) for q, text in zip(question, completions, strict=True)]
        calls.append(list(zip(question, values, strict=True)))
        return values

    training, testing = (
        prompts.tokenized(part, tokenizer, recipe.data).fitting(recipe.rollout.max_prompt_length, tokenizer.pad_id)
        for part in (train, test)
    )
    collector = Collector(setup, made, training, tokenizer, [LoadedReward("mine", reward, 1.0)])
    found = collector.sample(params, 0, 0)
    figures, flags, samples = Evaluator(setup, made["evaluate"], testing, tokenizer).run(params)
    order = training.indices(0, recipe.batch_size, recipe.seed)
    return {
        "calls": calls,
        "known": {
            "questions": [training.examples[i].question for i in order],
            "rewards": found.rewards["mine"].tolist(),
            "lengths": found.lengths_PG.tolist(),
            "test": {name: value for name, value in figures.items() if name != "seconds"},
            "flags": flags,
            "samples": samples,
            "first": from_first(lambda: {"process": jax.process_index(), "text": "é" * 1000}),
            "refused": refused(),
        },
    }


def refused():
    """What every process gets to know of a fault that only the first one meets."""
    try:
        from_first(lambda: load.load("no-such-recipe"))
    except UserError as e:
        return e.what


if __name__ == "__main__":
    start_processes()
    meshes = [schema.GrpoMesh(data=1, fsdp=1, tensor=6), schema.GrpoMesh(data=3, fsdp=1, tensor=2)]
    print(json.dumps([sampled(mesh) for mesh in meshes]), file=open(sys.argv[1], "w"), flush=True)  # noqa: SIM115
