"""The policy losses, the KL estimators, advantages, and the weight of each token in the sum.

Every loss here is  sum over tokens of weight * (policy term + beta * KL term); weights come from the whole batch, so
micro-batches add up to exactly the whole. Shape suffixes: P prompts, G completions per prompt, T tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from podwright.recipe import schema

_ROUNDING = 1e-6
"""share of a group's largest reward by which float32 sums that should be equal may differ"""


def equal_rewards(rewards_PG: np.ndarray) -> np.ndarray:
    """Which groups have equal rewards, [P] bool: they (float32, all that is added up in them) differ by rounding at most.

    A reward that is not a number is equal to none.
    """
    spread_P = np.ptp(rewards_PG, axis=1)
    return (spread_P == 0) | (spread_P < _ROUNDING * np.abs(rewards_PG).max(axis=1))


def advantages(rewards_PG: np.ndarray, loss: str) -> np.ndarray:
    """Rewards relative to their group: (r - mean) / (std + 1e-4) (DeepSeekMath, section 4.1.2), float32; exactly 0 where they are equal.

    Dr. GRPO leaves the division out, since it favours groups that are almost all right or all wrong (Liu et al. 2025).
    """
    wide_PG = rewards_PG.astype(np.float64)  # in float32 the mean of large rewards is off by as much as they differ
    centred = wide_PG - wide_PG.mean(axis=1, keepdims=True)
    centred[equal_rewards(rewards_PG)] = 0.0  # AdamW makes whole steps of a gradient, however small
    if loss != "dr_grpo":
        centred /= wide_PG.std(axis=1, ddof=1, keepdims=True) + 1e-4
    return centred.astype(np.float32)


def overlong_penalty(lengths_PG: np.ndarray, limit: int, buffer: int) -> np.ndarray:
    """0 up to `limit - buffer` tokens, then falling linearly to -1 at `limit` tokens (DAPO, equation 13)."""
    if not buffer:
        return np.zeros(lengths_PG.shape, np.float32)
    return -np.clip((lengths_PG - (limit - buffer)) / buffer, 0.0, 1.0).astype(np.float32)


def token_weights(loss: str, mask_PGT: Array, max_tokens: int) -> Array:
    """The share of each token in the loss; `mask` is 1.0 on tokens that count. Shape and dtype as `mask`."""
    if (
        loss == "dr_grpo"
    ):  # a constant divisor, the most tokens there can be: no length bias (Liu et al. 2025, appendix)
        return mask_PGT / (mask_PGT.shape[0] * mask_PGT.shape[1] * max_tokens)
    if loss in ("dapo", "cispo"):  # every token of the batch weighs the same (DAPO, section 3.3)
        return mask_PGT / jnp.maximum(mask_PGT.sum(), 1.0)
    lengths = mask_PGT.sum(-1, keepdims=True)  # grpo, gspo: every completion weighs the same
    return mask_PGT / (jnp.maximum(lengths, 1.0) * jnp.maximum((lengths > 0).sum(), 1))


class Terms(NamedTuple):
    policy: Array
    """per-token policy loss"""
    clipped: Array
    """1.0 where the clip took the gradient away"""


def policy_terms(cfg: schema.Grpo, log_ratio: Array, logps: Array, advantage: Array, mask: Array) -> Terms:
    """The policy loss of each token. `log_ratio` = new - old log-probability, [..., T]; `advantage` [..., 1]."""
    low, high = 1 - cfg.epsilon, 1 + (cfg.epsilon_high or cfg.epsilon)
    if (
        cfg.loss == "cispo"
    ):  # MiniMax-M1, equation 4: the clipped ratio is a constant weight, every token keeps a gradient
        ratio = jnp.exp(log_ratio)
        weight = jax.lax.stop_gradient(jnp.minimum(ratio, high))
        return Terms(-weight * advantage * logps, (ratio > high).astype(jnp.float32))
    if (
        cfg.loss == "gspo"
    ):  # Zheng et al. 2025, equation 7: one ratio per completion, the geometric mean over its tokens
        log_ratio = (log_ratio * mask).sum(-1, keepdims=True) / jnp.maximum(mask.sum(-1, keepdims=True), 1.0)
        log_ratio = jnp.broadcast_to(log_ratio, mask.shape)
    ratio = jnp.exp(log_ratio)
    free, held = ratio * advantage, jnp.clip(ratio, low, high) * advantage
    return Terms(-jnp.minimum(free, held), (free > held).astype(jnp.float32))


def kl_term(kind: str, logps: Array, reference: Array) -> Array:
    """An estimate of KL(policy || reference) from the policy's own tokens (Schulman 2020), elementwise.

    Tokens are drawn before, and no gradient goes through the draw: that of k3 is on average the gradient of KL(reference || policy), as
    TRL's is, and that of k2 the gradient of KL(policy || reference).
    """
    d = logps - reference
    if kind == "k1":
        return d
    if kind == "k2":
        return 0.5 * d * d
    return jnp.exp(-d) + d - 1


class LossInputs(NamedTuple):
    """What the loss of a (micro-)batch needs besides the policy's own log-probabilities."""

    advantages_PG: Array
    mask_PGT: Array
    weights_PGT: Array
    sampler_PGT: Array
    """log-probabilities the sampler drew with"""
    old_PGT: Array | None
    """log-probabilities before this batch's first optimizer step; None: the policy has not moved since"""
    reference_PGT: Array | None
    """None at beta 0"""


def total(cfg: schema.Grpo, logps: Array, inputs: LossInputs) -> tuple[Array, dict[str, Array]]:
    """The loss, and sums over the counted tokens of what the metrics average."""
    mask = inputs.mask_PGT
    logps, sampler = _kept(logps, mask), _kept(inputs.sampler_PGT, mask)
    old = jax.lax.stop_gradient(logps) if inputs.old_PGT is None else _kept(inputs.old_PGT, mask)
    terms = policy_terms(cfg, logps - old, logps, inputs.advantages_PG[..., None], mask)
    mismatch = jnp.exp(old - sampler)
    policy = terms.policy
    if cfg.importance_cap is not None:
        policy = policy * jnp.minimum(mismatch, cfg.importance_cap)
    kl = jnp.zeros_like(logps)
    if inputs.reference_PGT is not None:
        kl = kl_term(cfg.kl, logps, _kept(inputs.reference_PGT, mask))
    loss = (inputs.weights_PGT * (policy + cfg.beta * kl)).sum()
    sums = {
        "kl": (kl * mask).sum(),
        "clip_ratio": (terms.clipped * mask).sum(),
        "importance_mismatch": (jnp.abs(mismatch - 1) * mask).sum(),
    }
    return loss, sums


def _kept(x: Array, mask: Array) -> Array:
    """`x` where it counts, else 0: a difference at a padding token could overflow, and 0 times infinity is no number."""
    return jnp.where(mask > 0, x, 0.0)
