"""Latent attention against transformers, between documents, over devices, and by the TPU's kernel."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from transformers.models.bailing_hybrid import modeling_bailing_hybrid as bailing
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.kimi_linear import modeling_kimi_linear as kimi

from podwright.attention_kernels import Kernel
from podwright.kernels import splash
from podwright.models import attention, mla, param
from podwright.recipe.hybrid import MODELS, HybridDims, Mla, Yarn
from podwright.train import muon
from tests.unit.models import hybrid_names

B, N, E = 2, 40, 48
NONE = MODELS["almodel-tiny"].moe
LATENT = dict(num_heads=4, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12)
DEEPSEEK = Mla(q_lora_rank=32, rope_theta=1e4, yarn=Yarn(40, 16, 4.0, 1.0), **LATENT)
KIMI = Mla(q_lora_rank=0, rope_theta=None, **LATENT)
BAILING = Mla(q_lora_rank=0, rope_theta=6e6, head_gate=True, **LATENT)


def dims(m):
    return HybridDims(E, 4, 96, 64, 1, m, NONE)


def theirs(m):
    """The module that transformers has for these dimensions, with random weights, and its cos and sin if it takes any."""
    latent = {k: getattr(m, k) for k in LATENT if k != "num_heads"}
    latent |= {
        "num_attention_heads": m.num_heads,
        "num_key_value_heads": m.num_heads,
        "hidden_size": E,
        "attn_implementation": "eager",
    }
    torch.manual_seed(0)
    if m.rope_theta is None:
        config = transformers.KimiLinearConfig(**latent, q_lora_rank=m.q_lora_rank or None)
        module, rotary = kimi.KimiLinearAttention(config, 0), None
    elif m.head_gate:
        config = transformers.BailingHybridConfig(**latent, rope_theta=m.rope_theta, head_dim=m.qk_rope_head_dim)
        module, rotary = bailing.BailingHybridAttention(config, 0), bailing.BailingHybridRotaryEmbedding(config)
    else:
        config = transformers.DeepseekV3Config(**latent, q_lora_rank=m.q_lora_rank, rope_parameters=rope_parameters(m))
        module, rotary = deepseek.DeepseekV3Attention(config, 0), deepseek.DeepseekV3RotaryEmbedding(config)
    for name, p in module.named_parameters():
        p.data = torch.randn_like(p) * (0.2 if "norm" in name else 0.3) + (1.0 if "norm" in name else 0.0)
    return module, rotary


def rope_parameters(m):
    if m.yarn is None:
        return {"rope_type": "default", "rope_theta": m.rope_theta}
    return {
        "rope_type": "yarn",
        "rope_theta": m.rope_theta,
        "factor": m.yarn.factor,
        "original_max_position_embeddings": m.yarn.original_max_positions,
        "beta_fast": m.yarn.beta_fast,
        "beta_slow": m.yarn.beta_slow,
        "mscale": m.yarn.mscale,
        "mscale_all_dim": m.yarn.mscale,
    }


def ours_of(module, m, value=lambda p: p.detach()):
    """Its weights, or what `value` gives of them, in our layout by the table of names."""
    named = {f"self_attn.{name}": np.asarray(value(p)) for name, p in module.named_parameters()}
    declared, names = mla.declare(dims(m)), hybrid_names.MLA["deepseek_v3"]
    assert {names[name] for name in declared} == set(named)
    return {name: jnp.asarray(named[names[name]].T.reshape(p.shape)) for name, p in declared.items()}


def mesh_of(**axes):
    return jax.make_mesh(
        tuple(axes.values()),
        tuple(axes),
        axis_types=(AxisType.Auto,) * len(axes),
        devices=jax.devices()[: np.prod([*axes.values()])],
    )


ONE = mesh_of(fsdp=1)


def inputs(rows=B, tokens=N, hidden=E):
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, tokens, hidden)).astype(np.float32), rng.normal(size=(rows, tokens, hidden)).astype(
        np.float32
    )


def run(d, weights, x, cotangent, ids=None, positions=None, mesh=ONE):
    """Output and gradients of the weights and of x."""
    positions = np.broadcast_to(np.arange(x.shape[1]), x.shape[:2]) if positions is None else positions

    def total(w, x):
        out = mla.apply(d, w, x, positions, ids, mesh)
        return (out * cotangent).sum(), out

    (_, out), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(weights, x)
    return {"out": out, "x": grads[1], **grads[0]}


def close(ours, right, atol=1e-4):
    assert ours.keys() == right.keys()
    for name, value in right.items():
        np.testing.assert_allclose(ours[name], value, atol=atol * max(1, np.abs(value).max()), err_msg=name)


@pytest.mark.parametrize(
    "m", [DEEPSEEK, dataclasses.replace(DEEPSEEK, yarn=None), KIMI, BAILING], ids=["yarn", "rope", "nope", "gate"]
)
def test_it_is_what_transformers_computes(m):
    module, rotary = theirs(m)
    x, cotangent = inputs()
    x_theirs = torch.tensor(x, requires_grad=True)
    mask = torch.full((N, N), -torch.inf).triu(1)[None, None]
    angles = {} if rotary is None else {"position_embeddings": rotary(x_theirs, torch.arange(N)[None])}
    out = module(x_theirs, attention_mask=mask, **angles)[0]
    (out * torch.tensor(cotangent)).sum().backward()
    right = {"out": out.detach().numpy(), "x": x_theirs.grad.numpy(), **ours_of(module, m, lambda p: p.grad)}
    close(run(dims(m), ours_of(module, m), x, cotangent), right)


@pytest.mark.parametrize(
    "m",
    [
        MODELS["almodel-8b"].mla,
        MODELS["deepseek-v3"].mla,
        DEEPSEEK,
        dataclasses.replace(DEEPSEEK, yarn=Yarn(8, 4096, 64.0, 0.01)),
    ],
)
def test_frequencies_are_stretched_as_transformers_does(m):
    config = transformers.DeepseekV3Config(qk_rope_head_dim=m.qk_rope_head_dim, rope_parameters=rope_parameters(m))
    theirs, cos_scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config)
    np.testing.assert_allclose(mla.frequencies(m), theirs.numpy(), rtol=1e-6)
    assert cos_scale == 1.0
    assert mla.softmax_scale(m) == pytest.approx(deepseek.yarn_apply_mscale(rope_parameters(m), m.qk_head_dim**-0.5))


def test_almodel_stretches_the_slow_pairs_only():
    m = MODELS["almodel-8b"].mla
    full = mla.frequencies(dataclasses.replace(m, yarn=None))
    np.testing.assert_allclose(full / mla.frequencies(m), [1.0] * 20 + [32.0] * 12, rtol=1e-6)
    assert mla.softmax_scale(m) == pytest.approx(0.1309, abs=5e-5)


def random_weights(d, mesh=ONE, scale=10.0):
    declared, rng = mla.declare(d), np.random.default_rng(0)
    values = {
        name: np.float32(rng.normal(size=p.shape) * p.scale * scale + (p.init == "ones"))
        for name, p in declared.items()
    }
    return jax.device_put(values, param.shardings(declared, mesh))


def test_the_declaration_says_what_is_a_matrix_and_how_weights_start():
    """Inputs x outputs of each product, which Muon takes; the output starts smaller by sqrt(2 layers), as GPT-2's does."""
    declared = param.stacked(mla.declare(dims(dataclasses.replace(DEEPSEEK, head_gate=True))), (3,))
    sizes = {name: muon.sizes(p) for name, p in declared.items() if p.matrix}
    heads = 4 * (16 + 8), 4 * (16 + 12)
    assert sizes == {
        "q_a": (E, 32),
        "q_b": (32, heads[0]),
        "kv_a": (E, 24 + 8),
        "kv_b": (24, heads[1]),
        "o": (4 * 12, E),
    }
    assert muon.sizes(mla.declare(dims(KIMI))["q"]) == (E, heads[0])
    scales = {name: p.scale for name, p in declared.items() if p.init == "normal"}
    assert scales.pop("o") == pytest.approx(0.02 / np.sqrt(2 * 4)) and set(scales.values()) == {0.02}
    assert {name for name, p in declared.items() if p.init == "ones"} == {"q_a_norm", "kv_a_norm"}


