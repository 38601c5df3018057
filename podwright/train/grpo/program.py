"""The programs of GRPO: rollout, score, update, and the supervised warm start; each built here and nowhere else.

Shape suffixes: P prompts, S prompt tokens, G completions per prompt, T completion tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.models import logits, lora, param, qwen3
from podwright.recipe.models import Qwen3Dims, logits_chunk
from podwright.recipe.schema import GrpoRecipe
from podwright.train import optimizer
from podwright.train.grpo import loss, rollout
from podwright.train.mesh import batch_sharding
from podwright.train.program import RATE, Program

Tree = Any


class GrpoState(NamedTuple):
    """What training changes, and all that a checkpoint holds on the device. With LoRA, `params` are the adapters."""

    params: Tree
    opt_state: Tree


class GrpoBatch(NamedTuple):
    """One step's rollouts with their advantages. `old` and `reference` may be None (see loss.Inputs)."""

    group: qwen3.Group
    lengths_PG: Array
    counted_PG: Array
    """False leaves a completion out of the loss"""
    advantages_PG: Array
    sampler_PGT: Array
    old_PGT: Array | None
    reference_PGT: Array | None


@dataclasses.dataclass(frozen=True)
class GrpoSetup:
    """A recipe on a mesh: what every program is built from."""

    recipe: GrpoRecipe
    dims: Qwen3Dims
    mesh: Mesh
    stop_ids: tuple[int, ...]
    pad_id: int

    @property
    def dtype(self) -> Any:
        return jnp.dtype(self.recipe.model.compute_dtype)

    @property
    def dense(self) -> GrpoSetup:
        """The same without adapters: what the warm start trains."""
        model = self.recipe.model.model_copy(update={"lora_rank": 0})
        return dataclasses.replace(self, recipe=self.recipe.model_copy(update={"model": model}))

    @property
    def declared(self) -> Tree:
        """The parameters that are trained."""
        params = qwen3.declare(self.dims)
        rank = self.recipe.model.lora_rank
        return lora.declare(params, rank) if rank else params

    @property
    def lora_scale(self) -> float:
        model = self.recipe.model
        return model.lora_alpha / model.lora_rank if model.lora_rank else 0.0

    def logprobs(self, weights: Tree, group: qwen3.Group, temperature: float) -> tuple[Array, Array]:
        """(log-probability, entropy) of every completion token, [P, G, T], under a weight tree or a `lora.Policy`."""
        params = lora.adapt(weights, self.lora_scale)
        p, g, t = group.completions_PGT.shape
        hidden = qwen3.group_hidden(
            self.dims, params, group, self.dtype, self.recipe.model.remat, batch_sharding(self.mesh)
        )
        setting = logits.SamplingSetting(self.mesh, self.dtype, logits_chunk(self.dims.vocab_size), temperature)
        flat = hidden.reshape(p, g * t, -1)
        with jax.named_scope("head"):
            out = logits.token_logprobs(setting, flat, qwen3.head(params), group.completions_PGT.reshape(p, g * t))
        return out[0].reshape(p, g, t), out[1].reshape(p, g, t)


def programs(setup: GrpoSetup, num_test: int | None = None) -> dict[str, Program]:
    """Every program the recipe runs, by name. `num_test`: how many test questions there are, when that is known."""
    recipe = setup.recipe
    params = lora.policy(param.abstract(setup.declared, setup.mesh), abstract_base(setup))
    sampling = rollout.Sampling.of(recipe.rollout)
    built = {
        "rollout": _rollout(setup, params, recipe.batch_size, recipe.grpo.num_generations, sampling, "rollout"),
        "evaluate": _rollout(setup, params, evaluation_rows(setup, num_test), 1, rollout.GREEDY, "evaluate"),
        "score": _score(setup, params if recipe.model.lora_rank else abstract_reference(setup)),
        "update": _update(setup),
    }
    if recipe.warm_start:
        built["warm_start"] = _warm_start(setup.dense)
    return {name: dataclasses.replace(program, resident=_resident(setup, name)) for name, program in built.items()}


def _resident(setup: GrpoSetup, name: str) -> dict[str, Tree]:
    """What loop.py keeps on the devices while this program runs, besides the program's own arguments.

    With LoRA the frozen weights are an argument of every program, and the reference is these with empty adapters. An offloaded one is only
    there while it scores.
    """
    state = abstract_state(setup)
    kept = {"weights": state.params, "optimizer": state.opt_state}
    rank = setup.recipe.model.lora_rank
    if setup.recipe.grpo.beta > 0 and not rank:
        kept["reference"] = abstract_reference(setup)
    if setup.recipe.grpo.offload_reference and name != "score":
        kept.pop("reference", None)
    used = {
        "update": {"weights", "optimizer"},
        "score": {"weights" if rank else "reference"},
        "warm_start": set(kept),
    }
    return {what: tree for what, tree in kept.items() if what not in used.get(name, {"weights"})}


