"""Routing and experts against transformers; over devices; every token computed, wherever it goes; by the TPU's kernel."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

from podwright.kernels import grouped
from podwright.models import moe, param
from podwright.recipe.hybrid import MODELS, HybridDims, Moe
from podwright.train import muon
from tests.unit.models import hybrid_names

B, N, E = 8, 6, 32
PLAIN = Moe(16, 3, 24, 1, 2.827)
GROUPS = Moe(16, 4, 24, 2, 2.5, 4, 2)


def dims(m):
    return HybridDims(E, 4, 96, 64, 1, MODELS["almodel-tiny"].mla, m)


def theirs(m):
    config = transformers.DeepseekV3Config(
        hidden_size=E,
        n_routed_experts=m.num_experts,
        num_experts_per_tok=m.num_experts_per_tok,
        moe_intermediate_size=m.moe_intermediate_size,
        n_shared_experts=m.num_shared_experts,
        routed_scaling_factor=m.routed_scaling_factor,
        n_group=m.n_group,
        topk_group=m.topk_group,
        norm_topk_prob=True,
    )
    torch.manual_seed(0)
    module = deepseek.DeepseekV3MoE(config)
    for p in module.parameters():
        p.data = torch.randn_like(p) * 0.3
    module.gate.e_score_correction_bias.copy_(torch.randn(m.num_experts) * 0.2)
    return module


def ours_of(module, m, value=lambda p: p.detach()):
    """Its weights, or what `value` gives of them, in our layout by the table of names (they hold experts as one array)."""
    f = m.moe_intermediate_size
    named = {}
    for name, p in module.named_parameters():
        array = np.asarray(value(p))
        if name == "experts.gate_up_proj":
            for i in range(m.num_experts):
                named |= {
                    f"mlp.experts.{i}.gate_proj.weight": array[i, :f],
                    f"mlp.experts.{i}.up_proj.weight": array[i, f:],
                }
        elif name == "experts.down_proj":
            named |= {f"mlp.experts.{i}.down_proj.weight": array[i] for i in range(m.num_experts)}
        else:
            named[f"mlp.{name}"] = array
    ours, names = {}, hybrid_names.MOE["deepseek_v3"]
    for name, p in moe.declare(dims(m)).items():
        if p.axes[0] == "experts":
            ours[name] = np.stack([named.pop(names[name].format(i)).T for i in range(p.shape[0])])
        else:
            ours[name] = named.pop(names[name]).T
        assert ours[name].shape == p.shape
    assert not named
    return jax.tree.map(jnp.asarray, ours)


def mesh_of(**axes):
    count = int(np.prod([*axes.values()]))
    return jax.make_mesh(
        tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes), devices=jax.devices()[:count]
    )


ONE = mesh_of(fsdp=1)


def inputs(rows=B, tokens=N, hidden=E):
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, tokens, hidden)).astype(np.float32), rng.normal(size=(rows, tokens, hidden)).astype(
        np.float32
    )


def random_weights(d, mesh=ONE, scale=10.0):
    declared, rng = moe.declare(d), np.random.default_rng(0)
    values = {name: rng.normal(size=p.shape).astype(np.float32) * p.scale * scale for name, p in declared.items()}
    return jax.device_put(values, param.shardings(declared, mesh))


def random_bias(m):
    return jnp.asarray(np.random.default_rng(2).normal(size=m.num_experts) * 0.2, jnp.float32)


def run(d, weights, bias, x, cotangent, mesh=ONE):
    """Output, load and gradients of the weights and of x."""

    def total(w, x):
        out, load = moe.apply(d, w, bias, x, mesh)
        return (out * cotangent).sum(), (out, load)

    (_, (out, load)), grads = jax.jit(jax.value_and_grad(total, argnums=(0, 1), has_aux=True))(weights, x)
    return {"out": out, "load": load, "x": grads[1], **grads[0]}


@functools.cache
def alone(d):
    """On one device."""
    return run(d, random_weights(d), random_bias(d.moe), *inputs())


def close(ours, right, atol=1e-4):
    assert ours.keys() == right.keys()
    for name, value in right.items():
        np.testing.assert_allclose(ours[name], value, atol=atol * max(1, np.abs(value).max()), err_msg=name)


@pytest.mark.parametrize("m", [PLAIN, GROUPS], ids=["plain", "groups"])
def test_it_is_what_transformers_computes(m):
    module, (x, cotangent) = theirs(m), inputs()
    x_theirs = torch.tensor(x, requires_grad=True)
    out = module(x_theirs)
    (out * torch.tensor(cotangent)).sum().backward()
    chosen = module.gate(x_theirs)[2].reshape(B, -1)
    load = np.stack([np.bincount(row, minlength=m.num_experts) for row in chosen])
    right = {
        "out": out.detach().numpy(),
        "load": load,
        "x": x_theirs.grad.numpy(),
        **ours_of(module, m, lambda p: p.grad),
    }
    bias = jnp.asarray(module.gate.e_score_correction_bias.numpy())
    close(run(dims(m), ours_of(module, m), bias, x, cotangent), right)


@pytest.mark.parametrize(
    "m", [PLAIN, GROUPS, dataclasses.replace(GROUPS, topk_group=1)], ids=["plain", "groups", "one group"]
)
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_the_router_is_that_of_transformers(m, bias):
    router = theirs(m).gate
    router.e_score_correction_bias.mul_(bias / 0.2)
    x = torch.tensor(np.random.default_rng(0).normal(size=(400, E)).astype(np.float32))
    logits, shares, chosen = router(x)
    ours, ours_shares = moe.route(
        m, jnp.asarray(logits.detach().numpy()), jnp.asarray(router.e_score_correction_bias.numpy())
    )
    order, ours_order = np.argsort(chosen, axis=1), np.argsort(ours, axis=1)
    np.testing.assert_array_equal(
        np.take_along_axis(np.asarray(ours), ours_order, 1), np.take_along_axis(chosen.numpy(), order.numpy(), 1)
    )
    right = np.take_along_axis(shares.detach().numpy(), order.numpy(), 1)
    np.testing.assert_allclose(np.take_along_axis(np.asarray(ours_shares), ours_order, 1), right, rtol=1e-5)


def test_the_declaration_says_what_is_a_matrix_and_how_weights_start():
    """Inputs x outputs of each expert's products, which Muon takes; what goes back starts smaller by sqrt(2 layers)."""
    declared = param.stacked(moe.declare(dims(GROUPS)), (3,))
    sizes = {name: muon.sizes(p) for name, p in declared.items() if p.matrix}
    shared = 2 * 24
    wide = {"gate": (E, 24), "up": (E, 24), "shared_gate": (E, shared), "shared_up": (E, shared)}
    assert sizes == wide | {"down": (24, E), "shared_down": (shared, E)}
    scales = {name: p.scale for name, p in declared.items()}
    small = {scales.pop("down"), scales.pop("shared_down")}
    assert small == {0.02 / (2 * 4) ** 0.5} and set(scales.values()) == {0.02}


