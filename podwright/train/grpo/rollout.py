"""Sampling completions on the device: one prefill a prompt, one loop over tokens, early exit, exact log-probabilities.

Shape suffixes: P prompts, S prompt tokens, G completions per prompt, T new tokens, V vocabulary, E hidden.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from podwright.attention_kernels import heads_of
from podwright.kernels import decode
from podwright.models import attention, param, qwen3
from podwright.recipe import schema
from podwright.recipe.models import Qwen3Dims

Tree = Any

_SIGN = np.uint32(1 << 31)


PIECE, PIECES = 512, 4  # tokens at least, loops at most
LANES = 128


class Sampling(NamedTuple):
    """How a token is drawn from logits; temperature 0 takes the likeliest one."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @staticmethod
    def of(rollout: schema.Rollout) -> Sampling:
        return Sampling(rollout.temperature, rollout.top_k, rollout.top_p, rollout.min_p)


GREEDY = Sampling(0.0)


class Completions(NamedTuple):
    tokens_PGT: Array
    """the stop token is the last that counts; what follows it is padding"""
    logps_PGT: Array
    """log-probability of each token under the distribution it was really drawn from (filtered, renormalised)"""
    lengths_PG: Array
    """tokens that count, the stop token among them"""
    stopped_PG: Array
    """False: the completion ran out of tokens"""


def keep_threshold(z: Array, sampling: Sampling, by_blocks: bool = False) -> Array | None:
    """The smallest of the tempered logits `z` [..., V] that may still be drawn, [..., 1]; None when all may.

    `by_blocks`: find the k-th largest as `kth_by_blocks` does.

    top_k, then top_p among those (Holtzman et al. 2020), then min_p (Nguyen et al. 2024). Equal logits stay together.
    """
    thresholds = []
    top = z.max(-1, keepdims=True)
    if 0 < sampling.top_k < z.shape[-1]:
        thresholds.append((kth_by_blocks if by_blocks else kth)(z, sampling.top_k))
    if sampling.top_p < 1:
        weight = jnp.exp(z - top)
        if thresholds:
            weight = jnp.where(z >= thresholds[0], weight, 0.0)
        mass = sampling.top_p * weight.sum(-1, keepdims=True)
        thresholds.append(_largest(top, lambda t: jnp.where(z >= t, weight, 0.0).sum(-1, keepdims=True) >= mass))
    if sampling.min_p > 0:
        thresholds.append(top + math.log(sampling.min_p))
    return jnp.stack(thresholds).max(0) if thresholds else None


def kth(z: Array, k: int) -> Array:
    """The k-th largest of [..., V], [..., 1]; equal numbers count one by one."""
    return _largest(z.max(-1, keepdims=True), lambda t: (z >= t).sum(-1, keepdims=True) >= k)


def kth_by_blocks(z: Array, k: int) -> Array:
    """`kth`, exactly: the k blocks with the largest maxima have all numbers from the k-th largest on, or each has one of these.

    Where a device has the whole vocabulary: others would have to send it. 13 % off a decode step of Qwen3-1.7B on an H200, where each
    of `_largest`'s sums is a kernel; a ninth of the time on CPUs. For TPUs nobody has measured it.
    """
    vocab = z.shape[-1]
    width = next(width for width in range(LANES, 0, -1) if vocab % width == 0)
    if width < LANES // 8 or 4 * k * width > vocab:  # too many maxima, or too few numbers to leave out
        return kth(z, k)
    blocks = z.reshape(*z.shape[:-1], -1, width)
    _, kept = jax.lax.top_k(blocks.max(-1), k)
    numbers = jnp.take_along_axis(blocks, kept[..., None], axis=-2)
    return jax.lax.top_k(numbers.reshape(*z.shape[:-1], -1), k)[0][..., -1:]


def _largest(top: Array, enough: Callable[[Array], Array]) -> Array:
    """The largest float32 from -inf to `top` of which `enough` is true, as of all smaller ones; of -inf it is taken to be.

    Bisection over the bit patterns in the order of their numbers: exact in 32 steps, for any numbers. A step is one sum over
    the vocabulary, which stays on the chip and splits over devices. `lax.top_k` is a full sort of the vocabulary on a TPU.
    """

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = high - (high - low) // 2
        ok = enough(_number(middle))
        return jnp.where(ok, middle, low), jnp.where(ok, high, middle - 1)

    return _number(jax.lax.fori_loop(0, 32, halve, (_rank(jnp.full_like(top, -jnp.inf)), _rank(top)))[0])


def _rank(number: Array) -> Array:
    """float32 -> uint32 in the same order: negative numbers have their bits turned over, the others only the sign."""
    bits = jax.lax.bitcast_convert_type(number, jnp.uint32)
    return jnp.where(bits >= _SIGN, ~bits, bits | _SIGN)


def _number(rank: Array) -> Array:
    """Undoes _rank. A subnormal number is 0, which most devices take it for."""
    number = jax.lax.bitcast_convert_type(jnp.where(rank >= _SIGN, rank ^ _SIGN, ~rank), jnp.float32)
    return jnp.where(jnp.abs(number) < jnp.finfo(jnp.float32).tiny, 0.0, number)