def evaluation_rows(setup: GrpoSetup, num_test: int | None) -> int:
    """Prompts per evaluation batch, no more than there are, rounded up to what the mesh divides."""
    shards = setup.mesh.shape["data"] * setup.mesh.shape["fsdp"]
    wanted = min(setup.recipe.evaluation.batch_size, num_test or setup.recipe.evaluation.batch_size)
    return -(-wanted // shards) * shards


def policy_schedule(recipe: GrpoRecipe) -> optax.Schedule:
    """Learning rate by update of a recipe that counts in steps."""
    steps = recipe.training.max_steps * recipe.grpo.num_iterations
    return optimizer.schedule(recipe.optimizer.learning_rate, recipe.optimizer.warmup_ratio, steps)


def warm_schedule(recipe: GrpoRecipe) -> optax.Schedule:
    assert recipe.warm_start
    return optimizer.schedule(
        recipe.warm_start.learning_rate, recipe.optimizer.warmup_ratio, recipe.warm_start.max_steps
    )


def _tx(setup: GrpoSetup, rate: Array | float = 0.0) -> optax.GradientTransformation:
    o = setup.recipe.optimizer
    return optimizer.adamw(
        setup.declared,
        optimizer.of_step(rate),
        b1=o.b1,
        b2=o.b2,
        weight_decay=o.weight_decay,
        max_grad_norm=o.max_grad_norm,
    )


def abstract_state(setup: GrpoSetup) -> GrpoState:
    params = param.abstract(setup.declared, setup.mesh)
    return GrpoState(params, optimizer.abstract_state(_tx(setup), params, setup.mesh))


def abstract_base(setup: GrpoSetup) -> Tree | None:
    return param.abstract(qwen3.declare(setup.dims), setup.mesh, setup.dtype) if setup.recipe.model.lora_rank else None


def scored(setup: GrpoSetup, policy: Tree) -> Tree:
    """A policy as it is scored: weights in the dtype that they are computed with, of which a frozen reference needs no other copy."""
    return policy if isinstance(policy, lora.Policy) else qwen3.frozen(policy, setup.dtype)


def abstract_reference(setup: GrpoSetup) -> Tree:
    """Of weights that are scored, where all parameters are trained."""
    declared = qwen3.declare(setup.dims)
    weights = param.abstract(declared, setup.mesh, setup.dtype)
    return weights | {"norm": param.abstract(declared, setup.mesh)["norm"]}


def freeze(setup: GrpoSetup, weights: Tree) -> Tree | None:
    """The frozen weights, in the dtype they are computed with; None where all parameters are trained."""
    return qwen3.cast(weights, setup.dtype) if setup.recipe.model.lora_rank else None


def first_params(setup: GrpoSetup, weights: Tree) -> Tree:
    """What is trained, at step 0: `weights` themselves, or new adapters."""
    return param.initialize(setup.declared, setup.mesh, setup.recipe.seed) if setup.recipe.model.lora_rank else weights


def new_state(setup: GrpoSetup, params: Tree) -> GrpoState:
    """A copy of `params` with a fresh optimizer state; updates may take the copy's memory."""
    shardings = jax.tree.map(lambda s: s.sharding, abstract_state(setup).opt_state)
    return GrpoState(jax.tree.map(jnp.copy, params), jax.jit(_tx(setup).init, out_shardings=shardings)(params))


def _array(setup: GrpoSetup, *shape: int, dtype: Any = jnp.int32) -> Any:
    """A ShapeDtypeStruct whose leading dim is the batch."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(setup.mesh))


def _group(setup: GrpoSetup, p: int, g: int, t: int) -> qwen3.Group:
    s = setup.recipe.rollout.max_prompt_length
    return qwen3.Group(_array(setup, p, s), _array(setup, p), _array(setup, p, g, t))


def _rollout(setup: GrpoSetup, params: Tree, p: int, g: int, sampling: rollout.Sampling, name: str) -> Program:
    recipe = setup.recipe

    def step(params: Tree, prompts_PS: Array, lengths_P: Array, number: Array) -> rollout.Completions:
        """`number` counts the rollouts of the run, so that no two draw the same noise."""
        return rollout.generate(
            setup.dims,
            setup.mesh,
            lora.merge(params, setup.lora_scale, setup.dtype),
            prompts_PS,
            lengths_P,
            jax.random.fold_in(jax.random.key(recipe.seed), number),
            num_generations=g,
            max_new_tokens=recipe.rollout.total_generation_steps,
            sampling=sampling,
            stop_ids=setup.stop_ids,
            pad_id=setup.pad_id,
            dtype=setup.dtype,
        )

    prompts = _array(setup, p, recipe.rollout.max_prompt_length)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    jitted = jax.jit(step, out_shardings=batch_sharding(setup.mesh))
    return Program(name, jitted, (params, prompts, _array(setup, p), number))


def _score(setup: GrpoSetup, params: Tree) -> Program:
    """Log-probabilities [P, G, T] under some parameters: the frozen reference, or the policy before its first update."""

    def step(params: Tree, group: qwen3.Group) -> Array:
        return setup.logprobs(params, group, setup.recipe.rollout.temperature)[0]

    r = setup.recipe
    group = _group(setup, r.batch_size, r.grpo.num_generations, r.rollout.total_generation_steps)
    return Program("score", jax.jit(step, out_shardings=batch_sharding(setup.mesh)), (params, group))


def _update(setup: GrpoSetup) -> Program:
    r = setup.recipe
    state = abstract_state(setup)

    def objective(
        params: Tree, part: tuple[qwen3.Group, loss.LossInputs], base: Tree | None
    ) -> tuple[Array, dict[str, Array]]:
        group, inputs = part
        logps, entropy = setup.logprobs(lora.policy(params, base), group, r.rollout.temperature)
        value, sums = loss.total(r.grpo, logps, inputs)
        return value, sums | {"entropy": (entropy * inputs.mask_PGT).sum()}

    def step(
        state: GrpoState, batch: GrpoBatch, rate: Array, base: Tree | None = None
    ) -> tuple[GrpoState, dict[str, Array]]:
        t = batch.group.completions_PGT.shape[2]
        counted = batch.counted_PG[..., None] & (jnp.arange(t) < batch.lengths_PG[..., None])
        mask = counted.astype(jnp.float32)
        weights = loss.token_weights(r.grpo.loss, mask, r.rollout.total_generation_steps)
        inputs = loss.LossInputs(
            batch.advantages_PG, mask, weights, batch.sampler_PGT, batch.old_PGT, batch.reference_PGT
        )
        gradient = functools.partial(jax.value_and_grad(objective, has_aux=True), base=base)
        num = r.training.gradient_accumulation_steps
        sharding = batch_sharding(setup.mesh)
        (value, sums), grads = optimizer.accumulated(gradient, state.params, (batch.group, inputs), num, sharding)
        new, opt_state, norm = optimizer.apply(_tx(setup, rate), grads, state.opt_state, state.params)
        means = {name: x / jnp.maximum(mask.sum(), 1.0) for name, x in sums.items()}
        return GrpoState(new, opt_state), {"loss": value, "grad_norm": norm, **means}

    p, g, t = r.batch_size, r.grpo.num_generations, r.rollout.total_generation_steps
    tokens = _array(setup, p, g, t, dtype=jnp.float32)
    batch = GrpoBatch(
        group=_group(setup, p, g, t),
        lengths_PG=_array(setup, p, g),
        counted_PG=_array(setup, p, g, dtype=jnp.bool_),
        advantages_PG=_array(setup, p, g, dtype=jnp.float32),
        sampler_PGT=tokens,
        old_PGT=tokens if r.grpo.num_iterations > 1 else None,
        reference_PGT=tokens if r.grpo.beta > 0 else None,
    )
    arguments = (state, batch, RATE, abstract_base(setup))
    return Program("update", jax.jit(step, donate_argnums=0, out_shardings=_state_out(setup, state)), arguments)


def _warm_start(setup: GrpoSetup) -> Program:
    """Supervised step: mean negative log-probability of worked answers, given as groups of one completion."""
    warm = setup.recipe.warm_start
    assert warm
    state = abstract_state(setup)

    def objective(params: Tree, group: qwen3.Group, lengths_PG: Array) -> Array:
        logps, _ = setup.logprobs(params, group, 1.0)
        mask = (jnp.arange(group.completions_PGT.shape[2]) < lengths_PG[..., None]).astype(jnp.float32)
        return -(logps * mask).sum() / mask.sum()

    def step(
        state: GrpoState, group: qwen3.Group, lengths_PG: Array, rate: Array
    ) -> tuple[GrpoState, dict[str, Array]]:
        value, grads = jax.value_and_grad(objective)(state.params, group, lengths_PG)
        new, opt_state, norm = optimizer.apply(_tx(setup, rate), grads, state.opt_state, state.params)
        return GrpoState(new, opt_state), {"loss": value, "grad_norm": norm}

    group = _group(setup, warm.batch_size, 1, setup.recipe.rollout.total_generation_steps)
    jitted = jax.jit(step, donate_argnums=0, out_shardings=_state_out(setup, state))
    return Program("warm_start", jitted, (state, group, _array(setup, warm.batch_size, 1), RATE))


def _state_out(setup: GrpoSetup, state: GrpoState) -> Any:
    """Shardings of (state, metrics): the state as it came in, metrics replicated so that every process can read them."""
    return jax.tree.map(lambda s: s.sharding, state), NamedSharding(setup.mesh, PartitionSpec())
