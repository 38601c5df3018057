"""Muon against optax's on one device; sharded equals unsharded; what goes over the links, and what the state looks like."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers
from optax.contrib._muon import orthogonalize_via_newton_schulz

from podwright.models import kda, param, qwen3
from podwright.models.param import RULES, Param
from podwright.recipe import schema
from podwright.recipe.hybrid import MODELS as HYBRIDS
from podwright.recipe.models import MODELS
from podwright.rundir import RunDir
from podwright.train import muon, optimizer
from podwright.train.checkpoint import Checkpoints
from podwright.train.mesh import gather, make_mesh
from podwright.train.run_storage import RunStorage

EXPERTS_RULES = RULES | {"experts": ("fsdp",), "wide": ("fsdp", "tensor")}
RATE = optax.linear_schedule(1e-2, 2e-3, 4)
SETTINGS = {"momentum": 0.95, "weight_decay": 0.1, "adam_b1": 0.9, "adam_b2": 0.95, "adam_weight_decay": 0.3}
# Three layers: more turns than one on some meshes, on others fewer matrices than devices
LEAVES = {
    "embed": Param((24, 16), ("vocab", "embed")),
    "plain": Param((16, 40), ("embed", "ffn"), matrix=(1, 1)),
    "layers": {
        "q": Param((3, 16, 4, 6), ("layers", "embed", "heads", None), matrix=(1, 2)),
        "o": Param((3, 4, 6, 16), ("layers", "heads", None, "embed"), matrix=(2, 1)),
        "experts": Param((3, 8, 12, 20), ("layers", "experts", None, None), matrix=(1, 1)),
        "over_two_axes": Param((3, 8, 16), ("layers", None, "wide"), matrix=(1, 1)),
        "experts_in_parts": Param((3, 4, 16, 8), ("layers", None, "embed", "ffn"), matrix=(1, 1)),
        "conv": Param((3, 16, 4), ("layers", None, None)),
        "norm": Param((3, 16), ("layers", None), "ones"),
    },
}
NUMBERS = {"plain": ((0,), (1,)), "q": ((1,), (2, 3)), "o": ((1, 2), (3,)), "over_two_axes": ((1,), (2,))}
NUMBERS |= {"experts": ((2,), (3,)), "experts_in_parts": ((2,), (3,))}
MESHES = [
    pytest.param((1, 8, 1), marks=pytest.mark.long),
    (1, 4, 2),
    (2, 4, 1),
    pytest.param((8, 1, 1), marks=pytest.mark.long),
]


def mesh_of(data, fsdp, tensor):
    return make_mesh(schema.GrpoMesh(data=data, fsdp=fsdp, tensor=tensor), jax.devices()[: data * fsdp * tensor])


def name_of(path):
    return path[-1].key


def transform(mesh, declared=LEAVES, max_grad_norm=1e9, **changed):
    settings = {"dtype": jnp.float32, "rules": EXPERTS_RULES, "max_grad_norm": max_grad_norm, **SETTINGS, **changed}
    return muon.muon(declared, mesh, RATE, **settings)


def values(mesh, seed, declared=LEAVES):
    """The same on every mesh, none of them zero."""
    rng = np.random.default_rng(seed)
    made = param.tree_map(lambda p: rng.normal(size=p.shape).astype(np.float32), declared)
    return jax.device_put(made, param.shardings(declared, mesh, EXPERTS_RULES))


def train(mesh, tx, steps=4):
    params = values(mesh, 0)
    state = tx.init(params)
    step = jax.jit(lambda state, params, grads: optimizer.apply(tx, grads, state, params)[:2])
    for i in range(steps):
        params, state = jax.block_until_ready(step(state, params, values(mesh, i + 1)))
    return jax.tree.map(lambda x: gather(x), (params, state))


def close(found, wanted, rtol=2e-5, atol=2e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), found, wanted)


@pytest.fixture(scope="module")
def unsharded():
    mesh = mesh_of(1, 1, 1)
    return train(mesh, transform(mesh))


def test_matrices_are_what_optax_makes_of_them(unsharded):
    def numbers(path, p):
        return MuonDimensionNumbers(*NUMBERS[name_of(path)]) if name_of(path) in NUMBERS else None

    dims = jax.tree_util.tree_map_with_path(numbers, LEAVES, is_leaf=param.is_param)
    mesh = mesh_of(1, 1, 1)
    wanted, _ = train(
        mesh, optax.contrib.muon(RATE, weight_decay=0.1, muon_weight_dimension_numbers=dims, consistent_rms=0.2)
    )
    found = unsharded[0]
    close(
        {k: v for k, v in found["layers"].items() if k in NUMBERS},
        {k: v for k, v in wanted["layers"].items() if k in NUMBERS},
    )
    close(found["plain"], wanted["plain"])


def test_other_leaves_are_what_adamw_makes_of_them(unsharded):
    mesh = mesh_of(1, 1, 1)
    decays = param.tree_map(lambda p: p.decays, LEAVES)
    wanted, _ = train(mesh, optax.adamw(RATE, b1=0.9, b2=0.95, weight_decay=0.3, mask=decays))
    found = unsharded[0]
    close(found["embed"], wanted["embed"])
    for name in ("conv", "norm"):
        close(found["layers"][name], wanted["layers"][name])


@pytest.mark.brief(1)
@pytest.mark.parametrize("shape", MESHES, ids=str)
def test_sharded_equals_unsharded(unsharded, shape):
    mesh = mesh_of(*shape)
    close(train(mesh, transform(mesh)), unsharded, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_in_bfloat16_updates_are_nearly_those_of_float32(unsharded):
    mesh = mesh_of(1, 4, 2)
    found, _ = train(mesh, transform(mesh, dtype=jnp.bfloat16))
    start = jax.tree.map(np.asarray, values(mesh, 0))
    for name in ("q", "experts"):
        moved, wanted = (
            found["layers"][name] - start["layers"][name],
            unsharded[0]["layers"][name] - start["layers"][name],
        )
        assert 1e-5 < np.linalg.norm(moved - wanted) / np.linalg.norm(wanted) < 0.06


def test_singular_values_of_an_update_are_near_one():
    x = jax.random.normal(jax.random.key(0), (48, 32))
    found = np.linalg.svd(muon.newton_schulz(x), compute_uv=False)
    assert found.min() > 0.6 and found.max() < 1.3
    assert not np.asarray(muon.newton_schulz(jnp.zeros((4, 8)))).any()


@pytest.mark.parametrize("size", [1.0, 1e-8, 1e-10])
def test_a_matrix_is_scaled_as_optax_does_however_small(size):
    x = size * jax.random.normal(jax.random.key(1), (6, 4)) / 5
    right = orthogonalize_via_newton_schulz(x, jnp.array(muon.COEFFICIENTS), 5, "frobenius", 1e-8)
    np.testing.assert_allclose(muon.newton_schulz(x), right, rtol=1e-4, atol=1e-7)


def test_an_update_is_as_large_as_one_of_adamw(unsharded):
    """0.2 by root mean square, whatever the shape."""
    mesh = mesh_of(1, 1, 1)
    tx, params = transform(mesh, weight_decay=0.0), values(mesh, 0)
    updates, _ = jax.jit(tx.update)(values(mesh, 1), tx.init(params), params)
    for name in ("q", "o", "experts"):
        assert 0.6 < np.sqrt(np.mean(np.square(updates["layers"][name]))) / (0.2 * 1e-2) < 1.2, name


@pytest.mark.long
def test_gradients_are_clipped_together():
    """Muon forgets the size of a single gradient, but not that of one beside others."""
    mesh = mesh_of(1, 1, 1)
    _, state = train(mesh, transform(mesh, max_grad_norm=1.0), steps=1)
    mu, grads = state[1].inner_state[0].mu["layers"]["q"], values(mesh, 1)
    np.testing.assert_allclose(mu, 0.05 * grads["layers"]["q"] / optax.global_norm(grads), rtol=1e-4)


def test_hidden_matrices_of_qwen3_get_muon_and_embeddings_do_not():
    for name in ("qwen3-1.7b", "qwen3-8b"):
        declared = qwen3.declare(MODELS[name])
        chosen = {
            jax.tree_util.keystr(path): p
            for path, p in jax.tree_util.tree_leaves_with_path(declared, is_leaf=param.is_param)
            if p.matrix
        }
        assert {re.findall(r"\w+", path)[-1] for path in chosen} == {"q", "k", "v", "o", "gate", "up", "down"}
    e = MODELS["qwen3-8b"].hidden_size
    assert all(e in muon.sizes(p) for p in chosen.values())


@pytest.mark.parametrize("rank", [0, 8])
def test_projections_and_gates_of_kda_get_muon_and_its_convolutions_do_not(rank):
    dims = HYBRIDS["almodel-tiny"]
    dims = dataclasses.replace(dims, kda=dataclasses.replace(dims.kda, gate_rank=rank))
    chosen = {name: muon.sizes(p) for name, p in param.stacked(kda.declare(dims), (3,)).items() if p.matrix}
    gates = ["decay_down", "decay_up", "gate_down", "gate_up"] if rank else ["decay", "gate"]
    assert set(chosen) == {"q", "k", "v", "beta", "o", *gates}
    assert chosen["q"] == chosen["o"] == (64, 64) and chosen["beta"] == (64, 2)
    assert sum(a * b for a, b in chosen.values()) == dims.kda.matmul_params(dims.hidden_size)


@pytest.mark.brief(1)
@pytest.mark.parametrize("shape", [(1, 8, 1), (1, 4, 2)], ids=str)
def test_the_state_is_known_ahead_and_comes_back_from_disk(shape, tmp_path):
    mesh = mesh_of(*shape)
    tx, params = transform(mesh), values(mesh, 0)
    abstract_params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)
    ahead = optimizer.abstract_state(tx, abstract_params, mesh)
    placed = jax.tree.map(lambda s: s.sharding, ahead)
    state = jax.jit(tx.init, out_shardings=placed)(params)
    _, state = jax.jit(tx.update, out_shardings=(None, placed))(values(mesh, 1), state, params)
    assert jax.tree.map(lambda s: s.shape, ahead) == jax.tree.map(jnp.shape, state)
    found = {
        (name_of([k for k in path if isinstance(k, jax.tree_util.DictKey)]), s.sharding)
        for path, s in jax.tree_util.tree_leaves_with_path(ahead)
        if s.shape
    }
    wanted = {(name_of(path), x.sharding) for path, x in jax.tree_util.tree_leaves_with_path(params)}
    assert found == wanted
    sizes = [x.size for x in jax.tree.leaves(state)]
    matrices = sum(np.prod(p.shape) for p in jax.tree.leaves(LEAVES, is_leaf=param.is_param) if p.matrix)
    assert sum(sizes) == 2 * sum(x.size for x in jax.tree.leaves(params)) - matrices + 4, (
        "one moment for a matrix, two for another leaf"
    )
    with Checkpoints(RunStorage(RunDir(tmp_path)), 1) as made:
        made.save(1, {"opt_state": state}, {"step": 1})
    with Checkpoints(RunStorage(RunDir(tmp_path)), None) as made:
        restored = made.restore({"opt_state": ahead})
    jax.tree.map(np.testing.assert_array_equal, restored.state["opt_state"], state)


def gathered(text):
    """Sizes of what all-gathers and all-reduces result in."""
    results = re.findall(r"= (\(?[^=]*?) all-(?:gather|reduce)(?:-start)?\(", text)
    return [
        int(np.prod([int(n) for n in dims.split(",") if n]))
        for found in results
        for dims in re.findall(r"\w+\[([\d,]*)\]", found)
    ]


def compiled(mesh, declared):
    tx = transform(mesh, declared)
    params = param.tree_map(
        lambda p: jax.ShapeDtypeStruct(
            p.shape, jnp.float32, sharding=jax.NamedSharding(mesh, p.spec(mesh, EXPERTS_RULES))
        ),
        declared,
    )
    state = optimizer.abstract_state(tx, params, mesh)
    out = jax.tree.map(lambda s: s.sharding, (params, state))
    return (
        jax.jit(lambda g, s, p: optimizer.apply(tx, g, s, p)[:2], out_shardings=out)
        .lower(params, state, params)
        .compile()
        .as_text()
    )


@pytest.mark.parametrize("shape", MESHES[:3], ids=str)
@pytest.mark.parametrize("name", ["q", "o", "experts", "experts_in_parts"])
def test_no_leaf_is_gathered(shape, name):
    mesh, p = mesh_of(*shape), LEAVES["layers"][name]
    p = dataclasses.replace(p, shape=(16, *p.shape[1:]))
    text = compiled(mesh, {name: p})
    assert max(gathered(text)) <= np.prod(p.shape) / 8
    arrays = [np.prod([int(n) for n in dims.split(",")]) for dims in re.findall(r"f32\[([\d,]+)\]", text)]
    own = jax.NamedSharding(mesh, p.spec(mesh, EXPERTS_RULES)).shard_shape(p.shape)
    assert max(arrays) <= np.prod(own), "there are turns without a matrix"
    assert ("all-to-all" in text) == (name != "experts")


def test_a_gather_would_be_seen():
    mesh = mesh_of(1, 8, 1)
    x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P("fsdp")))
    text = jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(mesh, jax.P())).lower(x).compile().as_text()
    assert gathered(text) == [128]
