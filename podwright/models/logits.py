"""Log-probability and entropy of given tokens, chunk by chunk: the logits of a whole batch never exist.

Vocabulary may be sharded over 'tensor', rows over 'data' and 'fsdp', and their tokens over 'context'; the gradient of the output
embedding is summed over devices once, not once a chunk. Shape suffixes: B batch, N tokens, E hidden, V vocabulary, C chunk.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from podwright.models import param

_HEAD = Spec("tensor", None)


class SamplingSetting(NamedTuple):
    mesh: Mesh
    dtype: Any
    """of the matrix products; sums and exponentials are float32"""
    chunk: int
    """tokens per device whose logits exist at one time"""
    temperature: float


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def token_logprobs(
    setting: SamplingSetting, hidden_BNE: Array, head_VE: Array, targets_BN: Array
) -> tuple[Array, Array]:
    """(log p(target), entropy) of softmax(hidden @ head.T / temperature), each [B, N] float32.

    Differentiable in `hidden` and `head` through the log-probability; the entropy is a measurement without gradient.
    """
    return _forward(setting, hidden_BNE, head_VE, targets_BN)[0]


def _forward(setting: SamplingSetting, hidden: Array, head: Array, targets: Array) -> Any:
    def local(hidden: Array, head: Array, targets: Array) -> tuple[Array, ...]:
        first = _first_token(head)

        def chunk(_: None, args: tuple[Array, Array]) -> tuple[None, tuple[Array, ...]]:
            z_CV = _logits(setting, args[0], head)
            top = jax.lax.pmax(z_CV.max(-1), "tensor")
            weight = jnp.exp(z_CV - top[:, None])
            hit = (args[1] - first)[:, None] == jnp.arange(head.shape[0])
            sums = jnp.stack([weight.sum(-1), (weight * z_CV).sum(-1), jnp.where(hit, z_CV, 0.0).sum(-1)])
            total, weighted, target = jax.lax.psum(sums, "tensor")
            lse = top + jnp.log(total)
            return None, (target - lse, lse - weighted / total, lse)

        _, out = jax.lax.scan(chunk, None, (_chunks(hidden, setting.chunk), _chunks(targets, setting.chunk)))
        return tuple(_unchunked(x, targets.shape) for x in out)

    tokens = param.tokens(setting.mesh)
    run = jax.shard_map(
        local, mesh=setting.mesh, in_specs=(tokens, _HEAD, tokens), out_specs=(tokens, tokens, tokens), check_vma=False
    )
    logps, entropy, lse = run(hidden, head.astype(setting.dtype), targets)
    return (logps, entropy), (hidden, head, targets, lse)


def _backward(setting: SamplingSetting, saved: Any, cotangents: tuple[Array, Array]) -> Any:
    hidden, head, targets, lse = saved

    def local(hidden: Array, head: Array, targets: Array, lse: Array, g: Array) -> tuple[Array, Array]:
        first = _first_token(head)

        def chunk(d_head: Array, args: tuple[Array, ...]) -> tuple[Array, Array]:
            h, target, lse, g = args
            p_CV = jnp.exp(_logits(setting, h, head) - lse[:, None])
            hit = (target - first)[:, None] == jnp.arange(head.shape[0])
            d_logits = ((g / setting.temperature)[:, None] * (hit - p_CV)).astype(setting.dtype)
            d_head += jnp.einsum("cv,ce->ve", d_logits, h, preferred_element_type=jnp.float32)
            return d_head, jnp.einsum("cv,ve->ce", d_logits, head, preferred_element_type=jnp.float32)

        args = tuple(_chunks(x, setting.chunk) for x in (hidden, targets, lse, g))
        d_head, d_hidden = jax.lax.scan(chunk, jnp.zeros(head.shape, jnp.float32), args)
        d_hidden = jax.lax.psum(_unchunked(d_hidden, targets.shape), "tensor")
        return d_hidden.astype(hidden.dtype), jax.lax.psum(d_head, param.token_axes(setting.mesh))

    tokens = param.tokens(setting.mesh)
    run = jax.shard_map(
        local,
        mesh=setting.mesh,
        in_specs=(tokens, _HEAD, tokens, tokens, tokens),
        out_specs=(tokens, _HEAD),
        check_vma=False,
    )
    d_hidden, d_head = run(hidden, head.astype(setting.dtype), targets, lse, cotangents[0])
    return d_hidden, d_head.astype(head.dtype), None


token_logprobs.defvjp(_forward, _backward)


def _logits(setting: SamplingSetting, hidden_CE: Array, head_VE: Array) -> Array:
    return jnp.einsum("ce,ve->cv", hidden_CE, head_VE, preferred_element_type=jnp.float32) / setting.temperature


def _first_token(head: Array) -> Array:
    """The id of the first token of this device's part of the vocabulary."""
    return jax.lax.axis_index("tensor") * head.shape[0]


def _chunks(x: Array, size: int) -> Array:
    """[B, N, ...] -> [chunks, size, ...], padded with zeros at the end."""
    flat = x.reshape(-1, *x.shape[2:])
    size = min(size, flat.shape[0])
    flat = jnp.pad(flat, [(0, -flat.shape[0] % size), *[(0, 0)] * (flat.ndim - 1)])
    return flat.reshape(-1, size, *flat.shape[1:])


def _unchunked(x: Array, shape: tuple[int, ...]) -> Array:
    """Undoes _chunks for a leading shape [B, N]."""
    flat = x.reshape(-1, *x.shape[2:])
    return flat[: shape[0] * shape[1]].reshape(*shape, *flat.shape[1:])
