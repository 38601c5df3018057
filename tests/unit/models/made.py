"""Random weights with random adapters, neither of which is near zero."""

import jax

from podwright.models import lora, param, qwen3

# adapted weights of a layer, and how many of their dims are inputs
NUM_INPUT_DIMS = {"q": 1, "k": 1, "v": 1, "o": 2, "gate": 1, "up": 1, "down": 1}


def policy(dims, mesh, rank, scale=10.0):
    weights = qwen3.declare(dims)
    base = param.initialize(weights, mesh, 0)
    base = jax.tree_util.tree_map_with_path(lambda path, x: x if "norm" in str(path[-1]) else x * scale, base)
    declared = jax.tree.map(
        lambda p: param.Param(p.shape, p.axes, scale=0.3), lora.declare(weights, rank), is_leaf=param.is_param
    )
    return lora.Policy(param.initialize(declared, mesh, 1), base)
