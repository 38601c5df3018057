"""tokamax's kernel for KDA, its program interpreted on a CPU, against the definition; where the library is (Python 3.12 or newer)."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.kda_definition import recurrent
from podwright.errors import UserError
from podwright.kernels import kda_tokamax

HERE = importlib.util.find_spec("tokamax") is not None
TOKENS, HEADS, DIM = 128, 1, 32


def inputs(shift):
    keys = jax.random.split(jax.random.key(0), 6)
    shape = (1, TOKENS, HEADS, DIM)
    q, k, v, f, weight = (jax.random.normal(key, shape) for key in keys[:5])
    q, k = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    g = -5 * jax.nn.sigmoid(2 * f + shift)
    return (q * DIM**-0.5, k, v, g, jax.nn.sigmoid(jax.random.normal(keys[5], shape[:3]))), weight


def with_gradients(attend, arrays, ids, weight):
    def loss(*arrays):
        out = attend(*arrays, ids)
        return jnp.sum(out * weight), out

    traced = jax.jit(jax.value_and_grad(loss, argnums=range(5), has_aux=True)).trace(*arrays)
    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    (_, out), grads = traced.lower(lowering_platforms=("cpu",)).compile(quickly)(*arrays)
    return out, *grads


@pytest.mark.long
@pytest.mark.skipif(not HERE, reason="tokamax is not installed")
@pytest.mark.parametrize("shift", [-4, 6], ids=["mild", "strong"])  # decays around -0.1, and near -5
@pytest.mark.parametrize(
    "documents", [(), ((0, 37), (48, 64), (64, 70), (80, 128)), ((0, 1), (16, 17), (32, 33), (48, 128))]
)
def test_output_and_gradients_are_those_of_the_definition(shift, documents, monkeypatch):
    monkeypatch.setenv("PALLAS_INTERPRET", "1")
    arrays, weight = inputs(shift)
    ids = np.zeros((1, TOKENS), np.int32)
    for number, (begin, end) in enumerate(documents, 1):
        ids[:, begin:end] = number
    weight, ids = (weight * (ids > 0)[:, :, None, None], jnp.asarray(ids)) if documents else (weight, None)
    tpu = jax.sharding.AbstractDevice("TPU7x", 1, "tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), abstract_device=tpu)
    with jax.sharding.use_abstract_mesh(mesh):
        found = with_gradients(kda_tokamax.chunked, arrays, ids, weight)
    exact = with_gradients(recurrent, arrays, ids, weight)
    for ours, theirs in zip(found, exact, strict=True):
        at = np.ones((1, TOKENS), bool) if ids is None else np.asarray(ids) > 0
        assert np.linalg.norm((ours - theirs)[at]) <= 1e-4 * np.linalg.norm(theirs[at])


@pytest.mark.skipif(HERE, reason="tokamax is installed")
def test_without_the_library_one_line_says_what_to_type():
    with pytest.raises(
        UserError, match=r"the library tokamax is missing or too old here .*type: pip install 'tokamax>=0\.0\.17'"
    ):
        kda_tokamax.library()
