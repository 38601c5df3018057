"""Chunked log-probabilities against the full logits, values and gradients, on one device and on eight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.models import logits
from podwright.recipe import schema
from podwright.train.mesh import make_mesh


def full(hidden, head, targets, temperature):
    z = hidden @ head.T / temperature
    log_p = jax.nn.log_softmax(z)
    entropy = -(jnp.exp(log_p) * log_p).sum(-1)
    return jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0], entropy


@pytest.mark.brief(6)
@pytest.mark.parametrize("mesh_shape", [(1, 1, 1), (1, 8, 1), (1, 4, 2), (2, 2, 2)])
@pytest.mark.parametrize("chunk", [3, 16, 10_000])
def test_equals_full_logits(mesh_shape, chunk):
    data, fsdp, tensor = mesh_shape
    mesh = make_mesh(schema.GrpoMesh(data=data, fsdp=fsdp, tensor=tensor), jax.devices()[: data * fsdp * tensor])
    rng = np.random.default_rng(0)
    hidden, head = rng.normal(size=(8, 7, 16)).astype(np.float32), rng.normal(size=(64, 16)).astype(np.float32)
    targets, weight = rng.integers(0, 64, (8, 7)), rng.normal(size=(8, 7)).astype(np.float32)
    setting = logits.SamplingSetting(mesh, jnp.float32, chunk, 0.7)

    def loss(f):
        return lambda h, w: (f(h, w)[0] * weight).sum()

    ours = jax.jit(lambda h, w: logits.token_logprobs(setting, h, w, targets))
    for got, expected in zip(ours(hidden, head), full(hidden, head, targets, 0.7), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5)
    got = jax.jit(jax.grad(loss(ours), (0, 1)))(hidden, head)
    expected = jax.grad(loss(lambda h, w: full(h, w, targets, 0.7)), (0, 1))(hidden, head)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-5)


def test_logits_of_the_whole_batch_never_exist():
    mesh = make_mesh(schema.GrpoMesh(), jax.devices()[:1])
    setting = logits.SamplingSetting(mesh, jnp.float32, 16, 1.0)
    hidden, head, targets = jnp.ones((4, 256, 8)), jnp.ones((512, 8)), jnp.zeros((4, 256), int)
    gradient = jax.grad(lambda h, w: logits.token_logprobs(setting, h, w, targets)[0].sum(), (0, 1))
    temporary = jax.jit(gradient).lower(hidden, head).compile().memory_analysis().temp_size_in_bytes
    assert temporary < 4 * 256 * 512 * 4 / 4
