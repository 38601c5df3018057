"""Sampling draws from the distribution it reports, groups share a prefill without changing anything, noise never repeats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec
from scipy import stats

from podwright.models import qwen3
from podwright.recipe import schema
from podwright.train.grpo import program, rollout
from podwright.train.grpo.rollout import Sampling
from podwright.train.mesh import make_mesh
from tests.unit.train import small

SAMPLINGS = [
    Sampling(1.0),
    Sampling(0.7),
    Sampling(1.0, top_k=5),
    Sampling(0.9, top_p=0.8),
    Sampling(1.2, top_k=20, top_p=0.9),
    Sampling(1.0, min_p=0.1),
    Sampling(0.8, top_k=30, top_p=0.95, min_p=0.02),
]


def expected_distribution(logits, s):
    """The filtered distribution written out step by step with numpy, in float64."""
    z = logits.astype(np.float64) / s.temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    order = np.argsort(-p)
    keep = np.ones(len(p), bool)
    if s.top_k:
        keep[order[s.top_k :]] = False
    if s.top_p < 1:
        q = np.where(keep, p, 0) / p[keep].sum()
        before = np.cumsum(q[order]) - q[order]
        keep[order[before >= s.top_p]] = False
    if s.min_p:
        keep &= p >= s.min_p * p.max()
    q = np.where(keep, p, 0)
    return q / q.sum()


@pytest.mark.brief(12)
@pytest.mark.parametrize("vocab", [60, 97, 128])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_tokens_come_from_the_distribution_that_is_reported(sampling, vocab):
    logits = np.random.default_rng(vocab).normal(size=vocab).astype(np.float32) * 2
    expected = expected_distribution(logits, sampling)
    n = 20_000
    uniform = jax.random.uniform(jax.random.key(3), (n,))
    draw = jax.jit(
        lambda u, row: rollout.sample(jnp.broadcast_to(row, (n, vocab)), u, sampling)
    )  # a constant row would be folded for long
    tokens, logps = draw(uniform, logits)
    np.testing.assert_allclose(np.exp(logps), expected[np.asarray(tokens)], rtol=2e-4)
    counts = np.bincount(tokens, minlength=vocab)
    assert counts[expected == 0].sum() == 0
    likely = expected * n > 5
    observed = np.append(counts[likely], n - counts[likely].sum())
    wanted = np.append(expected[likely], 1 - expected[likely].sum()) * n
    if wanted[-1] < 1e-6:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4


threshold = jax.jit(rollout.keep_threshold, static_argnums=1)
V = 24
finite = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
logit = st.one_of(
    st.sampled_from([-np.inf, -0.0, 0.0, 1.0, 1.5, -2.0, np.finfo(np.float32).max, np.finfo(np.float32).min]), finite
)
rows = hnp.arrays(np.float32, (3, V), elements=logit)


@settings(max_examples=150, deadline=None)
@given(rows, st.sampled_from([1, 2, 7, V - 1]))
def test_top_k_keeps_what_is_at_least_the_kth_of_the_ordered_logits(z, k):
    np.testing.assert_array_equal(threshold(z, Sampling(1.0, top_k=k)), -np.sort(-z)[:, k - 1 : k])


@pytest.mark.brief(15)
@pytest.mark.parametrize("k", [0, 1, 3, 20, V])
@pytest.mark.parametrize("p", [1e-60, 1e-6, 0.1, 0.5, 0.9, 0.999])
def test_top_p_keeps_the_first_of_the_ordered_logits_that_reach_the_mass(k, p):
    rng = np.random.default_rng(k)
    z = (np.round(rng.normal(size=(300, V)) * 12) / 4).astype(np.float32)  # with equal ones
    z[rng.random(z.shape) < 0.1] = -np.inf
    found = np.asarray(threshold(z, Sampling(1.0, top_k=k, top_p=p)))
    compared = 0
    for row, lowest in zip(z.astype(np.float64), found[:, 0], strict=True):
        ordered = -np.sort(-row)
        ordered = ordered[ordered >= ordered[(k or V) - 1]]
        share = np.exp(ordered) / np.exp(ordered).sum()
        above = np.array([share[ordered > value].sum() for value in ordered])
        if np.abs(above / p - 1).min() > 1e-5:  # else rounding decides
            assert lowest == ordered[above < p].min()
            compared += 1
    assert compared > 200


MANY = 1024  # in blocks of 128, of which one or two are kept
blocked = jax.jit(rollout.kth_by_blocks, static_argnums=1)


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(np.float32, (2, MANY), elements=logit, fill=logit), st.sampled_from([1, 2]), st.integers(0, 99))
def test_blocks_have_the_kth_largest(z, k, seed):
    z = np.random.default_rng(seed).permutation(z, axis=1)
    np.testing.assert_array_equal(blocked(z, k), -np.sort(-z)[:, k - 1 : k])


@pytest.mark.parametrize("vocab", [151936, 50 * 128 * 4, 50 * 128 * 4 - 128, 40009])
def test_blocks_have_what_the_bisection_finds(vocab):
    """Many equal numbers, more blocks than are kept with the k-th largest in them, and vocabularies that have no such blocks."""
    rng = np.random.default_rng(vocab)
    z = np.stack(
        [np.round(rng.normal(size=vocab) * 8) / 8, rng.normal(size=vocab), np.zeros(vocab), np.full(vocab, -np.inf)]
    )
    z[3, :30] = 1.0
    z = jnp.asarray(z, jnp.float32)
    np.testing.assert_array_equal(blocked(z, 50), rollout.kth(z, 50))


def test_filters_that_keep_everything_have_no_threshold():
    assert rollout.keep_threshold(jnp.zeros((2, 5)), Sampling(1.0, top_k=5, top_p=1.0)) is None
    assert rollout.keep_threshold(jnp.zeros((2, 5)), Sampling(1.0, top_k=9, top_p=1.0)) is None


def test_a_vocabulary_spread_over_devices_is_filtered_where_it_is():
    z = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 1000)).astype(np.float32) * 4)
    spread = jax.device_put(
        z, NamedSharding(make_mesh(schema.GrpoMesh(fsdp=2, tensor=4), jax.devices()), Spec("fsdp", None, "tensor"))
    )
    exact, both = Sampling(1.0, top_k=50), Sampling(1.0, top_k=50, top_p=0.7, min_p=0.01)
    np.testing.assert_array_equal(threshold(spread, exact), threshold(z, exact))
    np.testing.assert_array_equal(threshold(spread, both), threshold(z, both))
    text = threshold.lower(spread, both).compile().as_text()
    assert "all-reduce" in text and not any(
        moved in text for moved in ("all-gather", "all-to-all", "collective-permute")
    )


@pytest.fixture
def chips(monkeypatch):
    """TPU devices that are not here, of which the compiler knows."""
    pytest.importorskip("libtpu")
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return list(topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices)


def test_a_tpu_filters_without_sorting(chips):
    """At the size of Qwen3's vocabulary, where a sort takes the compiler alone half a minute."""
    where = NamedSharding(make_mesh(schema.GrpoMesh(fsdp=2, tensor=2), chips), Spec("fsdp", None, "tensor"))
    z = jax.ShapeDtypeStruct((2, 8, 151_936), jnp.float32, sharding=where)
    text = threshold.lower(z, Sampling(0.9, top_k=50, top_p=0.9)).compile().as_text()
    assert " while(" in text and not any(op in text for op in (" sort(", "TopK", " all-gather(", " all-to-all("))


