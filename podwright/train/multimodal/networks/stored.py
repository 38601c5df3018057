"""Weights in files that PyTorch or safetensors has written: what is read of them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podwright.errors import UserError
from podwright.recipe import hf_weights
from podwright.recipe.paths import require_weights
from podwright.train import saved_states


def read(key: str, path: Path, fix: str) -> dict[str, Tensor]:
    """The tensors of a state dict, which may lie under `model` or `state_dict`; UserError, with the recipe's `key`, of another file.

    Nothing of the file is executed.
    """
    require_weights(key, str(path), path, fix)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        named = content.get("model", content.get("state_dict", content)).items()
    except Exception as e:  # whatever a torn file, or another content, makes of the reader
        raise UserError(
            f"{key}={path} cannot be read as weights by name ({saved_states.why(e, path)})", fix, "unreadable-weights"
        ) from e
    return {name: value for name, value in named if isinstance(name, str) and isinstance(value, Tensor)}


def misfit(key: str, path: str | Path, name: str, held: Tensor | None, wanted: Tensor, fix: str) -> UserError:
    """Of a weight that is not there, or has another shape than the network asks for."""
    if held is None:
        return UserError(f"{key}={path} has no {name}", fix, "weights-do-not-fit")
    return UserError(
        f"{key}={path}: {name} is {list(held.shape)} and not {list(wanted.shape)}", fix, "weights-do-not-fit"
    )


def require_finite(weights: Mapping[str, Tensor], source: Path) -> None:
    """UserError naming the first weight with a value that is not finite in float32: every loss would be NaN."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise hf_weights.not_finite(name, source)
