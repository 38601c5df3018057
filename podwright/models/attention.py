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
    num = q_PSKRD.shape[1]
    scores = jnp.einsum("pskrd,pukd->pkrsu", _scaled(q_PSKRD), k_PSKD, preferred_element_type=jnp.float32)
    scores = jnp.where(jnp.tril(jnp.ones((num, num), bool)), scores, MASKED)
    return jnp.einsum("pkrsu,pukd->pskrd", jax.nn.softmax(scores, axis=-1).astype(v_PSKD.dtype), v_PSKD)


def grouped(
    q_PGTKRD: jax.Array,
    prompt: tuple[jax.Array, jax.Array],
    own: tuple[jax.Array, jax.Array],
    prompt_mask_PS: jax.Array,
    own_mask_TU: jax.Array,
) -> jax.Array:
    """Each query sees its group's prompt and its own completion so far. -> PGTKRD

    `prompt` is (k, v) of shape PKSD, `own` is (k, v) of shape PKGUD. The two parts are never concatenated, so the
    prompt's keys are not repeated G times: softmax is put together from both parts' sums. Heads come before tokens, as
    the products want them, so that a decode loop does not turn its cache around at every token.
    """
    (k_PKSD, v_PKSD), (k_PKGUD, v_PKGUD) = prompt, own
    q = _scaled(q_PGTKRD)
    first = jnp.einsum("pgtkrd,pksd->pkgtrs", q, k_PKSD, preferred_element_type=jnp.float32)
    first = jnp.where(prompt_mask_PS[:, None, None, None, None, :], first, MASKED)
    second = jnp.einsum("pgtkrd,pkgud->pkgtru", q, k_PKGUD, preferred_element_type=jnp.float32)
    second = jnp.where(own_mask_TU[:, None, :], second, MASKED)
    top = jax.lax.stop_gradient(jnp.maximum(first.max(-1, keepdims=True), second.max(-1, keepdims=True)))
    first, second = jnp.exp(first - top), jnp.exp(second - top)
    total_PKGTR = first.sum(-1) + second.sum(-1)
    out = jnp.einsum("pkgtrs,pksd->pgtkrd", first.astype(v_PKSD.dtype), v_PKSD)
    out += jnp.einsum("pkgtru,pkgud->pgtkrd", second.astype(v_PKGUD.dtype), v_PKGUD)
    return out / jnp.einsum("pkgtr->pgtkr", total_PKGTR)[..., None].astype(out.dtype)


def _scaled(q: jax.Array) -> jax.Array:
    return q * jnp.asarray(q.shape[-1] ** -0.5, q.dtype)
