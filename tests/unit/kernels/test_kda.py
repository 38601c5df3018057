"""Chunks against the recurrence in float64 with its gradient by hand, in regimes of decay from none to thousands a chunk."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from bench.kda_definition import recurrent
from podwright.kernels import kda

B, N, H, K, V = 1, 200, 2, 32, 48  # three chunks and a part of one; keys and values of different width
NAMES = ("o", "q", "k", "v", "g", "beta")


def inputs(regime, b=B, n=N, h=H, seed=0):
    """q, k, v, g, beta as float32, with keys of length 1."""
    rng = np.random.default_rng(seed)
    q, k, x = (rng.standard_normal((b, n, h, K)) for _ in range(3))
    v = rng.standard_normal((b, n, h, V))
    beta = 1 / (1 + np.exp(-rng.standard_normal((b, n, h))))
    if regime == "parallel":
        k = rng.standard_normal((b, 1, h, K)) + 1e-2 * k
        beta = 1 - 1e-3 * beta
    unit = [y / np.sqrt((y**2).sum(-1, keepdims=True) + 1e-6) for y in (q, k)]
    return [y.astype(np.float32) for y in (unit[0] / K**0.5, unit[1], v, decay(regime, rng, x), beta)]


def decay(regime, rng, x):
    softplus = np.log1p(np.exp(x))
    if regime == "start":  # of Kimi-Linear: rates from 1 to 16, steps from 0.001 to 0.1
        step = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), x.shape[2:]))
        return -rng.uniform(1, 16, (x.shape[2], 1)) * np.log1p(np.exp(0.2 * x + step + np.log(-np.expm1(-step))))
    return {
        "none": -1e-3 * softplus,
        "parallel": -1e-4 * softplus,
        "bounded": -5 / (1 + np.exp(-4 * x)),
        "at the bound": np.full_like(x, -5.0),
        "strong": -8 * softplus,
        "extreme": -16 * np.log1p(np.exp(x + 3)),
        "mixed": np.where(x > 0.5, -60.0, -1e-3),  # a small sum of g just after a large one
    }[regime]


def exact(q, k, v, g, beta, weight, begins=()):
    """The recurrence and the gradients of sum(o * weight) in float64, by hand. `begins`: tokens before which the state is dropped."""
    q, k, v, g, beta, weight = (np.asarray(x, np.float64) for x in (q, k, v, g, beta, weight))
    n = q.shape[1]
    kept = np.exp(g) * np.array([t not in begins for t in range(n)])[None, :, None, None]
    states, wrong = [np.zeros((q.shape[0], q.shape[2], K, V))], []
    for t in range(n):
        decayed = states[t] * kept[:, t, ..., None]
        wrong.append(v[:, t] - np.einsum("bhk,bhkv->bhv", k[:, t], decayed))
        states.append(decayed + np.einsum("bh,bhk,bhv->bhkv", beta[:, t], k[:, t], wrong[t]))
    o = np.stack([np.einsum("bhk,bhkv->bhv", q[:, t], states[t + 1]) for t in range(n)], 1)
    dq, dk, dv, dg, d_beta = (np.zeros_like(x) for x in (q, k, v, g, beta))
    d_state = np.zeros_like(states[0])
    for t in reversed(range(n)):
        d_state = d_state + np.einsum("bhk,bhv->bhkv", q[:, t], weight[:, t])
        dq[:, t] = np.einsum("bhkv,bhv->bhk", states[t + 1], weight[:, t])
        written = np.einsum("bhkv,bhv->bhk", d_state, wrong[t])
        dv[:, t] = np.einsum("bh,bhk,bhkv->bhv", beta[:, t], k[:, t], d_state)
        decayed = states[t] * kept[:, t, ..., None]
        dk[:, t] = beta[:, t, :, None] * written - np.einsum("bhkv,bhv->bhk", decayed, dv[:, t])
        d_beta[:, t] = (written * k[:, t]).sum(-1)
        d_decayed = d_state - np.einsum("bhk,bhv->bhkv", k[:, t], dv[:, t])
        dg[:, t] = (d_decayed * decayed).sum(-1)
        d_state = d_decayed * kept[:, t, ..., None]
    return dict(zip(NAMES, (o, dq, dk, dv, dg, d_beta), strict=True))


def weights(values):
    return np.random.default_rng(9).standard_normal(values[2].shape).astype(np.float32)


@functools.partial(jax.jit, static_argnames="bounded")
def both(given, weight, segment_ids, bounded):
    o, back = jax.vjp(lambda *x: kda.chunked(*x, segment_ids, bounded=bounded), *given)
    return o, *back(weight)


def run(values, bounded, segment_ids=None, dtype=jnp.float32):
    """Output and gradients of `chunked` with q, k and v in `dtype`."""
    given = [jnp.asarray(x, dtype) for x in values[:3]] + [jnp.asarray(x) for x in values[3:]]
    found = both(given, jnp.asarray(weights(values), dtype), segment_ids, bounded)
    return dict(zip(NAMES, (np.asarray(x, np.float64) for x in found), strict=True))


def error(ours, right):
    return np.linalg.norm(ours - right) / np.linalg.norm(right)


REGIMES = {
    "none": 0,
    "start": 0,
    "bounded": 0,
    "at the bound": 0,
    "strong": -400,
    "extreme": -3000,
    "mixed": -1000,
    "parallel": 0,
}


@pytest.mark.parametrize(("regime", "deepest"), REGIMES.items())
def test_chunks_equal_the_recurrence(regime, deepest):
    values = inputs(regime)
    assert values[3][:, :64].sum(1).min() <= deepest, "the regime is not what it is called"
    right = exact(*values, weights(values))
    for bounded in (False, True) if values[3].min() >= kda.BOUND else (False,):
        ours = run(values, bounded)
        errors = {name: error(ours[name], right[name]) for name in NAMES}
        assert max(errors.values()) < 1e-5, (bounded, errors)


def test_a_promise_of_bounded_decays_is_used_and_matters():
    """Else the bounded form would not be what the other tests run."""
    assert not np.isfinite(run(inputs("extreme"), bounded=True)["o"]).all()


@pytest.mark.parametrize("regime", ["start", "bounded", "strong", "extreme"])
def test_products_in_bfloat16(regime):
    values = inputs(regime)
    right = exact(*values, weights(values))
    ours = run(values, bounded=False, dtype=jnp.bfloat16)
    errors = {name: error(ours[name], right[name]) for name in NAMES}
    assert max(errors.values()) < 0.02 and errors["o"] < 0.01, errors


# at the ends of chunks, beside them and within; several in one chunk; a chunk between two of one document
BEGINS = [(64,), (128,), (63, 65), (64, 128, 192), (100,), (3, 4, 66, 130)]


@pytest.mark.brief(12)
@pytest.mark.parametrize(
    ("regime", "bounded"), [("bounded", True), ("bounded", False), ("none", True), ("none", False)]
)
@pytest.mark.parametrize("begins", BEGINS, ids=str)
def test_no_state_crosses_from_one_document_to_the_next(begins, regime, bounded):
    """With decays that forget within a few tokens, and with those that keep a state over many chunks: there it shows what crosses."""
    values = inputs(regime)
    ids = jnp.asarray(sum((np.arange(N) >= t).astype(int) for t in begins) % 2)[None]  # the same two ids over and over
    right = exact(*values, weights(values), begins)
    ours = run(values, bounded, ids)
    for name in NAMES:
        assert error(ours[name], right[name]) < 1e-5, name
    least = 1e-3 if regime == "bounded" else 0.1
    assert error(run(values, bounded)["o"], right["o"]) > least, "documents make no difference here"


def test_packed_documents_are_as_if_each_was_alone():
    values, edges = inputs("bounded"), (0, 100, N)
    forward = jax.jit(functools.partial(kda.chunked, bounded=True))
    packed = forward(*values, jnp.asarray(np.arange(N) >= 100, int)[None])
    apart = [forward(*(x[:, a:b] for x in values)) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(packed, np.concatenate(apart, 1), atol=1e-6)


@pytest.mark.brief(1)
@pytest.mark.parametrize("regime", ["bounded", "none"])
def test_parts_of_rows_on_four_devices_are_the_whole(regime):
    """Documents end inside a part and at the edge between two; ids come again; one row goes on over all parts, and in one a document
    that begins with a part goes on over those after it.
    """
    values, mesh = (
        inputs(regime, b=3),
        jax.make_mesh((4,), ("parts",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4]),
    )
    rows = (50, 100, 130, 133), (), (50,)
    ids = jnp.asarray([np.searchsorted(begins, np.arange(N), "right") % 2 for begins in rows], jnp.int32)
    spec = PartitionSpec(None, "parts")
    across = jax.shard_map(
        functools.partial(kda.across, bounded=True, axis="parts"),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    o, back = jax.vjp(jax.jit(lambda *x: across(*x, ids)), *values)
    ours = dict(zip(NAMES, (o, *back(jnp.asarray(weights(values)))), strict=True))
    weight = weights(values)
    for row, begins in enumerate(rows):
        right = exact(*(x[row : row + 1] for x in (*values, weight)), begins)
        for name in NAMES:
            assert error(np.asarray(ours[name][row : row + 1], np.float64), right[name]) < 1e-5, (row, name)
    assert error(o, run(values, True)["o"]) > 1e-3, "documents make no difference here"


@pytest.mark.parametrize("bounded", [False, True])
def test_nothing_sees_a_later_token(bounded):
    values = inputs("none")
    forward = jax.jit(functools.partial(kda.chunked, bounded=bounded))
    before = np.asarray(forward(*values))
    for t in (0, 70, 127, 128, N - 1):
        for number, value in enumerate(values):
            changed = value.copy()
            changed[:, t] -= 0.5
            difference = np.abs(before - np.asarray(forward(*values[:number], changed, *values[number + 1 :]))).max(
                (0, 2, 3)
            )
            # the middle of a bounded block is the reference of all its decays, which rounds those before it differently
            assert difference[:t].max(initial=0) <= (1e-6 if bounded and NAMES[number + 1] == "g" else 0)
            assert difference[t] > 1e-4 or (
                t == 0 and NAMES[number + 1] == "g"
            )  # nothing is there to decay before the first


@pytest.mark.parametrize("n", [1, 64])
def test_one_chunk(n):
    values = inputs("start", n=n)
    o = jax.jit(functools.partial(kda.chunked, bounded=False))(*values)
    np.testing.assert_allclose(o, exact(*values, weights(values))["o"], atol=1e-6)


@pytest.mark.long
def test_groups_of_chunks_one_after_the_other_are_the_same(monkeypatch):
    values = inputs("start", b=2, n=500)
    ids = jnp.asarray(np.arange(500) // 150)[None].repeat(2, 0)
    whole = run(values, False, ids)
    monkeypatch.setattr(kda, "MOST_AT_ONCE", 8)  # two chunks of two rows of two heads, so four groups
    jax.clear_caches()
    parts = run(values, False, ids)
    jax.clear_caches()
    for name in NAMES:
        np.testing.assert_allclose(parts[name], whole[name], atol=2e-6 * np.abs(whole[name]).max())


def test_the_recurrence_in_jax_is_the_definition():
    values = inputs("start")
    ids = jnp.asarray(np.arange(N) // 70)[None]
    right = exact(*values, weights(values), (70, 140))["o"]
    assert error(np.asarray(recurrent(*values, ids)), right) < 1e-6


@pytest.mark.parametrize("most", [kda.MOST_AT_ONCE, 8])
def test_what_is_kept_for_the_gradient_are_the_inputs_and_a_state_a_chunk(monkeypatch, most):
    """In one group, or in two of four chunks each, which fill the last chunk and no more."""
    monkeypatch.setattr(kda, "MOST_AT_ONCE", most)
    values = [jnp.asarray(x) for x in inputs("bounded", n=512)]
    _, back = jax.vjp(functools.partial(kda.chunked, bounded=True), *values)
    kept = sum(x.nbytes for x in jax.tree.leaves(back))
    assert kept <= sum(x.nbytes for x in values) + 512 // 64 * H * K * V * 4


@pytest.mark.parametrize("inverse", [kda._inverse_by_blocks, kda._inverse_by_halves])
def test_the_inverse_on_every_platform(inverse):
    """Keys that are alike: powers of the matrix have entries of 1e17, its inverse none above 1."""
    a = np.tril(1 - 1e-3 * np.random.default_rng(0).random((3, 2, kda.CHUNK, kda.CHUNK)), -1).astype(np.float32)
    np.testing.assert_allclose(
        inverse(jnp.asarray(a)), np.linalg.inv(np.eye(kda.CHUNK) + a.astype(np.float64)), atol=1e-5
    )
