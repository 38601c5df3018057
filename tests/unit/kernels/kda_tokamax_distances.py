"""How far tokamax's kernel for KDA is from the definition, its program interpreted on a CPU; run by a Python that has the library (3.12 or newer).

The last line is JSON: for each case the relative distances of the output and of the gradients of q, k, v, g and beta.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

from bench.kda_definition import recurrent
from podwright.kernels import kda_tokamax

TOKENS, HEADS, DIM = 128, 1, 32
SHIFTS = {"mild": -4, "strong": 6}  # decays around -0.1, and near -5
DOCUMENTS = {
    "one": (),
    "padded": ((0, 37), (48, 64), (64, 70), (80, 128)),
    "of one token": ((0, 1), (16, 17), (32, 33), (48, 128)),
}


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


def distances(shift, documents):
    arrays, weight = inputs(shift)
    ids = np.zeros((1, TOKENS), np.int32)
    for number, (begin, end) in enumerate(documents, 1):
        ids[:, begin:end] = number
    weight, ids = (weight * (ids > 0)[:, :, None, None], jnp.asarray(ids)) if documents else (weight, None)
    tpu = jax.sharding.AbstractDevice("TPU7x", 1, "tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), abstract_device=tpu)
    with jax.sharding.use_abstract_mesh(mesh):
        kernel = with_gradients(kda_tokamax.chunked, arrays, ids, weight)
    exact = with_gradients(recurrent, arrays, ids, weight)
    at = np.ones((1, TOKENS), bool) if ids is None else np.asarray(ids) > 0
    return [
        float(np.linalg.norm((ours - theirs)[at]) / np.linalg.norm(theirs[at]))
        for ours, theirs in zip(kernel, exact, strict=True)
    ]


if __name__ == "__main__":
    print(json.dumps({f"{s}, {d}": distances(SHIFTS[s], DOCUMENTS[d]) for s in SHIFTS for d in DOCUMENTS}))
