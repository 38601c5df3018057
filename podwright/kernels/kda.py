"""Kimi Delta Attention (arXiv 2510.26692) in plain JAX: `chunked`, for training on any device, and `across`, which is `chunked` for
sequences of which every device has a part.

A head's state S [K, V] is zero where a document begins; token t makes S <- (I - beta k k^T) diag(exp g) S + beta k v^T and reads S^T q.
`chunked` takes 64 tokens at a time (the paper's WY form) and is safe for any decay g <= 0: no exponent is positive unless decays are
bounded, and sums of g are never differences of longer sums. A kernel for one kind of accelerator goes beside it, in a file of its own.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from podwright.recipe.hybrid import CHUNK

# Shape suffixes: B batch, N tokens, H heads, K key dim, V value dim, R chunks of a group, C tokens of a chunk (I, J where there are two).
# [...] in comments is [R, B, H].

BLOCK = 16  # sums of g start anew in each; with bounded decays a block is one product
MOST_AT_ONCE = 160  # rows times heads times chunks that are computed side by side: much of it stays in on-chip memory
BOUND = -5.0  # of g, where it is bounded: half a block of it is exp(40), far from float32's end

Arrays = tuple[Array, ...]


def chunked(
    q_BNHK: Array,
    k_BNHK: Array,
    v_BNHV: Array,
    g_BNHK: Array,
    beta_BNH: Array,
    segment_ids_BN: Array | None = None,
    *,
    bounded: bool,
) -> Array:
    """The recurrence above, 64 tokens at a time, with products in the inputs' dtype and sums in float32. -> BNHV

    `bounded` promises g >= BOUND. g and beta are float32. Any number of tokens: the rest of the last chunk is filled with tokens
    that do nothing. For the backward pass the inputs and the state at each chunk are kept; the rest is computed again.
    """
    start = jnp.zeros((*q_BNHK.shape[::2], q_BNHK.shape[3], v_BNHV.shape[3]), jnp.float32)
    return _from(start, (q_BNHK, k_BNHK, v_BNHV, g_BNHK, beta_BNH), segment_ids_BN, bounded)[0]


def across(
    q_BNHK: Array,
    k_BNHK: Array,
    v_BNHV: Array,
    g_BNHK: Array,
    beta_BNH: Array,
    segment_ids_BN: Array | None = None,
    *,
    bounded: bool,
    axis: str,
) -> Array:
    """`chunked` under shard_map, where each device along the mesh axis `axis` has the next N tokens of every row. -> BNHV

    Tokens of a part take the state S before it to A S + B. All parts are done at once, in one pass: the columns of the identity,
    as more columns of a state without values, end as A, and what tokens read of them times S is what they read of S.
    A and B travel, [K, K + V] float32 a head. A is zero where a document ends between S and them.
    """
    (b, _, h, k_dim), v_dim, num = q_BNHK.shape, v_BNHV.shape[-1], jax.lax.axis_size(axis)
    identity = jnp.broadcast_to(jnp.eye(k_dim, dtype=jnp.float32), (b, h, k_dim, k_dim))
    start = jnp.pad(identity, ((0, 0), (0, 0), (0, 0), (v_dim, 0)))
    values = jnp.pad(v_BNHV, ((0, 0), (0, 0), (0, 0), (0, k_dim)))
    out, end = _from(start, (q_BNHK, k_BNHK, values, g_BNHK, beta_BNH), segment_ids_BN, bounded)
    (own, reads), (added, kept) = jnp.split(out, [v_dim], axis=-1), jnp.split(end, [v_dim], axis=-1)
    goes_on = jnp.ones((b, 1, 1, 1), bool)
    if segment_ids_BN is not None:
        goes_on = (segment_ids_BN[:, 0] == from_left(segment_ids_BN, 1, axis)[:, 0])[:, None, None, None]
    added, kept = jax.lax.all_gather((added, jnp.where(goes_on, kept, 0.0)), axis)
    state = jnp.zeros((b, h, k_dim, v_dim), jnp.float32)
    for part in range(num - 1):
        after = added[part] + _mm(kept[part], state, jnp.float32)
        state = jnp.where(part < jax.lax.axis_index(axis), after, state)
    state = jnp.where(goes_on, state, 0.0)
    from_before = jnp.einsum("bnhk,bhkv->bnhv", reads, state.astype(reads.dtype), preferred_element_type=jnp.float32)
    return (own.astype(jnp.float32) + from_before).astype(own.dtype)


def from_left(x_BN: Array, num: int, axis: str) -> Array:
    """The last `num` tokens of the device before this one along mesh axis `axis`; zeros for the first device."""
    last = x_BN[:, x_BN.shape[1] - num :]
    return jax.lax.ppermute(last, axis, [(i, i + 1) for i in range(jax.lax.axis_size(axis) - 1)])


def _from(start: Array, inputs: Arrays, segment_ids_BN: Array | None, bounded: bool) -> tuple[Array, Array]:
    """Output and last state of tokens that find the state `start`, in a document that goes on with the first one."""
    b, n, h, _ = inputs[0].shape
    # At least two: a loop over one is unrolled, and then XLA's CPU compiler (jaxlib 0.10.2) may multiply with a wrong first state.
    chunks, most = max(2, -(-n // CHUNK)), max(1, MOST_AT_ONCE // (b * h))
    groups = -(-chunks // (1 << most.bit_length() - 1))  # by a power of two, as most sequences are
    room = -(-chunks // groups) * CHUNK * groups - n

    def filled(x: Array) -> Array:
        return jnp.pad(x, [(0, 0), (0, room)] + [(0, 0)] * (x.ndim - 2)) if room else x

    runs = None if segment_ids_BN is None else jnp.pad(documents(segment_ids_BN), ((0, 0), (0, room)), mode="edge")
    out, end = _chunked(bounded, groups, start, *map(filled, inputs), runs)
    return out[:, :n], end


def documents(segment_ids_BN: Array) -> Array:
    """The number of each token's document in its row, from 0: the same id in two places is two documents."""
    return jnp.cumsum(jnp.diff(segment_ids_BN, axis=1, prepend=segment_ids_BN[:, :1]) != 0, axis=1, dtype=jnp.int32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _chunked(bounded: bool, groups: int, start: Array, *inputs: Any) -> tuple[Array, Array]:
    return _forward(bounded, groups, start, inputs, keep=False)[0]


def _chunked_forward(bounded: bool, groups: int, start: Array, *inputs: Any) -> tuple[Any, tuple[Any, Array]]:
    out, states = _forward(bounded, groups, start, inputs, keep=True)
    return out, (inputs, states)


def _forward(bounded: bool, groups: int, start: Array, inputs: Any, keep: bool) -> tuple[tuple[Array, Array], Array]:
    """The output BNHV with the last state, and, where they are to be kept, the states before each chunk."""
    q, _, v, *_ = inputs
    dtype, n = q.dtype, q.shape[1]
    size = n // CHUNK // groups

    def advance(i: Array, carry: Arrays) -> Arrays:
        state, out, states = carry
        c = _within_chunks(bounded, *_group(inputs, i, size))

        def step(state: Array, x: Arrays) -> tuple[Array, Arrays]:
            w, u, k_end, kept = x
            new = (u - _mm(w, state, dtype)).astype(dtype)
            return kept[..., None] * state + _mm(k_end, new, dtype, "ik"), (state.astype(dtype), new)

        state, (before, new) = jax.lax.scan(step, state, (c.w, c.u, c.k_end, c.kept))
        o = _mm(c.q_in, before, dtype) + _mm(c.scores, new, dtype)
        states = jax.lax.dynamic_update_slice_in_dim(states, before, i * size, 0) if keep else states
        return state, _put(out, o, i), states

    states = jnp.zeros((n // CHUNK if keep else 0, *start.shape), dtype)
    end, out, states = jax.lax.fori_loop(0, groups, advance, (start, jnp.zeros_like(v), states))
    return (out, end), states


def _chunked_backward(bounded: bool, groups: int, saved: tuple[Any, Array], cotangents: Any) -> tuple[Any, ...]:
    (inputs, states), (d_out, d_end) = saved, cotangents
    size = d_out.shape[1] // CHUNK // groups

    def backward(j: Array, carry: tuple[Array, Arrays]) -> tuple[Array, Arrays]:
        i = groups - 1 - j
        d_state, grads = carry
        parts = _group(inputs, i, size)
        before = jax.lax.dynamic_slice_in_dim(states, i * size, size, 0)
        d_state, ours = _group_backward(parts, _within_chunks(bounded, *parts), before, _rows(d_out, i, size), d_state)
        return d_state, tuple(_put(gradient, x, i) for gradient, x in zip(grads, ours, strict=True))

    d_start, grads = jax.lax.fori_loop(0, groups, backward, (d_end, tuple(jnp.zeros_like(x) for x in inputs[:5])))
    return d_start, *grads, None


_chunked.defvjp(_chunked_forward, _chunked_backward)


def _rows(x_BN: Array, i: Array, size: int) -> Array:
    """Group number i of [B, N, H, D] (or [B, N, H], [B, N]) as [R, B, H, C, D]."""
    x = jax.lax.dynamic_slice_in_dim(x_BN, i * size * CHUNK, size * CHUNK, 1)
    x = x.reshape(x.shape[0], size, CHUNK, *x.shape[2:])
    return jnp.moveaxis(jnp.moveaxis(x, 1, 0), 2, 3) if x.ndim > 3 else jnp.moveaxis(x, 1, 0)


def _put(whole_BN: Array, x: Array, i: Array) -> Array:
    """The reverse of `_rows`."""
    x = jnp.moveaxis(jnp.moveaxis(x, 3, 2), 0, 1)
    x = x.reshape(x.shape[0], -1, *x.shape[3:])
    return jax.lax.dynamic_update_slice_in_dim(whole_BN, x.astype(whole_BN.dtype), i * x.shape[1], 1)


def _group(inputs: Any, i: Array, size: int) -> tuple[Any, ...]:
    """q, k, v, g, beta and `_Documents` of group number i."""
    *values, runs = inputs
    documents = None
    if runs is not None:
        runs_RBC = _rows(runs, i, size)
        earlier = jnp.concatenate([runs[:, :1], runs[:, :-1]], axis=1)
        documents = _Documents(runs_RBC[:, :, None], _rows(earlier, i, size)[:, :, None, :1])
    return *(_rows(x, i, size) for x in values), documents


class _Documents(NamedTuple):
    runs: Array
    """[R, B, 1, C]"""
    before: Array
    """[R, B, 1, 1] of the token before the chunk"""


def _mm(a: Array, b: Array, dtype: Any, sums: str = "kj") -> Array:
    """a @ b, or with `sums` "ik" a^T @ b, with "jk" a @ b^T: which of a's and b's last two dims are summed over."""
    spec = {"kj": "...ij,...jk->...ik", "ik": "...ji,...jk->...ik", "jk": "...ij,...kj->...ik"}[sums]
    return jnp.einsum(spec, a.astype(dtype), b.astype(dtype), precision="highest", preferred_element_type=jnp.float32)


class _Level(NamedTuple):
    """Pairs of tokens (i, j) with j before i, some of those of a chunk; all levels together have each pair once.

    exp of the sum of g over j+1..i is a product of a factor of i and one of j, both sums up to the level's own boundary.
    """

    pairs: np.ndarray
    """[C, C]"""
    rows: Array
    """factors of i, [..., C, K]"""
    columns: Array
    """of j"""


@functools.cache
def _later(m: int) -> np.ndarray:
    """Which tokens of a chunk are in the second half of their 2m tokens."""
    return np.arange(CHUNK) // m % 2 == 1


@functools.cache
def _halves(m: int) -> np.ndarray:
    """Pairs of the same 2m tokens with i in the second half and j in the first."""
    same = np.arange(CHUNK)[:, None] // (2 * m) == np.arange(CHUNK) // (2 * m)
    return same & _later(m)[:, None] & ~_later(m)


@functools.cache
def _block_sums(halves: tuple[int, ...]) -> np.ndarray:
    """0/1 matrices [sums, BLOCK, BLOCK] that add up g from the middle of each 2m tokens to i, in either direction; last, from the
    block's first token to i and from i+1 to its last."""
    i, t = np.arange(BLOCK)[:, None], np.arange(BLOCK)
    masks = []
    for m in halves:
        middle = i // (2 * m) * 2 * m + m
        masks.append(np.where(i >= middle, (t >= middle) & (t <= i), (t > i) & (t < middle)))
    return np.stack([*masks, t <= i, t > i]).astype(np.float32)


def _sums(g: Array, halves: tuple[int, ...]) -> list[Array]:
    """Sums of g [..., C, K] from the middle of each 2m tokens, for m in `halves`, BLOCK and 2 BLOCK; from the chunk's first token to i,
    and from i+1 to its last. All are sums of what they say alone: no large sum is taken away again."""
    blocks = g.reshape(*g.shape[:-2], CHUNK // BLOCK, BLOCK, g.shape[-1])
    local = jnp.einsum("sit,...tk->s...ik", _block_sums(halves), blocks, precision="highest")
    *small, first, last = local
    t0, t1, t2, t3 = jnp.moveaxis(first[..., -1:, :], -3, 0)
    none = jnp.zeros_like(t0)
    second = _later(BLOCK)[::BLOCK, None, None]
    far = jnp.where(_later(2 * BLOCK)[::BLOCK, None, None], first, last) + jnp.stack([t1, none, none, t2], -3)
    before = jnp.stack([none, t0, t0 + t1, t0 + t1 + t2], -3)
    after = jnp.stack([t1 + t2 + t3, t2 + t3, t3, none], -3)
    return [x.reshape(g.shape) for x in (*small, jnp.where(second, first, last), far, first + before, last + after)]


def _levels(g: Array, bounded: bool) -> tuple[list[_Level], Array, Array]:
    """The levels, the sums of g up to each token of its chunk and those after it."""
    halves: tuple[int, ...] = (BLOCK // 2,) if bounded else tuple(2**n for n in range(BLOCK.bit_length() - 1))
    *sums, begin, end = _sums(g, halves)
    levels = []
    if bounded:  # both halves of a block at once, from its middle: factors above 1, but no more than exp(40)
        x = jnp.where(_later(BLOCK // 2)[:, None], sums[0], -sums[0])
        i, j = np.arange(CHUNK)[:, None], np.arange(CHUNK)
        levels.append(_Level((i // BLOCK == j // BLOCK) & (j < i), jnp.exp(x), jnp.exp(-x)))
        sums, halves = sums[1:], ()
    for m, x in zip((*halves, BLOCK, 2 * BLOCK), sums, strict=True):
        factor = jnp.exp(x)
        levels.append(_Level(_halves(m), factor, factor))
    return levels, begin, end


class _Chunks(NamedTuple):
    """What does not depend on the state, for all chunks of a group."""

    levels: list[_Level]
    same: Array | None
    """pairs of one document [R, B, 1, C, C]"""
    from_start: Array
    """decay from the state to each token, 0 after a document's end [..., C, K]"""
    to_end: Array
    """decay from each token to the next chunk's state"""
    kept: Array
    """decay of the state [..., K]"""
    q_in: Array
    k_in: Array
    k_end: Array
    scores: Array
    """what token i reads of token j [..., C, C]"""
    keys: Array
    """decayed k_i k_j for j before i"""
    inverse: Array
    """(1 + beta keys)^-1"""
    w: Array
    u: Array
    """state S adds u - w S"""


def _within_chunks(
    bounded: bool, q: Array, k: Array, v: Array, g: Array, beta: Array, documents: _Documents | None
) -> _Chunks:
    levels, begin, end = _levels(g, bounded)
    from_start, to_end, kept = jnp.exp(begin), jnp.exp(end), jnp.exp(begin[..., -1, :])
    same = None
    if documents is not None:
        runs, before = documents
        same = runs[..., :, None] == runs[..., None, :]
        from_start = jnp.where((runs == before)[..., None], from_start, 0.0)
        to_end = jnp.where((runs == runs[..., -1:])[..., None], to_end, 0.0)
        kept = jnp.where(runs[..., -1:] == before, kept, 0.0)
    dtype = q.dtype
    grams = jnp.zeros((*q.shape[:-2], 2 * CHUNK, CHUNK), jnp.float32)
    for level in levels:
        product = _mm(_both(q, k, level.rows), k * level.columns, dtype, "jk")
        grams = jnp.where(np.tile(level.pairs, (2, 1)), product, grams)
    scores, keys = grams[..., :CHUNK, :], grams[..., CHUNK:, :]
    if same is not None:
        scores, keys = jnp.where(same, scores, 0.0), jnp.where(same, keys, 0.0)
    own = jnp.sum(q.astype(jnp.float32) * k.astype(jnp.float32), axis=-1)  # no decay between a token and itself
    scores = scores + own[..., None] * np.eye(CHUNK, dtype=np.float32)
    inverse = _inverse(beta[..., None] * keys)
    k_in = k * from_start
    w, u = jnp.split(_mm(inverse * beta[..., None, :], _joined(k_in, v, dtype), dtype), [k.shape[-1]], axis=-1)
    return _Chunks(
        levels, same, from_start, to_end, kept, q * from_start, k_in, k * to_end, scores, keys, inverse, w, u
    )


def _both(q: Array, k: Array, factors: Array) -> Array:
    """q and k, one below the other: they meet the same keys."""
    return jnp.concatenate([q * factors, k * factors], axis=-2)


def _joined(a: Array, b: Array, dtype: Any) -> Array:
    return jnp.concatenate([a.astype(dtype), b.astype(dtype)], axis=-1)


def _inverse(strictly_lower: Array) -> Array:
    """(1 + A)^-1. A CPU, for which a product of zeros is work like any other, takes blocks; others few large products."""
    return jax.lax.platform_dependent(strictly_lower, cpu=_inverse_by_blocks, default=_inverse_by_halves)


def _inverse_by_halves(strictly_lower: Array) -> Array:
    """From the inverses of two halves that of the whole, from 1 token up: no power of A grows, as in a Neumann series."""
    size = strictly_lower.shape[-1]

    def part(m: int) -> Array:
        return jnp.where(_halves(m)[:size, :size], strictly_lower, 0.0)

    inverse = jnp.eye(size, dtype=jnp.float32) - part(1)
    for m in (2**n for n in range(1, size.bit_length() - 1)):
        below = _mm(inverse, part(m), jnp.float32)
        inverse = inverse - _mm(below, inverse, jnp.float32)
    return inverse


def _inverse_by_blocks(strictly_lower: Array) -> Array:
    """The same; blocks of more than BLOCK tokens are multiplied without the zeros around them."""

    def blocks(size: int, row: int, step: int) -> Array:
        """Of so many tokens, `row` below the diagonal, every `step` tokens: [..., blocks, size, size]"""
        starts = range(0, CHUNK - row, step)
        return jnp.stack([strictly_lower[..., i + row : i + row + size, i : i + size] for i in starts], axis=-3)

    inverse, size = _inverse_by_halves(blocks(BLOCK, 0, BLOCK)), BLOCK
    while size < CHUNK:
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        below = _mm(second, _mm(blocks(size, size, 2 * size), first, jnp.float32), jnp.float32)
        above = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
        inverse = jnp.concatenate([above, jnp.concatenate([-below, second], axis=-1)], axis=-2)
        size *= 2
    return inverse[..., 0, :, :]


def _group_backward(
    parts: tuple[Any, ...], c: _Chunks, before: Array, d_o: Array, d_state: Array
) -> tuple[Array, Arrays]:
    """Gradients of the state before the group, and of q, k, v, g and beta."""
    q, k, v, _, beta, _ = parts
    dtype = q.dtype
    new = (c.u - _mm(c.w, before, dtype)).astype(dtype)

    def step(d_state: Array, x: Arrays) -> tuple[Array, Arrays]:
        d_new, k_end, reads, d_o, kept = x
        d_new = (d_new + _mm(k_end, d_state, dtype)).astype(dtype)
        d_before = kept[..., None] * d_state + _mm(reads, jnp.concatenate([d_o, d_new], axis=-2), dtype, "ik")
        return d_before, (d_new, d_state)

    reads = jnp.concatenate([c.q_in.astype(dtype), -c.w.astype(dtype)], axis=-2)
    along = _mm(c.scores, d_o, dtype, "ik"), c.k_end, reads, d_o.astype(dtype), c.kept
    d_state, (d_new, d_after) = jax.lax.scan(step, d_state, along, reverse=True)

    d_q_in = _mm(d_o, before, dtype, "jk")
    d_wu = _joined(-_mm(d_new, before, dtype, "jk"), d_new, dtype)
    d_k_end = _mm(new, d_after, dtype, "jk")
    d_kept = c.kept * jnp.sum(before.astype(jnp.float32) * d_after, axis=-1)
    d_scores = _mm(d_o, new, dtype, "jk")

    d_k_in, d_v = jnp.split(_mm(c.inverse * beta[..., None, :], d_wu, dtype, "ik"), [k.shape[-1]], axis=-1)
    d_mixed = _mm(d_wu, _joined(c.k_in, v, dtype), dtype, "jk")
    d_beta = jnp.sum(c.inverse * d_mixed, axis=-2)
    d_a = -_mm(c.inverse, _mm(d_mixed * beta[..., None, :], c.inverse, jnp.float32, "jk"), jnp.float32, "ik")
    strictly = np.tril(np.ones((CHUNK, CHUNK), bool), -1)
    d_beta = d_beta + jnp.sum(jnp.where(strictly, d_a * c.keys, 0.0), axis=-1)
    d_keys = beta[..., None] * d_a

    from_q, from_k, from_columns = _gram_backward(q, k, c, d_scores, d_keys)
    own = jnp.diagonal(d_scores, axis1=-2, axis2=-1)[..., None]
    q_in, k_in, k_end = d_q_in * c.from_start, d_k_in * c.from_start, d_k_end * c.to_end
    d_sum = q * (from_q + q_in) + k * (from_k + k_in - from_columns - k_end)
    d_last = d_kept + jnp.sum(k * k_end, axis=-2)
    d_g = (
        jnp.einsum("it,...ik->...tk", np.tril(np.ones((CHUNK, CHUNK), np.float32)), d_sum, precision="highest")
        + d_last[..., None, :]
    )
    d_q = from_q + q_in + own * k
    d_k = from_k + from_columns + k_in + k_end + own * q
    return d_state, (d_q, d_k, d_v, d_g, d_beta)


def _gram_backward(q: Array, k: Array, c: _Chunks, d_scores: Array, d_keys: Array) -> Arrays:
    """Gradients of q and k as rows of scores and keys, and of k as their columns."""
    d_grams = jnp.concatenate([d_scores, d_keys], axis=-2)
    if c.same is not None:
        d_grams = jnp.where(jnp.concatenate([c.same, c.same], axis=-2), d_grams, 0.0)
    dtype = q.dtype
    d_rows = jnp.zeros((*k.shape[:-2], 2 * CHUNK, k.shape[-1]), jnp.float32)
    d_columns = jnp.zeros(k.shape, jnp.float32)
    for level in c.levels:
        d_level = jnp.where(np.tile(level.pairs, (2, 1)), d_grams, 0.0).astype(dtype)
        d_rows += _mm(d_level, k * level.columns, dtype) * jnp.concatenate([level.rows, level.rows], axis=-2)
        d_columns += _mm(d_level, _both(q, k, level.rows), dtype, "ik") * level.columns
    return *jnp.split(d_rows, 2, axis=-2), d_columns
