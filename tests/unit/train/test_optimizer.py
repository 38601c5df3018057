"""AdamW with clipping against PyTorch's, its learning rate against transformers' schedules, and where its state lies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from podwright.models import param
from podwright.models.param import Param
from podwright.recipe import schema
from podwright.train import optimizer
from podwright.train.mesh import make_mesh

LEAVES = {
    "embed": Param((6, 8), ("vocab", "embed")),
    "layers": {
        "up": Param((2, 8, 4), ("layers", "embed", "ffn"), matrix=(1, 1)),
        "norm": Param((2, 8), ("layers", None), "ones"),
    },
}


def theirs(schedule, peak, steps, *counts, **more):
    """The learning rate before each of `steps` steps and after the last, of a schedule of transformers'."""
    tuned = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    made, values = schedule(tuned, *counts, **more), []
    for _ in range(steps + 1):
        values.append(made.get_last_lr()[0])
        tuned.step()
        made.step()
    return values


@pytest.mark.parametrize(("ratio", "warmup"), [(0.1, 2), (0.25, 5), (0.01, 1), (0.5, 10)])
def test_the_learning_rate_is_that_of_transformers(ratio, warmup):
    """Cosine to zero; a warm-up takes at least one step, and the first step has rate 0."""
    rate = optimizer.schedule(3e-4, ratio, 20)
    right = theirs(transformers.get_cosine_schedule_with_warmup, 3e-4, 20, warmup, 20)
    np.testing.assert_allclose([rate(n) for n in range(21)], right, rtol=1e-5, atol=1e-11)


@pytest.mark.parametrize(("ratio", "warmup"), [(0.2, 4), (0.0, 0)])
def test_the_learning_rate_ends_at_its_share_of_the_peak(ratio, warmup):
    rate = optimizer.schedule(2e-3, ratio, 20, 0.1)
    min_lr = transformers.get_cosine_with_min_lr_schedule_with_warmup
    right = theirs(min_lr, 2e-3, 20, warmup, 20, min_lr_rate=0.1)
    np.testing.assert_allclose([rate(n) for n in range(21)], right, rtol=1e-5, atol=1e-11)
    assert rate(25) == rate(20) == pytest.approx(2e-4)


def test_a_warm_up_as_long_as_the_run_is_one_all_the_same():
    rate = optimizer.schedule(1.0, 1.0, 4)
    assert [float(rate(n)) for n in range(5)] == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("most", [0.5, 1e9], ids=["clipped", "free"])
def test_updates_are_those_of_pytorch(most):
    """Clipped by their norm together, with decay on all but norms, both decay rates and the bias corrections."""
    rng = np.random.default_rng(0)

    def drawn():
        return param.tree_map(lambda p: rng.normal(size=p.shape).astype(np.float32), LEAVES)

    params, grads = drawn(), [drawn() for _ in range(5)]
    rate = optimizer.schedule(1e-2, 0.0, 8)
    tx = optimizer.adamw(LEAVES, rate, b1=0.8, b2=0.95, weight_decay=0.3, max_grad_norm=most)
    ours, state = jax.tree.map(jnp.asarray, params), tx.init(params)
    tensors = [torch.tensor(x, requires_grad=True) for x in jax.tree.leaves(params)]
    decays = jax.tree.leaves(param.tree_map(lambda p: p.decays, LEAVES))
    groups = [
        {"params": [t for t, d in zip(tensors, decays, strict=True) if d is on], "weight_decay": 0.3 if on else 0.0}
        for on in (True, False)
    ]
    tuned = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.95))
    schedule = transformers.get_cosine_schedule_with_warmup(tuned, 0, 8)
    assert decays == [True, False, True], "embed, norm, up"
    for g in grads:
        for t, x in zip(tensors, jax.tree.leaves(g), strict=True):
            t.grad = torch.tensor(x)
        norm = torch.nn.utils.clip_grad_norm_(tensors, most)
        tuned.step()
        schedule.step()
        ours, state, measured = optimizer.apply(tx, g, state, ours)
        assert float(measured) == pytest.approx(float(norm), rel=1e-5) and measured.dtype == jnp.float32
    for a, t in zip(jax.tree.leaves(ours), tensors, strict=True):
        np.testing.assert_allclose(a, t.detach(), rtol=2e-5, atol=2e-6)


def test_moments_lie_where_their_weights_do():
    mesh = make_mesh(schema.GrpoMesh(data=1, fsdp=4, tensor=2), jax.devices()[:8])
    params = param.abstract(LEAVES, mesh)
    tx = optimizer.adamw(LEAVES, lambda n: 1.0, b1=0.9, b2=0.9, weight_decay=0.1, max_grad_norm=1.0)
    state = optimizer.abstract_state(tx, params, mesh)
    moments = [x for x in jax.tree.leaves(state) if x.shape]
    weights = jax.tree.leaves(params)
    assert len(moments) == 2 * len(weights)
    for n, moment in enumerate(moments):
        assert (moment.shape, moment.sharding) == (weights[n % 3].shape, weights[n % 3].sharding)
    assert all(x.sharding.is_fully_replicated for x in jax.tree.leaves(state) if not x.shape)
    assert not weights[0].sharding.is_fully_replicated
