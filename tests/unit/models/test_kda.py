"""The layer against transformers' of Kimi-Linear and Ling 3.0, its start, its documents, and on eight devices."""

import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BailingHybridConfig, BailingHybridForCausalLM, KimiLinearConfig, KimiLinearForCausalLM

from podwright.errors import UserError
from podwright.models import kda, param
from podwright.recipe import hybrid, pretrain, schema
from podwright.train import muon
from podwright.train.mesh import make_mesh, token_sharding
from tests.unit.models import hybrid_names

TINY = hybrid.MODELS["almodel-tiny"]
SOFTPLUS = dataclasses.replace(TINY, kda=hybrid.Kda(2, 32, "softplus", 32))
BOUNDED = TINY
BOTH = pytest.mark.parametrize("dims", [SOFTPLUS, BOUNDED], ids=["softplus", "bounded"])


def theirs(dims, tmp_path):
    """A layer of transformers' with random weights, ours as read from its checkpoint, and its names."""
    common = {
        "vocab_size": 64,
        **{f"{x}_token_id": 0 for x in ("pad", "bos", "eos")},
        "hidden_size": dims.hidden_size,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_heads": dims.kda.num_heads,
        "linear_head_dim": dims.kda.head_dim,
        "linear_conv_kernel_dim": dims.kda.conv_size,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "moe_intermediate_size": 32,
        "rms_norm_eps": dims.norm_eps,
    }
    torch.manual_seed(0)
    if dims.kda.gate == "softplus":
        model = KimiLinearForCausalLM(KimiLinearConfig(**common))
    else:
        safe = {"kda_safe_gate": True, "kda_lower_bound": dims.kda.lower_bound}
        model = BailingHybridForCausalLM(BailingHybridConfig(**common, **safe))
    layer = model.model.layers[0].self_attn
    for name, p in layer.named_parameters():
        if "A_log" in name:
            p.data = torch.empty_like(p).uniform_(1, 4).log()
        else:
            p.data = torch.randn_like(p) * 0.3 + (1.0 if "norm" in name else 0.0)
    model.save_pretrained(tmp_path)
    stored, names = load_file(tmp_path / "model.safetensors"), hybrid_names.KDA[model.config.model_type]
    declared = kda.declare(dims)
    attention = {name for name in stored if name.startswith(("model.layers.0.self_attn.", "model.layers.0.attention."))}
    assert attention == {f"model.layers.0.{names[name]}" for name in declared}
    weights = {
        name: jnp.asarray(hybrid_names.from_hf(stored[f"model.layers.0.{names[name]}"].numpy(), p.shape))
        for name, p in declared.items()
    }
    return (
        layer,
        weights,
        {name: theirs.rpartition("attention.")[2].rpartition("attn.")[2] for name, theirs in names.items()},
    )


