"""Each loss against its formula written with loops, its gradient against finite differences, and the KL estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_equal_rewards_are_an_advantage_of_exactly_zero(kind):
    """In groups of any size and at any scale, the mean of which float32 rounds; and where the sums of several rewards differ by rounding."""
    for value in (0.0, 0.1, 0.7, 1 / 3, 333.3, -1234.5, 1e6 + 0.1, 1e-8, 1e15):
        for size in range(2, 17):
            equal = np.full((2, size), value, np.float32)
            equal[1, 0] = np.nextafter(equal[1, 0], np.float32(np.inf)) if value else 0.0
            assert not loss.advantages(equal, kind).any(), (value, size)
    assert loss.advantages(np.array([[1.0, 1.0 + 2e-6]], np.float32), kind).any()
    assert loss.advantages(np.array([[0.0, 1e-8]], np.float32), kind).any()


def test_large_rewards_have_the_advantages_of_what_they_differ_by():
    """Their mean in float32 would be off by 0.14."""
    differences = np.array([[0, 0, 20, 33, 0, 11, 7]], np.float32)
    large = loss.advantages(differences + np.float32(1e7), "grpo")
    np.testing.assert_allclose(large, loss.advantages(differences, "grpo"), rtol=1e-5)


def test_a_reward_that_is_no_number_is_no_reason_to_teach_nothing():
    assert np.isnan(loss.advantages(np.array([[0.5, np.nan]], np.float32), "grpo")).all()


def test_a_standardised_advantage_is_that_of_the_paper_and_of_torch():
    """(r - mean) / std with the sample's standard deviation (torch.std), and 1e-4 beside it as TRL has it (`eps` of its GRPOTrainer)."""
    rewards = np.array([[0.0, 0, 0, 4], [3, 0, 3.5, 1], [0, 0, 0, 4e-4]])
    np.testing.assert_allclose(  # 1 on average; the squares of -1, -1, -1 and 3 over 3 are 4
        loss.advantages(rewards[:1], "grpo"), np.array([[-1, -1, -1, 3]]) / (2 + 1e-4), rtol=1e-6
    )
    r = torch.tensor(rewards)
    right = (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)
    for kind in ("grpo", "dapo", "gspo", "cispo"):
        ours = loss.advantages(rewards, kind)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, right, rtol=1e-6)
    ours = loss.advantages(rewards, "dr_grpo")
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, rewards - rewards.mean(1, keepdims=True), rtol=1e-6)


def test_overlong_penalty_is_equation_13_of_dapo():
    """L_max = 100, L_cache = 20: 0 up to 80 tokens, ((L_max - L_cache) - |y|) / L_cache up to 100, -1 beyond."""
    penalty = loss.overlong_penalty(np.array([[10, 80, 81, 90], [99, 100, 101, 200]]), limit=100, buffer=20)
    assert penalty.dtype == np.float32
    np.testing.assert_allclose(penalty, [[0, 0, -0.05, -0.5], [-0.95, -1, -1, -1]], rtol=1e-6)
    without = loss.overlong_penalty(np.array([[100, 5]]), 100, 0)
    assert without.dtype == np.float32
    np.testing.assert_array_equal(without, [[0, 0]])


def test_the_divisor_of_each_loss_written_out():
    """Two prompts of two completions, of 1, 3, 2 and 0 counted tokens among 4 columns, where there may be 10 tokens.

    GRPO: 1/G sum 1/|o| sum (DeepSeekMath, equation 3); DAPO: 1/sum |o| (equation 8); Dr. GRPO: 1/(G * most tokens) (its appendix A).
    """
    lengths = np.array([[1, 3], [2, 0]])
    mask = jnp.asarray((np.arange(4) < lengths[..., None]).astype(float))
    by_completion = np.array([[1 / 3, 1 / 9], [1 / 6, 0]])  # three completions have tokens that count
    for kind, weight in {
        "grpo": by_completion,
        "gspo": by_completion,
        "dapo": np.full((2, 2), 1 / 6),
        "cispo": np.full((2, 2), 1 / 6),
        "dr_grpo": np.full((2, 2), 1 / 40),
    }.items():
        np.testing.assert_allclose(
            loss.token_weights(kind, mask, 10), weight[..., None] * np.asarray(mask), rtol=1e-12, err_msg=kind
        )
        assert not np.asarray(loss.token_weights(kind, jnp.zeros_like(mask), 10)).any()


