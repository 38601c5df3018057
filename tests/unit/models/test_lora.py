"""Adapters: nothing at first, the merged weights afterwards, the merged weights' gradient projected, and all of it as PEFT has it."""

import copy
import functools

import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch

from podwright.models import convert, layers, lora, param, qwen3
from podwright.recipe import load
from podwright.recipe.models import MODELS, Qwen3Dims
from podwright.train.grpo import program
from tests.unit.models import made, reference

RANK, SCALE = 3, 0.7
DIMS = Qwen3Dims(24, 40, 2, 4, 2, 8, 61, False)


@pytest.fixture(scope="module")
def policy(one_device):
    return made.policy(DIMS, one_device, RANK)


@functools.partial(jax.jit, static_argnums=0)
def logits(mesh, weights):
    """Of every completion token, with the prompt shared by its group."""
    rng = np.random.default_rng(0)
    group = qwen3.Group(
        jnp.asarray(rng.integers(0, 61, (2, 5))), jnp.asarray([5, 3]), jnp.asarray(rng.integers(0, 61, (2, 3, 4)))
    )
    batch = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    return qwen3.group_hidden(DIMS, weights, group, jnp.float32, "none", batch) @ qwen3.head(weights).T


@pytest.mark.long
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

    of_adapters = jax.grad(lambda adapters: loss(lora.adapt(policy._replace(adapters=adapters), SCALE)))
    got = jax.jit(of_adapters)(policy.adapters)
    whole = jax.jit(jax.grad(loss))(lora.merge(policy, SCALE, jnp.float32))
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


def test_adapters_are_declared_for_each_matrix_with_the_axes_of_its_weight():
    """Axes of inputs go to A and those of outputs to B, the rank to none; a weight that is no matrix has no adapter."""
    declared = lora.declare(qwen3.declare(DIMS), RANK)
    assert set(declared) == {"layers"} and set(declared["layers"]) == set(made.NUM_INPUT_DIMS)
    shapes = {"q": ((24,), (4, 8)), "o": ((4, 8), (24,)), "down": ((40,), (24,))}
    shapes |= {name: ((24,), (40,)) for name in ("gate", "up")} | {name: ((24,), (2, 8)) for name in "kv"}
    axes = {"q": "heads", "k": "kv_heads", "v": "kv_heads"}
    for name, (inputs, outputs) in shapes.items():
        a, b = declared["layers"][name]["a"], declared["layers"][name]["b"]
        assert (a.shape, b.shape) == ((2, *inputs, RANK), (2, RANK, *outputs))
        assert (a.init, b.init) == ("normal", "zeros")
        assert a.scale == pytest.approx((1 / np.prod(inputs) / 3) ** 0.5)
        if name in axes:
            assert a.axes == ("layers", "embed", None) and b.axes == ("layers", None, axes[name], None)
    assert declared["layers"]["o"]["a"].axes == ("layers", "heads", None, None)
    assert declared["layers"]["o"]["b"].axes == ("layers", None, "embed")


def test_weights_without_adapters_pass_as_they_are(policy):
    for same in (
        lora.adapt(policy.base, SCALE),
        lora.merge(policy.base, SCALE, jnp.bfloat16),
        lora.policy(policy.base, None),
    ):
        assert same is policy.base
    assert lora.policy(policy.adapters, policy.base) == policy


THEIRS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}
THEIRS |= {name: f"mlp.{name}_proj" for name in ("gate", "up", "down")}


@pytest.fixture(scope="module")
def both(tmp_path_factory, one_device):
    """A model of transformers with PEFT's adapters, none zero, and the same as a policy here, with its setup."""
    path = tmp_path_factory.mktemp("theirs")
    model = reference.checkpoint(path)
    dims = convert.read_config(path)
    base = convert.read(path, dims, one_device)
    wanted = peft.LoraConfig(r=RANK, lora_alpha=5, target_modules=[x.rpartition(".")[2] for x in THEIRS.values()])
    model = peft.get_peft_model(model, wanted)
    torch.manual_seed(1)
    for name, p in model.named_parameters():
        if "lora_" in name:
            p.data = 0.3 * torch.randn_like(p)
    adapters = ours_of(lora.declare(qwen3.declare(dims), RANK), model, lambda p: p)
    recipe = load.load("qwen3-tiny-arithmetic-grpo", [f"model.lora_rank={RANK}", "model.lora_alpha=5"])
    return model, lora.Policy(adapters, base), program.GrpoSetup(recipe, dims, one_device, (), 0)


def ours_of(declared, model, value):
    """What `value` gives of PEFT's parameters, [outputs, inputs] each, in our layout."""
    found = {name.partition("layers.")[2]: value(p) for name, p in model.named_parameters() if "lora_" in name}
    num = declared["layers"]["q"]["a"].shape[0]
    assert len(found) == 2 * num * len(THEIRS)
    return {
        "layers": {
            name: {
                ab: jnp.stack(
                    [
                        found[f"{i}.{THEIRS[name]}.lora_{ab.upper()}.default.weight"]
                        .detach()
                        .numpy()
                        .T.reshape(p.shape[1:])
                        for i in range(num)
                    ]
                )
                for ab, p in pair.items()
            }
            for name, pair in declared["layers"].items()
        }
    }


def test_log_probabilities_and_gradients_are_those_of_peft(both):
    """With lora_alpha / lora_rank as the recipe has them; nothing but adapters gets a gradient there either."""
    model, policy, setup = both
    rng = np.random.default_rng(0)
    prompts, completions = rng.integers(1, 97, (2, 6)), rng.integers(1, 97, (2, 2, 5))
    group = qwen3.Group(jnp.asarray(prompts), jnp.asarray([6, 6]), jnp.asarray(completions))

    def total(adapters):
        logps = setup.logprobs(lora.policy(adapters, policy.base), group, 1.0)[0]
        return logps.sum(), logps

    (_, logps), ours = jax.jit(jax.value_and_grad(total, has_aux=True))(policy.adapters)
    rows = np.concatenate([np.repeat(prompts, 2, 0), completions.reshape(4, 5)], 1)
    right = torch.log_softmax(model(torch.tensor(rows)).logits[:, 5:-1], -1)
    right = right.gather(-1, torch.tensor(completions.reshape(4, 5, 1)))[..., 0]
    np.testing.assert_allclose(np.asarray(logps).reshape(4, 5), right.detach(), atol=2e-4)
    right.sum().backward()
    assert {("lora_" in name, p.grad is not None) for name, p in model.named_parameters()} == {
        (True, True),
        (False, False),
    }
    theirs = ours_of(lora.declare(qwen3.declare(setup.dims), RANK), model, lambda p: p.grad)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max()), ours, theirs)


def test_merged_weights_are_those_of_peft(both, tmp_path, one_device):
    model, policy, setup = both
    merged = lora.merge(policy, setup.lora_scale, jnp.float32)
    model = copy.deepcopy(model).merge_and_unload()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    right = convert.read(tmp_path, setup.dims, one_device)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), merged, right)
    assert np.abs(np.asarray(merged["layers"]["o"]) - np.asarray(policy.base["layers"]["o"])).max() > 0.1