def test_a_cpu_multiplies_in_blocks_and_what_has_no_kernel_without():
    assert moe._product(ONE, E, 24) == moe.Product(grouped.matmul_of_blocks, grouped.BLOCK)


MESHES = [
    {"fsdp": 8},
    {"data": 2, "fsdp": 2, "tensor": 2},
    {"expert": 8},
    {"fsdp": 2, "expert": 2, "tensor": 2},
    {"fsdp": 2, "context": 2, "expert": 2},
]


@pytest.mark.long
@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_on_many_devices_it_is_the_same(axes):
    """Outputs, gradients and load, and so the router's bias."""
    d, bias, (x, cotangent), mesh = dims(GROUPS), random_bias(GROUPS), inputs(), mesh_of(**axes)
    rows = NamedSharding(mesh, PartitionSpec(param.batch_axes(mesh)))
    there = run(d, random_weights(d, mesh), bias, *(jax.device_put(a, rows) for a in (x, cotangent)), mesh)
    here = alone(d)
    close(there, here, 1e-5)
    np.testing.assert_array_equal(*(moe.updated_bias(GROUPS, bias, r["load"].sum(0)) for r in (there, here)))


def test_experts_that_fsdp_does_not_divide_are_stored_in_rows():
    """Nor are they then computed otherwise."""
    m, mesh = dataclasses.replace(PLAIN, num_experts=12), mesh_of(fsdp=8)
    d, (x, cotangent) = dims(m), inputs()
    assert moe.declare(d)["gate"].spec(mesh) == PartitionSpec(None, "fsdp", None)
    assert moe.declare(dims(PLAIN))["gate"].spec(mesh) == PartitionSpec("fsdp", None, None)
    bias = random_bias(m)
    close(run(d, random_weights(d, mesh), bias, x, cotangent, mesh), alone(d), 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("axes", [{"fsdp": 1}, {"expert": 8}], ids=str)
def test_no_token_is_dropped_when_all_go_to_the_same_experts(axes):
    """Each expert's part, written out with no sorting."""
    m, mesh, (x, cotangent) = PLAIN, mesh_of(**axes), inputs()
    d = dims(m)
    w, bias = random_weights(d, mesh), jnp.where(jnp.isin(jnp.arange(16), jnp.array([2, 3, 15])), 100.0, 0.0)

    def swiglu(x, gate, up, down):
        return (jax.nn.silu(x @ gate) * (x @ up)) @ down

    def total(w, x):
        score = jax.nn.sigmoid(x @ w["router"])[..., jnp.array([2, 3, 15])]
        share = score / score.sum(-1, keepdims=True) * m.routed_scaling_factor
        out = swiglu(x, *(w[f"shared_{name}"] for name in ("gate", "up", "down")))
        for i, expert in enumerate((2, 3, 15)):
            out += share[..., i, None] * swiglu(x, *(w[name][expert] for name in ("gate", "up", "down")))
        return (out * cotangent).sum(), out

    (_, out), grads = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(w, x)
    load = np.zeros((B, 16))
    load[:, [2, 3, 15]] = N
    close(run(d, w, bias, x, cotangent, mesh), {"out": out, "load": load, "x": grads[1], **grads[0]}, 1e-5)


@pytest.mark.brief(1)
@pytest.mark.parametrize("block", [1, 4, 64])
@pytest.mark.parametrize(("first", "num"), [(0, 4), (4, 4), (12, 4), (6, 2)])
def test_a_part_of_the_experts_does_its_choices_and_no_others(monkeypatch, first, num, block):
    """In PyTorch, choice by choice; a choice of another part's expert gets no gradient here, not even one that the router would cancel.

    Two experts have no room for the third choice of a token.
    """
    monkeypatch.setattr(grouped, "BLOCK", block)
    tokens, width, hidden, rng, rows = 37, 12, 10, np.random.default_rng(0), set()

    def multiply(x, w, sizes):
        rows.add(len(x))
        return (grouped.matmul_of_blocks if block > 1 else grouped.matmul)(x, w, sizes)

    product = moe.Product(multiply, block)
    chosen = np.stack([rng.permutation(16)[:3] for _ in range(tokens)])
    x, share, gate_up, down, cotangent = (
        rng.normal(size=s).astype(np.float32)
        for s in ((tokens, width), (tokens, 3), (num, width, 2 * hidden), (num, hidden, width), (tokens, width))
    )
    out, back = jax.vjp(
        lambda *a: moe.routed(a[0], jnp.asarray(chosen), *a[1:], first, product), x, share, gate_up, down
    )
    given = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (x, share, gate_up, down)]
    right = torch.zeros(tokens, width, dtype=torch.float64)
    for t, k in np.argwhere((chosen >= first) & (chosen < first + num)):
        gate, up = (given[0][t] @ given[2][chosen[t, k] - first]).split(hidden)
        right[t] += given[1][t, k] * ((torch.nn.functional.silu(gate) * up) @ given[3][chosen[t, k] - first])
    right.backward(torch.tensor(cotangent))
    for name, ours, theirs in zip(
        ("out", "x", "share", "gate_up", "down"),
        (out, *back(jnp.asarray(cotangent))),
        (right, *(g.grad for g in given)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs.detach(), atol=1e-5 * np.abs(ours).max(), err_msg=name)
    most = tokens * min(3, num)
    assert rows == {most if block == 1 else (-(-most // block) + num) * block}


@pytest.mark.long
@pytest.mark.parametrize("axes", [{"fsdp": 2}, {"expert": 4}], ids=str)
def test_chunks_change_nothing(monkeypatch, axes):
    d, bias, (x, cotangent), mesh = dims(PLAIN), random_bias(PLAIN), inputs(), mesh_of(**axes)
    monkeypatch.setattr(moe, "MOST_ROWS", 50)
    assert moe._chunks(B // 2 * N, 3) == 2
    close(run(d, random_weights(d, mesh), bias, x, cotangent, mesh), alone(d), 1e-5)


def test_chunks_are_equal_and_no_more_than_need_be(monkeypatch):
    monkeypatch.setattr(moe, "MOST_ROWS", 100)
    assert [moe._chunks(*x) for x in [(50, 2), (51, 2), (7, 50), (4, 1000)]] == [1, 3, 7, 4]


def test_the_bias_goes_against_the_load():
    m = dataclasses.replace(PLAIN, bias_update_rate=0.5)
    load = np.array([[5, 1, 3], [0, 0, 9]])
    np.testing.assert_array_equal(moe.updated_bias(m, jnp.ones((2, 3)), load), [[0.5, 1.5, 1.0], [1.5, 1.5, 0.5]])


def test_the_bias_is_not_trained():
    d, (x, cotangent) = dims(GROUPS), inputs()
    gradient = jax.grad(lambda b: (moe.apply(d, random_weights(d), b, x, ONE)[0] * cotangent).sum())(
        random_bias(GROUPS)
    )
    assert not np.any(gradient)


@pytest.mark.parametrize("sizes", [[100, 0, 130, 70], [0, 0, 300, 0], [20, 10, 0, 30]], ids=str)
def test_the_tpu_kernel_is_the_grouped_product(sizes):
    """Interpreted; a tile may hold rows of several groups, and rows after the last one are no one's."""
    rng, rows = np.random.default_rng(0), 300
    x, w, g = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in [(rows, 256), (4, 256, 128), (rows, 128)])
    sizes = jnp.array(sizes, jnp.int32)
    used = (np.arange(rows) < int(sizes.sum()))[:, None]

    def values(product):
        out, back = jax.vjp(lambda x, w: product(x, w, sizes), x, w)
        d_x, d_w = back(g)
        return [np.where(used, out, 0), np.where(used, d_x, 0), d_w]

    for ours, right in zip(values(lambda *a: grouped.kernel_matmul(*a, True)), values(grouped.matmul), strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-4)


@pytest.mark.parametrize("sizes", [[1, 0, 2, 1], [0, 0, 0, 5], [0, 1, 0, 0]], ids=str)
def test_blocks_are_the_grouped_product(sizes):
    """Of full blocks; those after the last group are zero, and so are their gradients."""
    rng, rows = np.random.default_rng(0), 5 * grouped.BLOCK
    x, w, g = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in [(rows, 12), (4, 12, 20), (rows, 20)])
    sizes = jnp.array(sizes, jnp.int32) * grouped.BLOCK

    def values(product):
        out, back = jax.vjp(lambda x, w: product(x, w, sizes), x, w)
        return [out, *back(g)]

    for ours, right in zip(values(grouped.matmul_of_blocks), values(grouped.matmul), strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(("axes", "block"), [({"fsdp": 1}, 64), ({"fsdp": 2, "expert": 4}, 4)], ids=str)
def test_a_layer_says_the_same_in_blocks_and_without(monkeypatch, axes, block):
    """Blocks that hold many, few and no tokens of an expert; `ragged_dot` is what other accelerators run."""
    d, mesh, (x, cotangent) = dims(GROUPS), mesh_of(**axes), inputs()
    monkeypatch.setattr(grouped, "BLOCK", block)
    blocks = run(d, random_weights(d, mesh), random_bias(GROUPS), x, cotangent, mesh)
    used = []

    def ragged(x, w, sizes):
        used.append(w.shape)
        return grouped.matmul(x, w, sizes)

    monkeypatch.setattr(moe, "_product", lambda mesh, *widths: moe.Product(ragged))
    plain = run(d, random_weights(d, mesh), random_bias(GROUPS), x, cotangent, mesh)
    assert used
    close(blocks, plain, 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("axes", [{"fsdp": 2, "tensor": 2}, {"expert": 4}], ids=str)
def test_a_layer_with_the_kernel_says_the_same(monkeypatch, axes):
    """What the kernel leaves unwritten is never used."""
    m = Moe(8, 3, 256, 1, 2.0)
    d, mesh, (x, cotangent) = dataclasses.replace(dims(m), hidden_size=128), mesh_of(**axes), inputs(4, 20, 128)
    w, bias = random_weights(d, mesh), random_bias(m)
    plain = run(d, w, bias, x, cotangent, mesh)

    used = []

    def interpreted(x, w, sizes):
        used.append(w.shape)
        return grouped.kernel_matmul(x, w, sizes, True)

    monkeypatch.setattr(moe, "_product", lambda mesh, *widths: moe.Product(interpreted))
    ours = run(d, w, bias, x, cotangent, mesh)
    assert used  # by every product
    close(ours, plain, 2e-5)


def test_the_platform_and_the_widths_decide():
    assert grouped.supported("tpu", 2560, 1280)
    assert not grouped.supported("tpu", 2560, 48)
    assert not grouped.supported("cpu", 2560) and not grouped.supported("gpu", 2560)


@pytest.mark.parametrize(
    ("width", "most", "tile"),
    [(128, 640, 128), (2560, 2560, 2560), (2560, 640, 640), (7168, 2560, 1792), (768, 640, 384)],
)
def test_tiles_divide_a_width(width, most, tile):
    assert grouped._tile(width, most) == tile
