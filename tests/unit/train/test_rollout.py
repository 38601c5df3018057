"""Sampling draws from the distribution it reports, groups share a prefill without changing anything, noise never repeats."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from podwright.models import qwen3
from podwright.train.grpo import program, rollout
from podwright.train.grpo.rollout import Sampling
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


@pytest.mark.parametrize("vocab", [60, 97, 128])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_tokens_come_from_the_distribution_that_is_reported(sampling, vocab):
    logits = np.random.default_rng(vocab).normal(size=vocab).astype(np.float32) * 2
    expected = expected_distribution(logits, sampling)
    n = 20_000
    uniform = jax.random.uniform(jax.random.key(3), (n,))
    tokens, logps = jax.jit(lambda u: rollout.sample(jnp.broadcast_to(jnp.asarray(logits), (n, vocab)), u, sampling))(uniform)
    np.testing.assert_allclose(np.exp(logps), expected[np.asarray(tokens)], rtol=2e-4)
    counts = np.bincount(tokens, minlength=vocab)
    assert counts[expected == 0].sum() == 0
    likely = expected * n > 5
    observed = np.append(counts[likely], n - counts[likely].sum())
    wanted = np.append(expected[likely], 1 - expected[likely].sum()) * n
    if wanted[-1] < 1e-6:
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4


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
    first, second, again = (np.asarray(made["rollout"](weights, tokens, lengths, np.int32(n)).tokens_PGT) for n in (0, 1, 0))
    assert (first != second).mean() > 0.5
    assert (first[:, 0] != first[:, 1]).mean() > 0.5
    np.testing.assert_array_equal(first, again)