def sample(logits: Array, uniform: Array, sampling: Sampling, by_blocks: bool = False) -> tuple[Array, Array]:
    """Tokens and their log-probabilities from float32 logits [..., V] and one uniform number each, [...].

    The cumulative distribution is inverted in two levels (blocks, then inside one), so a draw costs one pass
    over the vocabulary and one random number instead of V of them.
    """
    if sampling.temperature == 0:
        tokens = jnp.argmax(logits, axis=-1)
        return tokens, jnp.zeros(tokens.shape, jnp.float32)
    z = logits / sampling.temperature
    threshold = keep_threshold(z, sampling, by_blocks)
    if threshold is not None:
        z = jnp.where(z >= threshold, z, -jnp.inf)
    top = z.max(-1, keepdims=True)
    width = _block_width(z.shape[-1])
    weight = jnp.exp(z - top).reshape(*z.shape[:-1], -1, width)
    blocks = jnp.cumsum(weight.sum(-1), axis=-1)
    total = blocks[..., -1]
    target = (uniform * (1 - 1e-6) * total)[..., None]
    block = jnp.argmax(blocks > target, axis=-1)[..., None]
    before = jnp.take_along_axis(jnp.pad(blocks, [(0, 0)] * (blocks.ndim - 1) + [(1, 0)]), block, axis=-1)
    within_block = jnp.cumsum(jnp.take_along_axis(weight, block[..., None], axis=-2)[..., 0, :], axis=-1)
    rest = jnp.minimum(target - before, within_block[..., -1:] * (1 - 1e-6))
    tokens = block[..., 0] * width + jnp.argmax(within_block > rest, axis=-1)
    logps = jnp.take_along_axis(z, tokens[..., None], axis=-1)[..., 0] - top[..., 0] - jnp.log(total)
    return tokens, logps


def _block_width(vocab: int) -> int:
    """The divisor of the vocabulary with which blocks and a block's tokens together are fewest.

    The number of blocks keeps the vocabulary's powers of two, up to 16: over `tensor`, blocks are whole on their devices.
    """
    most = vocab // math.gcd(vocab, 16)
    return min((d for d in range(most, 0, -1) if most % d == 0), key=lambda d: vocab // d + d)


def _rooms(most: int) -> list[int]:
    """How many tokens of a completion each loop attends to: as long as completions are short, their caches are not read to the end.

    A loop more is a decode step more to compile, so there are few, of as many tokens each.
    """
    size = max(PIECE, -(-most // (PIECES * LANES)) * LANES)
    return [*range(size, most, size), most]


def generate(
    dims: Qwen3Dims,
    mesh: Mesh,
    params: Tree,
    prompts_PS: Array,
    lengths_P: Array,
    key: Array,
    *,
    num_generations: int,
    max_new_tokens: int,
    sampling: Sampling,
    stop_ids: tuple[int, ...],
    pad_id: int,
    dtype: Any,
) -> Completions:
    """`num_generations` completions of every prompt. Prompts are padded on the right; `key` must differ at every call."""
    p, g, t_max = prompts_PS.shape[0], num_generations, max_new_tokens
    weights = param.constrain(qwen3.declare(dims), qwen3.cast(params, dtype), mesh, param.COMPUTE_RULES)
    stops = jnp.asarray(stop_ids)
    by_blocks = param.platform(mesh) != "tpu" and mesh.shape.get("tensor", 1) == 1

    @jax.named_scope("head")
    def draw(hidden_PGE: Array, t: Array) -> tuple[Array, Array]:
        logits = jnp.einsum("pge,ve->pgv", hidden_PGE, qwen3.head(weights), preferred_element_type=jnp.float32)
        uniform = jax.random.uniform(jax.random.fold_in(key, t), (p, g))
        return sample(jnp.broadcast_to(logits, (p, g, logits.shape[-1])), uniform, sampling, by_blocks)

    hidden, (k, v) = qwen3.hidden(dims, weights, prompts_PS, dtype, mesh)
    last = jnp.take_along_axis(hidden, lengths_P[:, None, None] - 1, axis=1)
    token, logp = draw(last, jnp.int32(0))
    heads = heads_of(dims, jnp.dtype(dtype).name)
    query_heads = dims.num_heads // dims.num_kv_heads
    by_kernel = attention.decodes_by_kernel(mesh, heads, query_heads)
    new_cache = decode.new_cache if by_kernel else qwen3.new_cache
    caches = [new_cache(k[i], v[i], g, t_max) for i in range(dims.num_layers)]
    per_layer = qwen3.for_decoding(dims, weights)
    tokens = jnp.full((p, g, t_max), pad_id, jnp.int32).at[:, :, 0].set(token)
    logps = jnp.zeros((p, g, t_max), jnp.float32).at[:, :, 0].set(logp)
    done = jnp.isin(token, stops)

    def going(carry: Any, room: int) -> Array:
        t, _, _, _, done, _ = carry
        return (t + 1 < room) & ~jnp.all(done)

    def step(carry: Any, room: int) -> Any:
        t, token, tokens, logps, done, caches = carry
        x, caches = qwen3.decode_step(dims, mesh, weights, per_layer, token, lengths_P, t, list(caches), room)
        token, logp = draw(x, t + 1)
        token, logp = jnp.where(done, pad_id, token), jnp.where(done, 0.0, logp)
        tokens = jax.lax.dynamic_update_slice(tokens, token[:, :, None].astype(jnp.int32), (0, 0, t + 1))
        logps = jax.lax.dynamic_update_slice(logps, logp[:, :, None], (0, 0, t + 1))
        return t + 1, token, tokens, logps, done | jnp.isin(token, stops), caches

    state: Any = (token, tokens, logps, done, caches)
    first = 0
    # The kernel reads no further than a completion has come. A loop that ends before its room is full has ended all completions.
    for room in [t_max] if by_kernel else _rooms(t_max):
        body = functools.partial(step, room=room)
        _, *state = jax.lax.while_loop(functools.partial(going, room=room), body, (jnp.int32(first), *state))
        first = room - 1
    _, tokens, logps, done, _ = state
    ends = jnp.isin(tokens, stops)
    lengths = jnp.where(ends.any(-1), jnp.argmax(ends, axis=-1) + 1, t_max)
    return Completions(tokens, logps, lengths, done)
