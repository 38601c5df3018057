"""Each loss against its formula written with loops, its gradient against finite differences, and the KL estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.recipe.schema import Grpo
from podwright.train.grpo import loss

LOSSES = ["grpo", "dr_grpo", "dapo", "gspo", "cispo"]
P, G, T = 3, 4, 6


def make(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, T + 1, (P, G))
    mask = (np.arange(T) < lengths[..., None]).astype(dtype)
    new = -rng.uniform(0.1, 3, (P, G, T))
    old, reference, sampler = (new + rng.normal(scale=s, size=new.shape) for s in (0.3, 0.5, 0.2))
    advantages = loss.advantages(rng.normal(size=(P, G)), "grpo").astype(dtype)
    return new, old, reference, sampler, advantages, mask


def by_hand(cfg, new, old, reference, sampler, advantages, mask):
    """The published formulas, one completion and one token at a time."""
    high = cfg.epsilon_high or cfg.epsilon
    total, tokens = 0.0, mask.sum()
    for p in range(P):
        for g in range(G):
            n = int(mask[p, g].sum())
            a = advantages[p, g]
            sequence_ratio = np.exp((new - old)[p, g, :n].mean())
            for t in range(n):
                ratio = sequence_ratio if cfg.loss == "gspo" else np.exp(new[p, g, t] - old[p, g, t])
                if cfg.loss == "cispo":
                    value = -min(ratio, 1 + high) * a * new[p, g, t]
                else:
                    value = -min(ratio * a, np.clip(ratio, 1 - cfg.epsilon, 1 + high) * a)
                value *= min(np.exp(old[p, g, t] - sampler[p, g, t]), cfg.importance_cap)
                d = reference[p, g, t] - new[p, g, t]
                value += cfg.beta * {"k1": -d, "k2": d * d / 2, "k3": np.exp(d) - d - 1}[cfg.kl]
                share = {"dr_grpo": 1 / (P * G * T), "dapo": 1 / tokens, "cispo": 1 / tokens}.get(
                    cfg.loss, 1 / (n * P * G)
                )
                total += share * value
    return total


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("kind", LOSSES)
def test_value_equals_the_formula(kind, kl):
    cfg = Grpo(loss=kind, kl=kl, beta=0.1, epsilon=0.2, epsilon_high=0.28, importance_cap=1.1)
    new, old, reference, sampler, advantages, mask = make()
    inputs = loss.LossInputs(advantages, mask, loss.token_weights(kind, jnp.asarray(mask), T), sampler, old, reference)
    value, _ = loss.total(cfg, jnp.asarray(new), inputs)
    np.testing.assert_allclose(value, by_hand(cfg, new, old, reference, sampler, advantages, mask), rtol=1e-9)


@pytest.mark.parametrize("kind", LOSSES)
def test_gradient_equals_finite_differences(kind):
    cfg = Grpo(loss=kind, beta=0.1, epsilon=0.2)
    new, old, reference, sampler, advantages, mask = make(1)
    weights = loss.token_weights(kind, jnp.asarray(mask), T)

    def value(x):
        fixed = x
        if kind == "cispo":  # its ratio is a constant weight: hold it where the gradient is taken
            ratio = np.minimum(np.exp(new - old), 1.2) * np.minimum(np.exp(old - sampler), cfg.importance_cap)
            policy = -ratio * advantages[..., None] * x
            return float((weights * (policy + cfg.beta * loss.kl_term("k3", x, reference))).sum())
        return float(
            loss.total(cfg, jnp.asarray(fixed), loss.LossInputs(advantages, mask, weights, sampler, old, reference))[0]
        )

    gradient = jax.grad(
        lambda x: loss.total(cfg, x, loss.LossInputs(advantages, mask, weights, sampler, old, reference))[0]
    )(jnp.asarray(new))
    rng = np.random.default_rng(2)
    for _ in range(20):
        direction = rng.normal(size=new.shape)
        step = 1e-6
        slope = (value(new + step * direction) - value(new - step * direction)) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=2e-4, atol=1e-8)


@pytest.mark.parametrize("kind", LOSSES)
def test_without_old_log_probabilities_the_ratio_is_one_and_the_gradient_is_there(kind):
    cfg = Grpo(loss=kind, beta=0.0)
    new, _, _, _, advantages, mask = make()
    weights = loss.token_weights(kind, jnp.asarray(mask), T)
    inputs = loss.LossInputs(advantages, mask, weights, jnp.asarray(new), None, None)
    (_, sums), gradient = jax.value_and_grad(lambda x: loss.total(cfg, x, inputs), has_aux=True)(jnp.asarray(new))
    assert sums["clip_ratio"] == 0 and sums["importance_mismatch"] == 0
    np.testing.assert_allclose(gradient, -weights * advantages[..., None], rtol=1e-12)


def test_masked_tokens_never_matter():
    cfg = Grpo(beta=0.1)
    new, old, reference, sampler, advantages, mask = make()
    weights = loss.token_weights("grpo", jnp.asarray(mask), T)

    def value(shift):
        moved = [x + shift * (1 - mask) for x in (new, old * 1.0, reference, sampler)]
        return loss.total(
            cfg, jnp.asarray(moved[0]), loss.LossInputs(advantages, mask, weights, moved[3], moved[1], moved[2])
        )[0]

    assert value(0.0) == value(-5.0)


def test_k3_is_positive_k1_and_k3_agree_on_average():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(50)), rng.dirichlet(np.ones(50) * 3)
    drawn = rng.choice(50, 400_000, p=p)
    kl = (p * np.log(p / q)).sum()
    for kind in ("k1", "k3"):
        assert abs(loss.kl_term(kind, jnp.log(p[drawn]), jnp.log(q[drawn])).mean() - kl) < 0.02 * kl
    assert loss.kl_term("k3", jnp.log(p[drawn]), jnp.log(q[drawn])).min() >= 0


def test_advantages_of_an_even_group_are_zero_and_groups_do_not_mix():
    a = loss.advantages(np.array([[1.0, 1, 1, 1], [0, 0, 0, 4], [5, 5, 5, 9]]), "grpo")
    np.testing.assert_array_equal(a[0], 0)
    np.testing.assert_allclose(a[1], a[2], rtol=1e-6)
    np.testing.assert_allclose(a.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(loss.advantages(np.array([[0.0, 0, 0, 4]]), "dr_grpo"), [[-1, -1, -1, 3]])


def test_overlong_penalty_is_in_tokens():
    penalty = loss.overlong_penalty(np.array([[10, 80, 90, 100]]), limit=100, buffer=20)
    np.testing.assert_allclose(penalty, [[0, 0, -0.5, -1]])
    np.testing.assert_array_equal(loss.overlong_penalty(np.array([[100]]), 100, 0), 0)


def test_completions_left_out_do_not_count_in_the_divisor():
    mask = np.zeros((1, 2, 4))
    mask[0, 0, :2] = 1
    np.testing.assert_allclose(loss.token_weights("grpo", jnp.asarray(mask), 4).sum(), 1.0)


def test_padding_far_from_the_reference_makes_no_nan():
    mask = np.array([[[1.0, 0.0]]])
    logps, reference = jnp.array([[[-1.0, -900.0]]]), jnp.array([[[-1.5, -2.0]]])
    inputs = loss.LossInputs(np.ones((1, 1)), mask, jnp.asarray(mask), jnp.array([[[-1.0, 0.0]]]), None, reference)
    value, gradient = jax.value_and_grad(lambda x: loss.total(Grpo(beta=0.1), x, inputs)[0])(logps)
    assert jnp.isfinite(value) and jnp.isfinite(gradient).all() and gradient[0, 0, 1] == 0
