"""Weights of a file are numbers: with NaN or infinity among them every loss is NaN, whatever the learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from podwright.recipe import hf_weights


def require(weights: Mapping[str, Tensor], source: Path) -> None:
    """UserError naming the first weight with a value that is not finite."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise hf_weights.not_finite(name, source)