@pytest.mark.brief(1)
@pytest.mark.parametrize("queries", [512, 16])
def test_packed_documents_do_not_meet(monkeypatch, queries):
    """Whether all scores exist at one time or not."""
    monkeypatch.setattr(attention, "QUERIES", queries)
    d, lengths = dims(DEEPSEEK), [11, 3, 26]
    w, (x, cotangent) = random_weights(d), inputs(1)
    ids = np.repeat([4, 9, 2], lengths)[None]
    positions = np.concatenate([np.arange(n) for n in lengths])[None]
    packed = run(d, w, x, cotangent, ids, positions)
    ends = np.cumsum(lengths)
    alone = [run(d, w, x[:, e - n : e], cotangent[:, e - n : e]) for e, n in zip(ends, lengths, strict=True)]
    right = {name: sum(a[name] for a in alone) for name in w}
    right |= {name: np.concatenate([a[name] for a in alone], axis=1) for name in ("out", "x")}
    close(packed, right, 1e-5)


@pytest.mark.parametrize("queries", [512, 16])
def test_no_token_sees_a_later_one(monkeypatch, queries):
    monkeypatch.setattr(attention, "QUERIES", queries)
    d = dims(BAILING)
    w, (x, cotangent) = random_weights(d), inputs()
    before = np.asarray(run(d, w, x, cotangent)["out"])
    x[:, 21] += 1.0
    same = (before == np.asarray(run(d, w, x, cotangent)["out"])).all((0, 2))
    assert same[:21].all() and not same[21:].any()


