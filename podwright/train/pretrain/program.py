"""The programs of pretraining: one optimizer step, and the loss on held-out documents; each built here and nowhere else.

Shape suffixes: B rows, N tokens, L layers with experts, X experts.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from podwright.models import hybrid, kda, logits, moe, param, qwen3
from podwright.recipe.dimensions import Dims
from podwright.recipe.hybrid import HybridDims
from podwright.recipe.models import logits_chunk
from podwright.recipe.pretrain import PretrainRecipe
from podwright.train import muon, optimizer
from podwright.train.mesh import token_sharding
from podwright.train.program import RATE, Program

Tree = Any


class PretrainState(NamedTuple):
    """What training changes, and all that a checkpoint holds on the device."""

    params: Tree
    opt_state: Tree
    bias_LX: Any
    """the routers'; moved by the load of the experts, not by a gradient. None where there are no experts"""


class PretrainBatch(NamedTuple):
    """Packed rows. The loss counts a token's target where it is of the same document, and not where it is -1."""

    tokens_BN: Any
    targets_BN: Any
    positions_BN: Any
    segment_ids_BN: Any


@dataclasses.dataclass(frozen=True)
class PretrainSetup:
    """A recipe on a mesh: what every program is built from."""

    recipe: PretrainRecipe
    dims: Dims
    mesh: Mesh

    @property
    def declared(self) -> Tree:
        return hybrid.declare(self.dims) if isinstance(self.dims, HybridDims) else qwen3.declare(self.dims)

    def new_bias(self) -> Array | None:
        return hybrid.new_bias(self.dims) if isinstance(self.dims, HybridDims) else None

    def optimizer(self, rate: Array | float = 0.0) -> optax.GradientTransformation:
        o = self.recipe.optimizer
        schedule = optimizer.of_step(rate)
        if o.name == "adamw":
            return optimizer.adamw(
                self.declared, schedule, b1=o.b1, b2=o.b2, weight_decay=o.weight_decay, max_grad_norm=o.max_grad_norm
            )
        return muon.muon(
            self.declared,
            self.mesh,
            schedule,
            momentum=o.momentum,
            weight_decay=o.muon_weight_decay,
            adam_b1=o.b1,
            adam_b2=o.b2,
            adam_weight_decay=o.weight_decay,
            max_grad_norm=o.max_grad_norm,
            dtype=jnp.dtype(self.recipe.model.compute_dtype),
        )


def schedule(recipe: PretrainRecipe) -> optax.Schedule:
    o = recipe.optimizer
    return optimizer.schedule(o.learning_rate, o.warmup_ratio, recipe.training.max_steps, o.final_ratio)


def programs(setup: PretrainSetup) -> dict[str, Program]:
    """Every program the recipe runs, by name; UserError where one of its kernels cannot run on these devices."""
    if isinstance(setup.dims, HybridDims) and setup.dims.kda:
        kda.check(setup.dims.kda, setup.mesh)
    state = abstract_state(setup)
    rows = setup.recipe.batch_size
    return {
        "update": Program("update", _update(setup), (state, abstract_batch(setup, rows), RATE)),
        "evaluate": Program(
            "evaluate",
            _evaluate(setup),
            (state.params, state.bias_LX, abstract_batch(setup, rows)),
            {"optimizer": state.opt_state},
        ),
    }


def abstract_state(setup: PretrainSetup) -> PretrainState:
    params = param.abstract(setup.declared, setup.mesh)
    everywhere = NamedSharding(setup.mesh, PartitionSpec())
    bias = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), jax.eval_shape(setup.new_bias)
    )
    return PretrainState(params, optimizer.abstract_state(setup.optimizer(), params, setup.mesh), bias)


def new_state(setup: PretrainSetup) -> PretrainState:
    params = param.initialize(setup.declared, setup.mesh, setup.recipe.seed)
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(setup))

    def make(params: Tree) -> PretrainState:
        return PretrainState(params, setup.optimizer().init(params), setup.new_bias())

    return jax.jit(make, out_shardings=shardings)(params)


def abstract_batch(setup: PretrainSetup, rows: int) -> PretrainBatch:
    shape = (rows, setup.recipe.sequence_length)
    return PretrainBatch(
        *(jax.ShapeDtypeStruct(shape, jnp.int32, sharding=token_sharding(setup.mesh)) for _ in PretrainBatch._fields)
    )


def _loss(
    setup: PretrainSetup, params: Tree, bias_LX: Array | None, batch: PretrainBatch
) -> tuple[Array, Array | None]:
    """(sum of the negative log-probabilities of the targets that count, load [L, X] where there are experts)."""
    dims, model = setup.dims, setup.recipe.model
    dtype = jnp.dtype(model.compute_dtype)
    rows = batch.tokens_BN, batch.positions_BN, batch.segment_ids_BN, dtype, model.remat, setup.mesh
    load = None
    if isinstance(dims, HybridDims):
        assert bias_LX is not None
        x, load = hybrid.hidden(dims, params, bias_LX, *rows)
    else:
        x = qwen3.packed_hidden(dims, params, *rows)
    setting = logits.SamplingSetting(setup.mesh, dtype, logits_chunk(dims.vocab_size), 1.0)
    with jax.named_scope("head"):
        logps, _ = logits.token_logprobs(setting, x, qwen3.head(params), batch.targets_BN)
    return -jnp.where(batch.targets_BN >= 0, logps, 0.0).sum(), load


def _update(setup: PretrainSetup) -> Any:
    parts = setup.recipe.training.gradient_accumulation_steps
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(setup))

    def step(state: PretrainState, batch: PretrainBatch, rate: Array) -> tuple[PretrainState, dict[str, Array]]:
        counted = (batch.targets_BN >= 0).sum()

        def loss(params: Tree, micro: PretrainBatch) -> tuple[Array, Array | None]:
            total, load = _loss(setup, params, state.bias_LX, micro)
            return total / counted, load

        gradient = jax.value_and_grad(loss, has_aux=True)
        (value, load), grads = optimizer.accumulated(gradient, state.params, batch, parts, token_sharding(setup.mesh))
        tx = setup.optimizer(rate)
        params, opt_state, norm = optimizer.apply(tx, grads, state.opt_state, state.params)
        figures, bias = {"loss": value, "grad_norm": norm, "target_tokens": counted}, None
        if isinstance(setup.dims, HybridDims):
            share = load / load.mean(-1, keepdims=True)
            figures |= {"expert_load_max": share.max(), "dead_experts": (load == 0).sum()}
            bias = moe.updated_bias(setup.dims.moe, state.bias_LX, load)
        return PretrainState(params, opt_state, bias), figures

    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))


def _evaluate(setup: PretrainSetup) -> Any:
    """(sum of negative log-probabilities, how many targets count)."""

    def step(params: Tree, bias_LX: Array | None, batch: PretrainBatch) -> tuple[Array, Array]:
        return _loss(setup, params, bias_LX, batch)[0], (batch.targets_BN >= 0).sum()

    return jax.jit(step)
