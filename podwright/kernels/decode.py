"""Attention while decoding on NVIDIA GPUs: a program reads a prompt's keys and values and those of one completion as far as it has come.

It is written in Pallas for its Triton backend, which JAX says it will remove: it is imported where the kernel is called. Shape suffixes:
P prompts, S prompt tokens, G completions per prompt, T completion tokens, K key-value heads, R query heads per key-value head, D head_dim,
N rows of queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from podwright.attention_kernels import DECODED_TOKENS

ROWS = 16  # of queries in a product of matrix units, at least
MOST_HEADS = 64  # R: so many rows compile for every card, more were not tried
WARPS, STAGES = 4, 3  # the fastest of ten on an H200, with blocks of 64 tokens
MASKED = -1e30

_Sums = tuple[Array, Array, Array]
"""of rows: values by weight, the largest score, the weights' sum"""


class BlockCache(NamedTuple):
    """Keys and values of one layer in whole blocks of tokens: the prompt's, shared by its group, and each completion's own."""

    prompt_k_PKSD: Array
    prompt_v_PKSD: Array
    k_PKGTD: Array
    v_PKGTD: Array


def new_cache(k_PSKD: Array, v_PSKD: Array, num_generations: int, max_new_tokens: int) -> BlockCache:
    p, s, heads, d = k_PSKD.shape
    filled = ((0, 0), (0, 0), (0, -s % DECODED_TOKENS), (0, 0))
    prompt = (jnp.pad(jnp.swapaxes(x, 1, 2), filled) for x in (k_PSKD, v_PSKD))
    tokens = max_new_tokens + -max_new_tokens % DECODED_TOKENS
    own = (jnp.zeros((p, heads, num_generations, tokens, d), x.dtype) for x in (k_PSKD, v_PSKD))
    return BlockCache(*prompt, *own)


def with_token(cache: BlockCache, k_PGKD: Array, v_PGKD: Array, t: Array) -> BlockCache:
    """The cache with keys and values of token number `t` of every completion."""

    def placed(own_PKGTD: Array, x_PGKD: Array) -> Array:
        return jax.lax.dynamic_update_slice(own_PKGTD, jnp.swapaxes(x_PGKD, 1, 2)[:, :, :, None], (0, 0, 0, t, 0))

    return cache._replace(k_PKGTD=placed(cache.k_PKGTD, k_PGKD), v_PKGTD=placed(cache.v_PKGTD, v_PGKD))


def attend(q_PGKRD: Array, cache: BlockCache, lengths_P: Array, t: Array, interpret: bool = False) -> Array:
    """The query of token number `t`, scaled, sees its prompt's `lengths_P` tokens and its own completion up to itself. -> PGKRD

    Arrays are those of one device. A program has a completion's rows and those of others that fill a product's up.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    p, g, k, r, d = q_PGKRD.shape
    s, tokens = cache.prompt_k_PKSD.shape[2], cache.k_PKGTD.shape[3]
    of_completion = pl.next_power_of_2(r)
    rows = max(ROWS, of_completion)
    q_PKGRD = jnp.einsum("pgkrd->pkgrd", q_PGKRD)
    if r < of_completion:
        q_PKGRD = jnp.pad(q_PKGRD, ((0, 0), (0, 0), (0, 0), (0, of_completion - r), (0, 0)))
    q_PKND = q_PKGRD.reshape(p, k, g * of_completion, d)
    if missing := -q_PKND.shape[2] % rows:
        q_PKND = jnp.pad(q_PKND, ((0, 0), (0, 0), (0, missing), (0, 0)))

    def shared(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, *shape), lambda p, k, g: (p, k, 0, 0))

    def own(*shape: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, None, *shape), lambda p, k, g: (p, k, g, 0, 0))

    queries = pl.BlockSpec((None, None, rows, d), lambda p, k, g: (p, k, g * of_completion // rows, 0))

    def kernel(t_ref: Any, length_ref: Any, q_ref: Any, *refs: Any) -> None:
        prompt_k_ref, prompt_v_ref, k_ref, v_ref, out_ref = refs
        q, length, end = q_ref[...], length_ref[...], t_ref[...] + 1
        sums = (
            jnp.zeros((rows, d), jnp.float32),
            jnp.full((rows,), MASKED, jnp.float32),
            jnp.zeros((rows,), jnp.float32),
        )
        sums = jax.lax.fori_loop(0, _blocks(length), _with_block(q, prompt_k_ref, prompt_v_ref, length), sums)
        out, _, total = jax.lax.fori_loop(0, _blocks(end), _with_block(q, k_ref, v_ref, end), sums)
        mine = jnp.arange(rows) // of_completion == pl.program_id(2) % (rows // of_completion)
        out = (out / total[:, None]).astype(out_ref.dtype)
        triton.store(out_ref.at[:, :], out, mask=mine[:, None])

    out_PKND = pl.pallas_call(
        kernel,
        grid=(p, k, g),
        in_specs=[
            pl.BlockSpec((), lambda p, k, g: ()),
            pl.BlockSpec((None,), lambda p, k, g: (p,)),
            queries,
            *[shared(s, d)] * 2,
            *[own(tokens, d)] * 2,
        ],
        out_specs=queries,
        out_shape=jax.ShapeDtypeStruct(q_PKND.shape, q_PKND.dtype),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
    )(jnp.asarray(t, jnp.int32), lengths_P.astype(jnp.int32), q_PKND, *cache)
    out_PKGRD = out_PKND[:, :, : g * of_completion].reshape(p, k, g, of_completion, d)[:, :, :, :r]
    return jnp.einsum("pkgrd->pgkrd", out_PKGRD)


def _blocks(tokens: Array) -> Array:
    return (tokens + DECODED_TOKENS - 1) // DECODED_TOKENS


def _with_block(q_ND: Array, k_ref: Any, v_ref: Any, end: Array) -> Callable[[Array, _Sums], _Sums]:
    """Adds block number i of keys and values, of which the first `end` tokens count: softmax as in Milakov and Gimelshein (2018)."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    def add(i: Array, sums: _Sums) -> _Sums:
        out, top, total = sums
        block = pl.ds(i * DECODED_TOKENS, DECODED_TOKENS)
        scores = triton.dot(q_ND, k_ref[block, :].T)
        scores = jnp.where((i * DECODED_TOKENS + jnp.arange(DECODED_TOKENS))[None] < end, scores, MASKED)
        new_top = jnp.maximum(top, scores.max(-1))
        shrunk, weight = jnp.exp(top - new_top), jnp.exp(scores - new_top[:, None])
        v = v_ref[block, :]
        return out * shrunk[:, None] + triton.dot(weight.astype(v.dtype), v), new_top, total * shrunk + weight.sum(-1)

    return add
