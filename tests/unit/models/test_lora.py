"""Adapters: nothing at first, the merged weights afterwards, and the merged weights' gradient projected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.models import layers, lora, param, qwen3
from podwright.recipe.models import MODELS, Qwen3Dims
from tests.unit.models import made

RANK, SCALE = 3, 0.7
DIMS = Qwen3Dims(24, 40, 2, 4, 2, 8, 61, False)


@pytest.fixture(scope="module")
def policy(one_device):
    return made.policy(DIMS, one_device, RANK)


def logits(mesh, weights):
    """Of every completion token, with the prompt shared by its group."""
    rng = np.random.default_rng(0)
    group = qwen3.Group(
        jnp.asarray(rng.integers(0, 61, (2, 5))), jnp.asarray([5, 3]), jnp.asarray(rng.integers(0, 61, (2, 3, 4)))
    )
    batch = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return qwen3.group_hidden(DIMS, weights, group, jnp.float32, "none", batch) @ qwen3.head(weights).T


def test_adapters_that_add_nothing_leave_the_base_exactly(one_device, policy):
    first = lora.Policy(param.initialize(lora.declare(qwen3.declare(DIMS), RANK), one_device, 0), policy.base)
    assert all(np.asarray(w["a"]).any() for w in first.adapters["layers"].values())
    for same in (first, lora.reference(policy.adapters, policy.base)):
        jax.tree.map(np.testing.assert_array_equal, lora.merge(same, SCALE, jnp.float32), policy.base)
        adapted = jax.tree.map(lambda w: w[0], lora.adapt(same, SCALE)["layers"])
        for name in ("q", "gate"):
            x, weight = jnp.linspace(-1, 1, 24), adapted[name]
            np.testing.assert_array_equal(layers.linear(x, weight), layers.linear(x, weight.weight))
        whole = [
            logits(one_device, w) for w in (lora.adapt(same, SCALE), policy.base)
        ]  # products may be compiled in another order
        np.testing.assert_allclose(*whole, rtol=1e-5, atol=1e-5)


def test_adapted_equals_merged(one_device, policy):
    adapted, merged = (
        logits(one_device, f) for f in (lora.adapt(policy, SCALE), lora.merge(policy, SCALE, jnp.float32))
    )
    assert np.abs(adapted - logits(one_device, policy.base)).max() > 0.1
    np.testing.assert_allclose(adapted, merged, rtol=1e-5, atol=1e-5)


def test_merged_is_w_plus_scale_a_b(policy):
    merged = lora.merge(policy, SCALE, jnp.bfloat16)
    assert {w.dtype for w in jax.tree.leaves(merged)} == {jnp.dtype(jnp.bfloat16)}
    assert set(made.NUM_INPUT_DIMS) == set(policy.adapters["layers"])
    for name, num in made.NUM_INPUT_DIMS.items():
        weight, ab = policy.base["layers"][name], policy.adapters["layers"][name]
        inputs = int(np.prod(weight.shape[1 : 1 + num]))
        added = np.asarray(ab["a"]).reshape(2, inputs, RANK) @ np.asarray(ab["b"]).reshape(2, RANK, -1)
        expected = np.asarray(weight) + SCALE * added.reshape(weight.shape)
        np.testing.assert_allclose(np.asarray(merged["layers"][name], np.float32), expected, rtol=2**-8)


def test_gradients_are_those_of_the_merged_weights_projected(one_device, policy):
    """With W' = W + s A B: dA = s dW' B^T, dB = s A^T dW'."""

    def loss(weights):
        return jnp.sin(logits(one_device, weights)).mean()

    got = jax.grad(lambda adapters: loss(lora.adapt(policy._replace(adapters=adapters), SCALE)))(policy.adapters)
    whole = jax.grad(loss)(lora.merge(policy, SCALE, jnp.float32))
    for name, num in made.NUM_INPUT_DIMS.items():
        a, b = (np.asarray(policy.adapters["layers"][name][k]) for k in "ab")
        inputs = int(np.prod(a.shape[1 : 1 + num]))
        a, b = a.reshape(2, inputs, RANK), b.reshape(2, RANK, -1)
        d = np.asarray(whole["layers"][name]).reshape(2, inputs, -1)
        d_a, d_b = SCALE * d @ b.swapaxes(1, 2), SCALE * a.swapaxes(1, 2) @ d
        assert min(np.abs(d_a).max(), np.abs(d_b).max()) > 1e-4
        np.testing.assert_allclose(np.asarray(got["layers"][name]["a"]).reshape(d_a.shape), d_a, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(np.asarray(got["layers"][name]["b"]).reshape(d_b.shape), d_b, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["qwen3-1.7b", "qwen3-8b", "qwen3-micro"])
def test_the_number_of_adapter_parameters(name):
    declared = lora.declare(qwen3.declare(MODELS[name]), 8)
    counted = sum(int(np.prod(p.shape)) for p in jax.tree.leaves(declared, is_leaf=param.is_param))
    assert counted == MODELS[name].num_lora_params(8)


def test_a_starts_with_the_spread_of_the_usual_uniform_distribution(one_device):
    a = param.initialize(lora.declare(qwen3.declare(MODELS["qwen3-tiny"]), 16), one_device, 0)["layers"]["down"]["a"]
    np.testing.assert_allclose(np.std(a), 384**-0.5 / 3**0.5, rtol=0.02)