@pytest.mark.parametrize("kind", LOSSES)
def test_what_is_clipped_is_what_the_formula_clips(kind):
    """PPO's minimum takes the clipped side above 1 + epsilon_high at a positive advantage and below 1 - epsilon at a negative one;
    CISPO's weight is clipped above whatever the advantage."""
    cfg = Grpo(loss=kind, beta=0.0, epsilon=0.2, epsilon_high=0.5, importance_cap=None)
    ratios = np.array([0.75, 0.85, 1.0, 1.45, 1.55])
    new = np.full((1, 2, 5), -1.0)
    old = new - np.log(ratios)
    if kind == "gspo":  # one ratio a completion: here the same for all its tokens
        old = np.broadcast_to(old[..., [4]], new.shape)
        ratios = np.full(5, 1.55)
    advantages, mask = np.array([[2.0, -2.0]]), np.ones((1, 2, 5))
    mask[0, 0, 4] = 0
    terms = loss.policy_terms(cfg, jnp.asarray(new - old), jnp.asarray(new), advantages[..., None], mask)
    above, below = (ratios > 1.5).astype(float), (ratios < 0.8).astype(float)
    clipped = np.stack([above, above if kind == "cispo" else below])[None]
    np.testing.assert_array_equal(terms.clipped, clipped)
    held = np.stack([np.minimum(ratios, 1.5), np.minimum(ratios, 1.5) if kind == "cispo" else np.maximum(ratios, 0.8)])
    right = -advantages[0][:, None] * held * (new[0] if kind == "cispo" else 1)
    np.testing.assert_allclose(terms.policy[0], right, rtol=1e-12)
    inputs = loss.LossInputs(advantages, mask, jnp.asarray(mask), jnp.asarray(old), jnp.asarray(old), None)
    _, sums = loss.total(cfg, jnp.asarray(new), inputs)
    assert sums["clip_ratio"] == (clipped * mask).sum()


def test_metrics_are_sums_over_the_tokens_that_count():
    """KL by the estimator that the loss has, and |pi_old / pi_sampler - 1|; both without the weights of the loss."""
    new, old, reference, sampler, advantages, mask = make(3)
    d = reference - new
    for kind, each in (("k1", -d), ("k2", d * d / 2), ("k3", np.exp(d) - d - 1)):
        cfg = Grpo(kl=kind, beta=0.1)
        inputs = loss.LossInputs(advantages, mask, jnp.asarray(mask) * 7, sampler, old, reference)
        _, sums = loss.total(cfg, jnp.asarray(new), inputs)
        np.testing.assert_allclose(sums["kl"], (each * mask).sum(), rtol=1e-9)
        np.testing.assert_allclose(
            sums["importance_mismatch"], (np.abs(np.exp(old - sampler) - 1) * mask).sum(), rtol=1e-9
        )
    _, sums = loss.total(cfg, jnp.asarray(new), inputs._replace(reference_PGT=None))
    assert sums["kl"] == 0


def test_without_a_cap_the_loss_is_not_corrected_for_the_sampler():
    new, old, _, sampler, advantages, mask = make(4)
    inputs = loss.LossInputs(advantages, mask, jnp.asarray(mask), sampler, old, None)
    value, _ = loss.total(Grpo(beta=0.0, importance_cap=None), jnp.asarray(new), inputs)
    ratio, a = np.exp(new - old), advantages[..., None]
    right = -np.minimum(ratio * a, np.clip(ratio, 0.8, 1.2) * a)
    np.testing.assert_allclose(value, (right * mask).sum(), rtol=1e-9)


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
