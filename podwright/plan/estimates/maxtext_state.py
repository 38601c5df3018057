"""The part of a MaxText run's memory that is known in closed form: weights and optimizer state, between steps.

Activations and temporaries are the compiler's; so a state that is too large is refused, and one that fits says nothing of the rest.
"""

from __future__ import annotations

from podwright.accelerators import GIB
from podwright.errors import UserError
from podwright.plan.checks import maxtext_mesh
from podwright.plan.findings import Finding
from podwright.recipe.maxtext import architectures, flops
from podwright.recipe.maxtext.arguments import flag
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.slices import Slice

_SPLIT = ("fsdp", "fsdp_transpose", "context", "context_usp_ulysses", "expert", "tensor", "tensor_sequence", "pipeline")
"""axes over which weights and optimizer state are split; over the others they are copies"""
_WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2}
_MOMENTS = {"adamw": 2, "adam_pax": 2, "muon": 1, "sgd": 0}
"""numbers that an optimizer keeps for each weight; muon: of matrices"""


def state_bytes(recipe: MaxTextRecipe, where: Slice) -> float | None:
    """Per device; None where it is not known. Embeddings and norms count as split like the rest, which most of them are."""
    arguments = recipe.arguments
    weight = _WIDTH.get(arguments.get("weight_dtype", "float32"))
    moments = _MOMENTS.get(arguments.get("opt_type", "adamw"))
    if weight is None or moments is None or flag(arguments, "optimizer_memory_host_offload"):
        return None
    first = _WIDTH.get(arguments.get("mu_dtype", "") or "float32", 4)
    each = weight + (first if moments else 0) + 4 * max(moments - 1, 0)
    total = flops.matrices(architectures.find(arguments)).total
    return total * each / maxtext_mesh.resolved(arguments, where).size(*_SPLIT)


def check(recipe: MaxTextRecipe, where: Slice) -> list[Finding]:
    """For a mesh that comes out."""
    try:
        state = state_bytes(recipe, where)
    except UserError:  # of the model, which has a finding of its own
        return []
    if state is None:
        return []
    limit = where.accelerator.hbm_bytes
    message = f"weights and optimizer state take {state / GIB:.2f} of {limit / GIB:.2f} GiB of a device"
    if state < limit:
        return [Finding("memory", "info", f"{message}; activations are not estimated in closed form")]
    fix = "split them over more devices by arguments.ici_fsdp_parallelism, or take a larger slice"
    return [Finding("memory", "error", message, fix, "too-large")]
