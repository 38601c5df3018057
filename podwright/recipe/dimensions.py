"""The dimensions of every model that pretraining knows, by name: those of hybrid.py and the dense ones of models.py."""

from __future__ import annotations

from typing import Literal

from podwright.recipe import hybrid, models
from podwright.recipe.hybrid import HybridDims
from podwright.recipe.models import Qwen3Dims

Dims = HybridDims | Qwen3Dims


def find(
    name: str, gate: Literal["", "softplus", "bounded"] = "", kernel: Literal["chunked", "tokamax"] = "chunked"
) -> Dims:
    """The row `name` of either table; for the rest see hybrid.find. UserError for another name, and for settings of KDA without KDA."""
    if name in hybrid.MODELS:
        return hybrid.find(name, gate, kernel)
    if name not in models.MODELS:
        raise models.unknown(name, [*hybrid.MODELS, *models.MODELS])
    if gate or kernel != "chunked":
        raise hybrid.no_kda(name, gate, kernel)
    return models.MODELS[name]
