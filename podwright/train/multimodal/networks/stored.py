"""Weights by name in what torch.save or safetensors wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podwright.errors import UserError
from podwright.train import saved_states


def read(path: Path, key: str, fix: str) -> dict[str, Tensor]:
    """The tensors of a state dict, which may lie under `model` or `state_dict`; UserError, with the recipe's `key`, of another file.

    Nothing of the file is executed.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:  # whatever a torn file makes of the reader
        raise UserError(f"{key}={path} cannot be read as weights ({saved_states.why(e, path)})", fix) from e
    inner = content.get("model", content.get("state_dict", content)) if isinstance(content, dict) else None
    if not isinstance(inner, dict):
        raise UserError(f"{key}={path} holds no weights by name", fix)
    return {name: value for name, value in inner.items() if isinstance(name, str) and isinstance(value, Tensor)}


def misshapen(key: str, path: str | Path, name: str, stored: Tensor, wanted: Tensor, fix: str) -> UserError:
    """Of a weight that has another shape than the network asks for."""
    return UserError(f"{key}={path}: {name} is {list(stored.shape)} and not {list(wanted.shape)}", fix)