def test_scores_of_a_long_row_never_exist_whole():
    long, h = 4096, 2
    shape = jax.ShapeDtypeStruct((1, long, h, 8), jnp.float32)

    def total(q, k, v):
        return attention.plain_packed(q, k, v, None, scale=0.3).sum()

    compiled = jax.jit(jax.grad(total, argnums=(0, 1, 2))).lower(shape, shape, shape).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < h * long * long * 4


MESHES = [{"fsdp": 2, "context": 2, "tensor": 2}, {"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2}]
MESHES += [{"fsdp": 2, "expert": 4}, {"fsdp": 2, "context": 4}]


@pytest.mark.brief(1)
@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_on_many_devices_it_is_the_same(axes):
    d, (x, cotangent), mesh = dims(dataclasses.replace(DEEPSEEK, head_gate=True)), inputs(8), mesh_of(**axes)
    ids = np.repeat([[0, 1]], 8, axis=0).repeat(N // 2, axis=1)
    rows = NamedSharding(mesh, PartitionSpec(param.batch_axes(mesh)))
    there = run(d, random_weights(d, mesh), *(jax.device_put(a, rows) for a in (x, cotangent, ids)), mesh=mesh)
    close(there, run(d, random_weights(d), x, cotangent, ids), 1e-5)


@pytest.mark.brief(1)
@pytest.mark.parametrize("parts", [1, 2])
def test_the_tpu_kernel_says_the_same(monkeypatch, parts):
    """Interpreted: with heads whose keys and values differ in width, more than one block, and documents; parts do not fill blocks."""
    m = Mla(2, 32, 24, 128, 64, 128, 5e4, Yarn(32, 64, 1.0, 1.0))
    d, mesh = dims(m), mesh_of(fsdp=2, tensor=2)
    w, (x, cotangent) = random_weights(d, mesh, 5.0), inputs(2, 300)
    ids = np.repeat([[0, 1, 2], [0, 3, 1]], 100, axis=1)
    plain = run(d, w, x, cotangent, ids, mesh=mesh)
    monkeypatch.setattr(splash, "MOST_QUERIES", 128)
    monkeypatch.setattr(splash, "MOST_KEYS", 128)
    monkeypatch.setattr(attention, "kernel_for", lambda mesh, heads, layout: {m.v_head_dim: Kernel.SPLASH}[heads.v_dim])
    of_a_tpu = splash.make_kernel
    monkeypatch.setattr(splash, "make_kernel", lambda *shape, interpret=True: of_a_tpu(*shape, interpret=True))
    mesh = mesh_of(fsdp=2, context=parts, tensor=2)
    ours = run(d, random_weights(d, mesh, 5.0), x, cotangent, ids, mesh=mesh)
    assert not np.array_equal(ours["out"], plain["out"])  # another form did run
    close(ours, plain, 2e-5)


def test_a_tpu_gets_the_kernel(monkeypatch):
    pytest.importorskip("libtpu")
    for name, value in {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    devices = list(topologies.get_topology_desc(platform="tpu", topology_name="v6e:2x2").devices)
    mesh = jax.make_mesh((2, 2), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    d = MODELS["almodel-8b"]
    x = jax.ShapeDtypeStruct((2, 256, d.hidden_size), jnp.bfloat16, sharding=NamedSharding(mesh, PartitionSpec("fsdp")))
    ids = jax.ShapeDtypeStruct((2, 256), jnp.int32, sharding=x.sharding)

    def total(w, x, ids):
        return mla.apply(d, w, x, ids, ids, mesh).astype(jnp.float32).sum()

    text = jax.jit(jax.grad(total)).lower(param.abstract(mla.declare(d), mesh), x, ids).as_text()
    assert text.count("@tpu_custom_call") == 3
