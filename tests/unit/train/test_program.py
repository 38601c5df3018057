"""Sharded equals unsharded, micro-batches equal the whole, the reference stays frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.models import lora, param, qwen3
from podwright.train.grpo import program
from podwright.train.mesh import gather
from tests.unit.train import small


def run(mesh, *overrides, steps=3):
    """Tokens of a rollout, losses and KLs of some updates, and the weights after them."""
    s = small.setup(*overrides, mesh=mesh)
    made, reference = program.programs(s), small.params(s, scale=3.0)
    state = program.new_state(s, reference)
    batch = small.batch(s, made, reference, reference)
    trace = []
    for n in range(steps):
        state, figures = made["update"](state, batch, small.rate(s, n))
        trace.append([float(figures[name]) for name in ("loss", "kl", "grad_norm", "entropy")])
    return (
        gather(batch.group.completions_PGT),
        np.array(trace),
        jax.tree.map(lambda x: gather(x), state.params),
    )


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 2])
def test_a_layer_is_computed_with_whole_weights(rank):
    """Sharded over tensor alone: a compiler that is given parts over fsdp multiplies with one part after the other."""
    s = small.setup(f"model.lora_rank={rank}", mesh=(1, 4, 2))
    weights = small.params(s)
    adapters = param.initialize(s.declared, s.mesh, 0) if rank else weights
    adapted = lora.adapt(lora.policy(adapters, weights if rank else None), s.lora_scale)
    first = jax.tree.map(lambda x: x[0], adapted["layers"])
    laid = jax.jit(lambda w: qwen3.gathered(s.dims, w, jnp.bfloat16, s.mesh))(first)
    assert {x.dtype for x in jax.tree.leaves(laid)} == {jnp.dtype(jnp.bfloat16)}
    assert {axis for x in jax.tree.leaves(laid) for axis in x.sharding.spec} == {None, "tensor"}


@pytest.fixture(scope="module")
def unsharded():
    return run((1, 1, 1))


@pytest.mark.parametrize(
    "mesh",
    [pytest.param((1, 8, 1), marks=pytest.mark.long), pytest.param((1, 4, 2), marks=pytest.mark.long), (2, 2, 2)],
    ids=str,
)
def test_sharded_equals_unsharded(unsharded, mesh):
    tokens, trace, params = run(mesh)
    np.testing.assert_array_equal(tokens, unsharded[0])
    np.testing.assert_allclose(trace, unsharded[1], rtol=2e-3, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), params, unsharded[2])


@pytest.mark.long
def test_tensor_4_equals_unsharded():
    dims = small.Qwen3Dims(32, 64, 2, 4, 4, 16, 96, False)
    a, b = (small.setup(mesh=mesh, dims=dims) for mesh in ((1, 1, 1), (1, 2, 4)))
    outs = []
    for s in (a, b):
        made, weights = program.programs(s), small.params(s, scale=3.0)
        batch = small.batch(s, made, weights, weights)
        _, figures = made["update"](program.new_state(s, weights), batch, small.rate(s, 0))
        outs.append((gather(batch.group.completions_PGT), float(figures["grad_norm"])))
    np.testing.assert_array_equal(outs[0][0], outs[1][0])
    np.testing.assert_allclose(outs[0][1], outs[1][1], rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["grpo", pytest.param("dapo", marks=pytest.mark.long)])
def test_micro_batches_equal_the_whole(kind):
    whole = run((1, 1, 1), f"grpo.loss={kind}")
    parts = run((1, 2, 1), f"grpo.loss={kind}", "training.gradient_accumulation_steps=4")
    np.testing.assert_allclose(whole[1], parts[1], rtol=2e-3, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), whole[2], parts[2])


@pytest.mark.long
def test_remat_changes_nothing():
    kept, recomputed = run((1, 1, 1), "model.remat=none"), run((1, 1, 1), "model.remat=layer")
    np.testing.assert_allclose(kept[1], recomputed[1], rtol=1e-4, atol=1e-6)


def test_a_frozen_reference_stays_frozen_and_kl_grows(unsharded):
    s = small.setup("optimizer.warmup_ratio=0.0")
    made, reference = program.programs(s), small.params(s, scale=3.0)
    before = jax.tree.map(np.array, reference)
    state = program.new_state(s, reference)
    kls = []
    for n in range(4):
        state, figures = made["update"](state, small.batch(s, made, state.params, reference, seed=n), small.rate(s, n))
        kls.append(float(figures["kl"]))
    assert abs(kls[0]) < 1e-6 < kls[-1]
    jax.tree.map(np.testing.assert_array_equal, before, reference)
    assert any(
        (np.asarray(a) != b).any() for a, b in zip(jax.tree.leaves(state.params), jax.tree.leaves(before), strict=True)
    )


def test_a_reference_in_the_dtype_of_its_products_scores_the_same_bit_for_bit():
    s = small.setup("model.compute_dtype=bfloat16")
    weights = small.params(s, scale=3.0)
    weights |= {"norm": weights["norm"] * 1.001}
    made = program.programs(s)
    group = small.batch(s, made, weights).group
    exact, frozen = made["score"](weights, group), made["score"](program.scored(s, weights), group)
    assert exact.dtype == frozen.dtype == jnp.float32 and np.array_equal(exact, frozen)
    assert program.scored(s, weights)["layers"]["q"].dtype == jnp.bfloat16


def test_no_reference_is_needed_at_beta_zero():
    s = small.setup("grpo.beta=0")
    arguments = program.programs(s)["update"].arguments
    assert arguments[1].reference_PGT is None and arguments[1].old_PGT is None


def test_update_moves_probability_towards_what_was_rewarded():
    s = small.setup("optimizer.warmup_ratio=0.0", "grpo.beta=0", "optimizer.learning_rate=1e-3")
    made, weights = program.programs(s), small.params(s, scale=3.0)
    batch = small.batch(s, made, weights)
    state = program.new_state(s, weights)
    for n in range(3):
        state, _ = made["update"](state, batch, small.rate(s, n))
    mask = np.arange(8) < np.asarray(batch.lengths_PG)[..., None]
    change = (np.asarray(made["score"](state.params, batch.group)) - np.asarray(batch.sampler_PGT)) * mask
    better = np.asarray(batch.advantages_PG) > 0
    assert change.sum(-1)[better].mean() > 0.01 > -0.01 > change.sum(-1)[~better].mean()


def test_programs_lower_from_abstract_shapes_alone():
    s = small.setup(mesh=(1, 4, 2))
    for made in program.programs(s).values():
        assert made.lower().as_text()
    declared = qwen3.declare(s.dims)
    assert sum(int(np.prod(p.shape)) for p in jax.tree.leaves(declared, is_leaf=param.is_param)) == s.dims.num_params()


@pytest.mark.parametrize(
    ("mesh", "num_test", "rows"), [((1, 1, 1), 3, 3), ((1, 8, 1), 3, 8), ((1, 8, 1), 9, 16), ((1, 1, 1), 999, 20)]
)
def test_a_test_decodes_no_more_rows_than_there_are_questions(mesh, num_test, rows):
    made = program.programs(small.setup("evaluation.batch_size=20", mesh=mesh), num_test)
    assert made["evaluate"].arguments[1].shape[0] == rows


@pytest.mark.long
def test_norms_do_not_decay():
    s = small.setup("optimizer.weight_decay=0.5", "optimizer.warmup_ratio=0.0", "grpo.beta=0")
    made, weights = program.programs(s), small.params(s)
    state = program.new_state(s, weights)
    batch = small.batch(s, made, weights)._replace(advantages_PG=jnp.zeros((8, 4)))
    state, _ = made["update"](state, batch, small.rate(s, 0))
    np.testing.assert_array_equal(state.params["norm"], weights["norm"])
    assert (np.abs(state.params["layers"]["q"]) < np.abs(np.asarray(weights["layers"]["q"]))).all()


@pytest.mark.brief(1)
@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.long), 4])
@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo"])
def test_the_figures_of_an_update_are_those_of_its_log_probabilities(kind, parts):
    """Loss, KL, clip ratio and mismatch written out in numpy; some completions are left out, and all are shorter than they may be."""
    s = small.setup(
        f"grpo.loss={kind}", "grpo.num_iterations=2", f"training.gradient_accumulation_steps={parts}", "grpo.beta=0.3"
    )
    made, reference, policy = program.programs(s), small.params(s, 0, 3.0), small.params(s, 1, 3.0)
    batch = small.batch(s, made, reference, reference)
    most = s.recipe.rollout.total_generation_steps
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 6, (8, 4)).astype(np.int32)
    counted = rng.random((8, 4)) < 0.7
    cut = batch.group._replace(completions_PGT=batch.group.completions_PGT[:, :, :6])
    scores = [np.asarray(made["score"](w, cut), np.float64) for w in (policy, reference)]
    old, sampler = (scores[0] + rng.normal(scale=0.3, size=scores[0].shape) for _ in range(2))
    batch = batch._replace(
        group=cut,
        lengths_PG=jnp.asarray(lengths),
        counted_PG=jnp.asarray(counted),
        sampler_PGT=jnp.asarray(sampler, jnp.float32),
        old_PGT=jnp.asarray(old, jnp.float32),
        reference_PGT=jnp.asarray(scores[1], jnp.float32),
    )
    state = program.new_state(s, policy)
    _, figures = made["update"](state, batch, small.rate(s, 0))
    mask = (np.arange(6) < lengths[..., None]) & counted[..., None]
    advantage, ratio = np.asarray(batch.advantages_PG)[..., None], np.exp(scores[0] - old)
    held = np.clip(ratio, 0.8, 1.2)
    d = scores[1] - scores[0]
    kl, mismatch = np.exp(d) - d - 1, np.exp(old - sampler)
    each = -np.minimum(ratio * advantage, held * advantage) * np.minimum(mismatch, 2.0) + 0.3 * kl
    if kind == "dapo":
        value = each[mask].sum() / mask.sum()
    elif kind == "dr_grpo":
        value = each[mask].sum() / (8 * 4 * most)
    else:
        value = np.mean([each[p, g][mask[p, g]].mean() for p, g in zip(*np.nonzero(counted), strict=True)])
    right = {
        "loss": value,
        "kl": kl[mask].mean(),
        "clip_ratio": (ratio * advantage > held * advantage)[mask].mean(),
        "importance_mismatch": np.abs(mismatch - 1)[mask].mean(),
    }
    assert 0.05 < right["clip_ratio"] < 0.95
    for name, number in right.items():
        assert float(figures[name]) == pytest.approx(number, rel=2e-4, abs=2e-5), name