def test_the_rollout_that_a_tpu_runs_holds_no_sort(chips):
    recipe = small.recipe("rollout.top_k=5", "rollout.top_p=0.9")
    setup = program.GrpoSetup(
        recipe, small.DIMS, make_mesh(schema.GrpoMesh(fsdp=2, tensor=2), chips), small.STOP, small.PAD
    )
    text = program.programs(setup)["rollout"].lower().as_text()
    assert "stablehlo.while" in text and "stablehlo.sort" not in text and "top_k" not in text


def test_extreme_uniform_numbers_never_draw_a_forbidden_token():
    logits = jnp.asarray([[-1e9, 0.0, -1e9, 1.0, -1e9, -1e9]] * 3)
    tokens, _ = rollout.sample(logits, jnp.asarray([0.0, 1 - 2**-24, 0.5]), Sampling(1.0))
    assert set(tokens.tolist()) <= {1, 3}


def test_group_prefill_equals_a_prefill_for_every_completion():
    one = small.setup("grpo.num_generations=4")
    weights = small.params(one)
    tokens, lengths = small.prompts(one)
    args = dict(max_new_tokens=8, sampling=rollout.GREEDY, stop_ids=(-1,), pad_id=0, dtype=jnp.float32)
    key = jax.random.key(0)
    shared = rollout.generate(one.dims, one.mesh, weights, tokens, lengths, key, num_generations=4, **args)
    repeated = rollout.generate(
        one.dims, one.mesh, weights, jnp.repeat(tokens, 4, 0), jnp.repeat(lengths, 4, 0), key, num_generations=1, **args
    )
    np.testing.assert_array_equal(shared.tokens_PGT.reshape(-1, 8), repeated.tokens_PGT[:, 0])


def test_reported_log_probabilities_are_the_scored_ones():
    s = small.setup("rollout.temperature=0.8")
    made, weights = program.programs(s), small.params(s)
    tokens, lengths = small.prompts(s)
    out = made["rollout"](weights, tokens, lengths, np.int32(0))
    scored = made["score"](weights, qwen3.Group(tokens, lengths, out.tokens_PGT))
    mask = np.arange(8) < np.asarray(out.lengths_PG)[..., None]
    np.testing.assert_allclose(np.asarray(out.logps_PGT)[mask], np.asarray(scored)[mask], atol=1e-4)
    assert (np.asarray(out.logps_PGT)[~mask] == 0).all()


def test_every_rollout_draws_other_noise_and_the_same_number_the_same():
    s = small.setup()
    made, weights = program.programs(s), small.params(s, scale=1.0)
    tokens, lengths = small.prompts(s)
    first, second, again = (
        np.asarray(made["rollout"](weights, tokens, lengths, np.int32(n)).tokens_PGT) for n in (0, 1, 0)
    )
    assert (first != second).mean() > 0.5
    assert (first[:, 0] != first[:, 1]).mean() > 0.5
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(("vocab", "width"), [(151_936, 1187), (512, 32), (384, 24), (97, 97), (17 * 19, 19)])
def test_blocks_of_the_vocabulary_are_few_and_whole_on_devices(vocab, width):
    assert rollout._block_width(vocab) == width
    shards = 8 if vocab % 16 == 0 else 1
    assert vocab // width % shards == 0