def relative(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(np.asarray(b))


@BOTH
def test_equals_transformers(dims, tmp_path):
    layer, weights, names = theirs(dims, tmp_path)
    rng = np.random.default_rng(1)
    x, weight = (rng.standard_normal((2, 150, dims.hidden_size)).astype(np.float32) for _ in range(2))
    x_torch = torch.tensor(x, requires_grad=True)
    expected = layer(x_torch)
    (expected * torch.tensor(weight)).sum().backward()

    @jax.jit
    def both(w, x, weight):
        o, back = jax.vjp(functools.partial(kda.apply, dims), w, x)
        return o, *back(weight)

    o, grads, d_x = both(weights, x, weight)
    assert relative(o, expected.detach()) < 1e-4
    assert relative(d_x, x_torch.grad) < 1e-4
    joined = {name.rpartition("forget_gate.")[2]: p.grad.numpy() for name, p in layer.named_parameters()}
    convolutions = np.split(joined.pop("conv1d.weight"), 3)
    joined |= {f"{x}_conv1d.weight": part for x, part in zip("qkv", convolutions, strict=True)}
    joined["dense.weight"] = joined["o_proj.weight"]
    errors = {name: relative(g, hybrid_names.from_hf(joined[names[name]], g.shape)) for name, g in grads.items()}
    assert max(errors.values()) < 1e-4, errors


@BOTH
def test_the_declaration_has_the_parameters_that_are_counted(dims):
    declared = kda.declare(dims)
    assert sum(np.prod(p.shape) for p in declared.values()) == dims.kda.num_params(dims.hidden_size)
    for name, p in param.stacked(kda.declare(dims), (3, 2)).items():
        one = declared[name]
        assert (p.shape, p.axes) == ((3, 2, *one.shape), ("layers", "layers", *one.axes))
    assert {name for name, p in declared.items() if not p.decays} == {"a_log", "dt_bias", "norm"}


@BOTH
def test_the_declaration_says_what_is_a_matrix_and_how_weights_start(dims):
    """Inputs x outputs of each product, which Muon takes; convolutions start as PyTorch's do, uniform within 1 / sqrt(taps)."""
    e, h, d, r = dims.hidden_size, dims.kda.num_heads, dims.kda.head_dim, dims.kda.gate_rank
    for stacked in ((), (3, 2)):
        declared = param.stacked(kda.declare(dims), stacked)
        sizes = {name: muon.sizes(p) for name, p in declared.items() if p.matrix}
        right = dict.fromkeys("qkv", (e, h * d)) | {"beta": (e, h), "o": (h * d, e)}
        for gate in ("decay", "gate"):
            right |= {f"{gate}_down": (e, r), f"{gate}_up": (r, h * d)} if r else {gate: (e, h * d)}
        assert sizes == right
        scales = {name: p.scale for name, p in declared.items() if p.init == "normal"}
        assert scales.pop("o") == pytest.approx(0.02 / np.sqrt(2 * dims.num_layers))
        taps = [scales.pop(f"{x}_conv") for x in "qkv"]
        assert taps == pytest.approx([1 / np.sqrt(dims.kda.conv_size) / np.sqrt(3)] * 3)
        assert set(scales.values()) == {0.02}


def test_rates_and_steps_start_in_their_ranges(one_device):
    start = param.initialize(param.stacked(kda.declare(SOFTPLUS), (50,)), one_device, 0)
    rates, steps = np.exp(start["a_log"]), np.logaddexp(0, start["dt_bias"])
    assert rates.min() > 0.999 and rates.max() < 16.001 and abs(rates.mean() - 8.5) < 1.5
    assert steps.min() > 0.999e-3 and steps.max() < 0.1001 and abs(np.log10(steps).mean() + 2) < 0.05


def made(dims, n, b=1):
    mesh = make_mesh(schema.GrpoMesh(), jax.devices()[:1])
    weights = param.initialize(kda.declare(dims), mesh, 0)
    return weights, jnp.asarray(np.random.default_rng(1).standard_normal((b, n, dims.hidden_size)), jnp.float32)


def test_a_kernel_for_tpus_is_refused_on_a_cpu(one_device):
    kda.check(BOUNDED.kda, one_device)
    with pytest.raises(UserError, match=r"model\.kda=tokamax is a kernel for TPUs, and these devices are of cpu"):
        kda.check(dataclasses.replace(BOUNDED.kda, kernel="tokamax"), one_device)


@pytest.mark.parametrize(("gate", "context"), [("softplus", 1), ("bounded", 2)])
def test_a_kernel_for_tpus_never_runs_where_a_plan_refuses_it(gate, context):
    """It promises bounded decays, and knows of no state before the first token of a part."""
    dims = dataclasses.replace(BOUNDED, kda=dataclasses.replace(BOUNDED.kda, kernel="tokamax", gate=gate))
    weights, x = made(dims, 8)
    mesh = make_mesh(pretrain.PretrainMesh(context=context), jax.devices()[:context])
    with pytest.raises(AssertionError, match="a plan refuses it"):
        kda.apply(dims, weights, x, None, mesh)


@pytest.mark.long
@BOTH
def test_documents_do_not_see_each_other(dims):
    """Neither through the state nor through the convolution, whose taps reach three tokens back; ids come again.

    Decays are so weak that a state lasts, and documents end in a chunk of 64 tokens as well as with one.
    """
    weights, x = made(dims, 150)
    weights |= {"a_log": jnp.zeros_like(weights["a_log"]), "dt_bias": jnp.full_like(weights["dt_bias"], -8.0)}
    edges = (0, 30, 31, 64, 128, 150)
    ids = np.repeat(np.arange(5) % 2, np.diff(edges))[None]
    apply = jax.jit(functools.partial(kda.apply, dims))
    packed = apply(weights, x, jnp.asarray(ids))
    for a, b in itertools.pairwise(edges):
        np.testing.assert_allclose(packed[:, a:b], apply(weights, x[:, a:b]), atol=1e-5 * np.abs(packed).max())
    assert relative(apply(weights, x), packed) > 1e-3


@pytest.mark.brief(1)
@BOTH
def test_bfloat16_is_close(dims):
    weights, x = made(dims, 128)
    apply = jax.jit(functools.partial(kda.apply, dims))
    o = apply(weights, x.astype(jnp.bfloat16))
    assert o.dtype == jnp.bfloat16
    assert relative(o.astype(jnp.float32), apply(weights, x)) < 0.03


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    ("want", "n", "packed"),
    [
        pytest.param(schema.GrpoMesh(fsdp=8), 130, False, marks=pytest.mark.long),
        (schema.GrpoMesh(data=2, fsdp=2, tensor=2), 130, True),
        (pretrain.PretrainMesh(fsdp=2, context=2, tensor=2), 130, True),
        (
            pretrain.PretrainMesh(context=8),
            24,
            False,
        ),  # parts of three tokens, which is as far as a convolution reaches
    ],
    ids=str,
)
def test_eight_devices_compute_what_one_does(want, n, packed):
    weights, x = made(BOUNDED, n, b=8)
    ids = jnp.asarray(np.arange(n) // 50)[None].repeat(8, 0) if packed else None
    mesh = make_mesh(want)
    declared = kda.declare(BOUNDED)
    spread = jax.device_put(weights, param.shardings(declared, mesh))

    def total(mesh):
        return jax.jit(jax.value_and_grad(lambda w, x: (kda.apply(BOUNDED, w, x, ids, mesh) ** 2).sum(), (0, 1)))

    value, grads = total(mesh)(spread, x)
    expected, right = total(None)(weights, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(right), strict=True):
        assert relative(a, b) < 1e-4


def test_parts_of_a_row_send_each_other_states_and_taps_and_never_tokens():
    """With context, a gather of whole rows would undo what the axis is for. What travels is what the last tokens of a part leave."""
    n, mesh = 512, make_mesh(pretrain.PretrainMesh(fsdp=2, context=2), jax.devices()[:4])
    everywhere, declared = jax.NamedSharding(mesh, jax.P()), kda.declare(BOUNDED)
    weights = {name: jax.ShapeDtypeStruct(p.shape, jnp.float32, sharding=everywhere) for name, p in declared.items()}
    x = jax.ShapeDtypeStruct((4, n, BOUNDED.hidden_size), jnp.float32, sharding=token_sharding(mesh))
    total = jax.grad(lambda w, x: (kda.apply(BOUNDED, w, x, None, mesh) ** 2).sum(), (0, 1))
    text = jax.jit(total).lower(weights, x).compile().as_text()
    moved = re.findall(r"= \w+\[([\d,]*)\]\S* (all-gather|all-to-all|collective-permute)\(", text)
    h, d = BOUNDED.kda.num_heads, BOUNDED.kda.head_dim
    assert set(moved) == {(f"2,2,{h},{d},{d}", "all-gather"), (f"2,3,{h},{d}", "collective-permute")}
