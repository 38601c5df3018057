"""Attention of grouped completions: G completions of one prompt share that prompt's keys and values.

Shape suffixes: P prompts, S prompt tokens, G completions per prompt, T completion tokens (queries), U completion
tokens (keys), K key-value heads, R query heads per key-value head, D head_dim. Scores are float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

MASKED = -1e30


def causal(q_PSKRD: jax.Array, k_PSKD: jax.Array, v_PSKD: jax.Array) -> jax.Array:
    """Causal attention over sequences that are padded on the right (later tokens are never seen). -> PSKRD"""
    p, s, k, r, d = q_PSKRD.shape
    q_PKND = jnp.einsum("pskrd->pksrd", _scaled(q_PSKRD)).reshape(p, k, s * r, d)
    k_PKDS, v_PKSD = jnp.einsum("pskd->pkds", k_PSKD), jnp.swapaxes(v_PSKD, 1, 2)
    scores = jnp.matmul(q_PKND, k_PKDS, preferred_element_type=jnp.float32).reshape(p, k, s, r, s)
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool))[:, None], scores, MASKED)
    share = jax.nn.softmax(scores, axis=-1).astype(v_PSKD.dtype).reshape(p, k, s * r, s)
    return jnp.einsum("pksrd->pskrd", jnp.matmul(share, v_PKSD).reshape(p, k, s, r, d))


def grouped(
    q_PGTKRD: jax.Array,
    prompt: tuple[jax.Array, jax.Array],
    own: tuple[jax.Array, jax.Array],
    prompt_mask_PS: jax.Array,
    own_mask_TU: jax.Array,
) -> jax.Array:
    """Each query sees its group's prompt and its own completion so far. -> PGTKRD

    `prompt` is (k PKDS, v PKSD), `own` is (k PKGDU, v PKGUD): as the products read them, so that a decode loop does not
    turn its cache around at every token. The two parts are never concatenated, so the prompt's keys are not repeated
    G times: softmax is put together from both parts' sums.
    """
    (k_PKDS, v_PKSD), (k_PKGDU, v_PKGUD) = prompt, own
    p, g, t, k, r, d = q_PGTKRD.shape
    q = jnp.einsum("pgtkrd->pkgtrd", _scaled(q_PGTKRD))
    first = jnp.matmul(q.reshape(p, k, -1, d), k_PKDS, preferred_element_type=jnp.float32)
    first = jnp.where(prompt_mask_PS[:, None, None], first, MASKED).reshape(p, k, g, t * r, -1)
    second = jnp.matmul(q.reshape(p, k, g, t * r, d), k_PKGDU, preferred_element_type=jnp.float32)
    second = jnp.where(jnp.repeat(own_mask_TU, r, axis=0), second, MASKED)
    top = jax.lax.stop_gradient(jnp.maximum(first.max(-1, keepdims=True), second.max(-1, keepdims=True)))
    first, second = jnp.exp(first - top), jnp.exp(second - top)
    total = first.sum(-1, keepdims=True) + second.sum(-1, keepdims=True)
    out = jnp.matmul(first.astype(v_PKSD.dtype).reshape(p, k, g * t * r, -1), v_PKSD).reshape(p, k, g, t * r, d)
    out += jnp.matmul(second.astype(v_PKGUD.dtype), v_PKGUD)
    return jnp.einsum("pkgtrd->pgtkrd", (out / total.astype(out.dtype)).reshape(p, k, g, t, r, d))


def _scaled(q: jax.Array) -> jax.Array:
    return q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
