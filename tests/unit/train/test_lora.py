"""GRPO of adapters: sharded equals unsharded, the base stays where it is, and nothing is computed or kept for it in vain."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.models import lora
from podwright.recipe import models
from podwright.train.grpo import program
from podwright.train.mesh import gather
from tests.unit.models import made as random_weights
from tests.unit.train import small

RANK = 4
ON = f"model.lora_rank={RANK}"
DIMS = small.Qwen3Dims(32, 64, 2, 4, 4, 16, 96, True)


def begin(s, moved=True):
    """Programs, a state and the base; `moved` adapters already add something."""
    policy = random_weights.policy(s.dims, s.mesh, RANK, scale=3.0)
    adapters = policy.adapters if moved else program.first_params(s, policy.base)
    return (
        program.programs(s),
        program.new_state(s, adapters),
        program.freeze(s, policy.base),
    )


def train(*overrides, mesh=(1, 1, 1), steps=3):
    """Tokens of a rollout, figures of some updates on it, the adapters after them."""
    s = small.setup(ON, "optimizer.warmup_ratio=0.0", *overrides, mesh=mesh, dims=DIMS)
    made, state, base = begin(s)
    batch = small.batch(s, made, lora.policy(state.params, base), lora.reference(state.params, base))
    trace = []
    for n in range(steps):
        state, figures = made["update"](state, batch, small.rate(s, n), base)
        trace.append([float(figures[name]) for name in ("loss", "kl", "grad_norm", "entropy")])
    return (
        gather(batch.group.completions_PGT),
        np.array(trace),
        jax.tree.map(lambda x: gather(x), state.params),
    )


@pytest.fixture(scope="module")
def unsharded():
    return train()


@pytest.mark.long
@pytest.mark.parametrize("mesh", [pytest.param((1, 8, 1), marks=pytest.mark.long), (1, 2, 4)], ids=str)
def test_sharded_equals_unsharded(unsharded, mesh):
    tokens, trace, adapters = train(mesh=mesh)
    np.testing.assert_array_equal(tokens, unsharded[0])
    np.testing.assert_allclose(trace, unsharded[1], rtol=2e-3, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), adapters, unsharded[2])


@pytest.mark.long
def test_micro_batches_and_recomputation_change_nothing(unsharded):
    _, trace, adapters = train("training.gradient_accumulation_steps=4", "model.remat=layer")
    np.testing.assert_allclose(trace, unsharded[1], rtol=2e-3, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), adapters, unsharded[2])


def test_adapters_are_sharded_as_their_weights_are():
    s = small.setup(ON, mesh=(1, 2, 4), dims=DIMS)
    _, state, base = begin(s)
    for name, num in random_weights.NUM_INPUT_DIMS.items():
        weight = base["layers"][name].sharding.spec
        a, b = (state.params["layers"][name][k].sharding.spec for k in "ab")
        assert [*a, *([None] * (2 + num - len(a)))] == [*weight[: 1 + num], None]
        assert [*b[2:], *([None] * (len(weight) - 1 - num - len(b[2:])))] == list(weight[1 + num :])
        assert "tensor" in str((a, b)) and "fsdp" in str((a, b))


@pytest.mark.long
def test_the_base_stays_and_the_policy_leaves_it():
    s = small.setup(ON, "optimizer.warmup_ratio=0.0")
    made, state, base = begin(s, moved=False)
    before, reference = jax.tree.map(np.array, base), lora.reference(state.params, base)
    kls = []
    for n in range(4):
        batch = small.batch(s, made, lora.policy(state.params, base), reference, seed=n)
        state, figures = made["update"](state, batch, small.rate(s, n), base)
        kls.append(float(figures["kl"]))
    assert abs(kls[0]) < 1e-6 < kls[-1]
    jax.tree.map(np.testing.assert_array_equal, before, base)
    assert all(np.asarray(w[k]).any() for w in state.params["layers"].values() for k in "ab")


@pytest.mark.long
def test_the_reference_is_the_same_arrays_as_the_base_and_scores_as_it():
    s = small.setup(ON)
    made, state, base = begin(s)
    policy, reference = lora.policy(state.params, base), lora.reference(state.params, base)
    assert all(a is b for a, b in zip(jax.tree.leaves(reference.base), jax.tree.leaves(base), strict=True))
    group = small.batch(s, made, policy).group
    scores = [np.asarray(made["score"](x, group)) for x in (reference, policy)]
    np.testing.assert_allclose(scores[0], program.programs(s.dense)["score"](base, group), rtol=1e-5, atol=1e-5)
    assert np.abs(scores[1] - scores[0]).max() > 0.01


@pytest.mark.long
def test_a_rollout_draws_what_the_merged_weights_draw():
    s = small.setup(ON)
    made, state, base = begin(s)
    merged = lora.merge(lora.policy(state.params, base), s.lora_scale, jnp.float32)
    tokens, lengths = small.prompts(s)
    got = made["rollout"](lora.policy(state.params, base), tokens, lengths, np.int32(0))
    expected, without = (program.programs(s.dense)["rollout"](w, tokens, lengths, np.int32(0)) for w in (merged, base))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert (np.asarray(got.tokens_PGT) != np.asarray(without.tokens_PGT)).any()


@pytest.mark.long
def test_a_bfloat16_base_answers_as_the_float32_one_does():
    s = small.setup(ON, "model.compute_dtype=bfloat16")
    policy = random_weights.policy(s.dims, s.mesh, RANK, scale=3.0)
    base = program.freeze(s, policy.base)
    assert {x.dtype for x in jax.tree.leaves(base)} == {jnp.dtype(jnp.bfloat16)}
    made, group = program.programs(s), small.batch(s, program.programs(s.dense), policy.base).group
    scores = [np.asarray(made["score"](policy._replace(base=b), group)) for b in (base, policy.base)]
    np.testing.assert_allclose(*scores, atol=1e-2)
    tokens, lengths = small.prompts(s)
    first = [
        policy._replace(adapters=program.first_params(s, base)),
        policy._replace(base=base, adapters=program.first_params(s, base)),
    ]
    drawn = [made["rollout"](x, tokens, lengths, np.int32(0)) for x in first]
    jax.tree.map(np.testing.assert_array_equal, *drawn)


def flops(rank, dims):
    s = small.setup(f"model.lora_rank={rank}", "model.remat=none", dims=dims)
    return program.programs(s)["update"].lower().compile().cost_analysis()["flops"], s


@pytest.mark.long
def test_no_gradient_of_a_frozen_weight_is_computed():
    """What the update of adapters of rank 0 would cost lacks the products that make the gradients of all weights."""
    dims = small.Qwen3Dims(64, 128, 2, 4, 2, 16, 512, True)
    (whole, s), (one, _), (two, _) = (flops(rank, dims) for rank in (0, 1, 2))
    r = s.recipe
    completions = r.batch_size * r.grpo.num_generations * r.rollout.total_generation_steps
    tokens = r.batch_size * r.rollout.max_prompt_length + completions
    layers = 2 * tokens * dims.num_layers * dims.layer_matmul_params()
    head = 2 * completions * dims.hidden_size * dims.vocab_size
    assert whole - (2 * one - two) > layers + head


def bytes_of(tree):
    return sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def test_a_checkpoint_holds_adapters_and_their_moments_only():
    s = small.setup(ON)
    state = program.abstract_state(s)
    adapters = 4 * s.dims.num_lora_params(RANK)
    assert bytes_of(state.params) == adapters
    assert 2 * adapters <= bytes_of(state.opt_state) <= 2 * adapters + 16


def test_the_warm_start_trains_every_parameter():
    s = small.setup(ON)
    state = program.programs(s)["warm_start"].arguments[0]
    assert bytes_of(state.params) == 4 * s.dims.num_params()


def test_programs_lower_from_abstract_shapes_alone():
    s = small.setup(ON, "grpo.num_iterations=2", mesh=(1, 4, 2))
    for made in program.programs(s).values():
        assert made.lower().as_text()


def test_the_figures_of_memory_in_the_guide():
    """docs/grpo.md says what LoRA saves for Qwen3-1.7B; it is computed from the abstract shapes of all that is held."""
    whole = dataclasses.replace(small.setup("model.compute_dtype=bfloat16"), dims=models.find("qwen3-1.7b"))
    adapted = dataclasses.replace(small.setup("model.compute_dtype=bfloat16", "model.lora_rank=16"), dims=whole.dims)
    reference = bytes_of(program.programs(whole)["score"].arguments[0])
    full = bytes_of(program.abstract_state(whole)) + reference
    scored = bytes_of(program.programs(adapted)["score"].arguments[0].adapters)
    small_one = bytes_of(program.abstract_state(adapted)) + bytes_of(program.abstract_base(adapted)) + scored
    assert (round(full / 1e9, 1), round(small_one / 1e9, 1)) == (24.1, 3.7)
