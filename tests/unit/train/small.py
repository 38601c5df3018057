"""A recipe and a setup small enough to run every program in seconds, on any mesh."""

import jax
import numpy as np

from podwright.models import param, qwen3
from podwright.recipe import load, schema
from podwright.recipe.models import Qwen3Dims
from podwright.train.grpo import loss, program
from podwright.train.mesh import make_mesh, to_device

DIMS = Qwen3Dims(32, 64, 2, 4, 2, 16, 96, True)
STOP, PAD = (1, 2), 0


def recipe(*overrides, **sections):
    base = [
        "batch_size=8",
        "grpo.num_generations=4",
        "rollout.max_prompt_length=6",
        "rollout.total_generation_steps=8",
        "grpo.beta=0.1",
        "warm_start.batch_size=8",
    ]
    return load.load("qwen3-tiny-arithmetic-grpo", [*base, *overrides])


def setup(*overrides, mesh=(1, 1, 1), dims=DIMS):
    data, fsdp, tensor = mesh
    devices = jax.devices()[: data * fsdp * tensor]
    return program.GrpoSetup(
        recipe(*overrides), dims, make_mesh(schema.GrpoMesh(data=data, fsdp=fsdp, tensor=tensor), devices), STOP, PAD
    )


def params(s, seed=0, scale=10.0):
    """Weights with logits far from uniform."""
    values = param.initialize(qwen3.declare(s.dims), s.mesh, seed)
    return jax.tree_util.tree_map_with_path(lambda path, x: x if "norm" in str(path[-1]) else x * scale, values)


def rate(s, number):
    """The learning rate of update `number`, from 0."""
    return np.float32(program.policy_schedule(s.recipe)(number))


def prompts(s, seed=0):
    rng = np.random.default_rng(seed)
    r = s.recipe
    tokens = rng.integers(3, s.dims.vocab_size, (r.batch_size, r.rollout.max_prompt_length)).astype(np.int32)
    lengths = rng.integers(2, r.rollout.max_prompt_length + 1, r.batch_size).astype(np.int32)
    return to_device(tokens, s.mesh), to_device(lengths, s.mesh)


def batch(s, made, policy, reference=None, seed=0):
    """A rollout of `policy` with made-up rewards, as the update takes it."""
    tokens, lengths = prompts(s, seed)
    out = made["rollout"](policy, tokens, lengths, np.int32(seed))
    group = qwen3.Group(tokens, lengths, out.tokens_PGT)
    rewards = np.random.default_rng(seed).normal(size=out.lengths_PG.shape)
    scores = made["score"](reference, group) if reference is not None else None
    return program.GrpoBatch(
        group,
        out.lengths_PG,
        to_device(np.ones(out.lengths_PG.shape, bool), s.mesh),
        to_device(loss.advantages(rewards, s.recipe.grpo.loss), s.mesh),
        out.logps_PGT,
        None,
        scores,
    )
