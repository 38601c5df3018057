"""Attention while decoding on NVIDIA GPUs: a program reads a prompt's keys and values and those of one completion as far as it has come.

It is written in Pallas for its Triton backend, which JAX says it will remove: it is imported where the kernel is called. Shape suffixes:
P prompts, S prompt tokens, G completions per prompt, T completion tokens, K key-value heads, R query heads per key-value head, D head_dim,
N rows of queries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from podwright.attention_kernels import DECODED_TOKENS

ROWS = 16  # of queries in a product of matrix units, at least
MOST_HEADS = 64  # R: so many rows compile for every card, more were not tried
WARPS, STAGES = 4, 3  # no other choice was faster on an H200, with blocks of 64 tokens
MASKED = -1e30

Sums = tuple[Array, Array, Array]


class BlockCache(NamedTuple):
    """Keys and values of one layer in whole blocks of tokens: the prompt's, shared by its group, and each completion's own."""

    prompt_k_PKSD: Array
    prompt_v_PKSD: Array
    k_PKGTD: Array
    v_PKGTD: Array


def new_cache(k_PSKD: Array, v_PSKD: Array, num_generations: int, max_new_tokens: int) -> BlockCache:
    p, s, heads, d = k_PSKD.shape
    filled = (0, 0), (0, 0), (0, -s % DECODED_TOKENS), (0, 0)
    k, v = (jnp.pad(jnp.swapaxes(x, 1, 2), filled) for x in (k_PSKD, v_PSKD))
    own = jnp.zeros((p, heads, num_generations, max_new_tokens + -max_new_tokens % DECODED_TOKENS, d), k_PSKD.dtype)
    return BlockCache(k, v, own, own)


def with_token(cache: BlockCache, k_PGKD: Array, v_PGKD: Array, t: Array) -> BlockCache:
    """The cache with keys and values of token number `t` of every completion."""
    k, v = (
        jax.lax.dynamic_update_slice(old, jnp.swapaxes(new, 1, 2)[:, :, :, None], (0, 0, 0, t, 0))
        for old, new in zip(cache[2:], (k_PGKD, v_PGKD), strict=True)
    )
    return cache._replace(k_PKGTD=k, v_PKGTD=v)


def attend(q_PGKRD: Array, cache: BlockCache, lengths_P: Array, t: Array, interpret: bool = False) -> Array:
    """The query of token number `t`, scaled, sees its prompt's `lengths_P` tokens and its own completion up to itself. -> PGKRD

    Arrays are those of one device. A program has a completion's rows, and those of others or zeros that fill a product up.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    p, g, k, r, d = q_PGKRD.shape
    of_completion = pl.next_power_of_2(r)
    rows = max(ROWS, of_completion)
    filled = (0, 0), (0, 0), (0, -g % (rows // of_completion)), (0, of_completion - r), (0, 0)
    q_PKND = jnp.pad(jnp.swapaxes(q_PGKRD, 1, 2), filled).reshape(p, k, -1, d)

    def kernel(t_ref: Any, length_ref: Any, q_ref: Any, *refs: Any) -> None:
        prompt_k_ref, prompt_v_ref, k_ref, v_ref, out_ref = refs
        q = q_ref[...]

        def over(sums: Sums, k_ref: Any, v_ref: Any, end: Array) -> Sums:
            """Values by weight, largest scores and sums of weights with those of `end` tokens (Milakov and Gimelshein 2018)."""

            def add(i: Array, sums: Sums) -> Sums:
                out, top, total = sums
                block = pl.ds(i * DECODED_TOKENS, DECODED_TOKENS)
                scores = triton.dot(q, k_ref[block, :].T)
                scores = jnp.where((i * DECODED_TOKENS + jnp.arange(DECODED_TOKENS))[None] < end, scores, MASKED)
                new_top = jnp.maximum(top, scores.max(-1))
                shrunk, weight = jnp.exp(top - new_top), jnp.exp(scores - new_top[:, None])
                values = triton.dot(weight.astype(v_ref.dtype), v_ref[block, :])
                return out * shrunk[:, None] + values, new_top, total * shrunk + weight.sum(-1)

            return jax.lax.fori_loop(0, pl.cdiv(end, DECODED_TOKENS), add, sums)

        sums = jnp.zeros((rows, d)), jnp.full((rows,), MASKED), jnp.zeros((rows,))
        sums = over(sums, prompt_k_ref, prompt_v_ref, length_ref[...])
        out, _, total = over(sums, k_ref, v_ref, t_ref[...] + 1)
        mine = jnp.arange(rows) // of_completion == pl.program_id(2) % (rows // of_completion)
        triton.store(out_ref.at[:, :], (out / total[:, None]).astype(out_ref.dtype), mask=mine[:, None])

    def of_program(x: Array) -> pl.BlockSpec:
        """All of x that is its prompt's and head's, and its completion's where x has them."""
        dims = x.ndim - 2
        return pl.BlockSpec((None,) * dims + x.shape[dims:], lambda *program: (*program[:dims], 0, 0))

    queries = pl.BlockSpec((None, None, rows, d), lambda p, k, g: (p, k, g * of_completion // rows, 0))
    numbers = [pl.BlockSpec((), lambda p, k, g: ()), pl.BlockSpec((None,), lambda p, k, g: (p,))]
    out_PKND = pl.pallas_call(
        kernel,
        grid=(p, k, g),
        in_specs=[*numbers, queries, *map(of_program, cache)],
        out_specs=queries,
        out_shape=jax.ShapeDtypeStruct(q_PKND.shape, q_PKND.dtype),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpret,
    )(t, lengths_P.astype(jnp.int32), q_PKND, *cache)
    return jnp.swapaxes(out_PKND.reshape(p, k, -1, of_completion, d)[:, :, :g, :r], 1, 2)
