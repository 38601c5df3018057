"""Weights of a file are numbers: with NaN or infinity among them every loss is NaN, whatever the learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from podwright.recipe import hf_weights


def require(weights: Mapping[str, Tensor], source: Path, file: Mapping[str, Tensor] | None = None) -> None:
    """UserError naming the first weight with a value that is not finite. `file`: the weights before conversion to float32;
    None of a Hugging Face directory `source`."""
    for name, value in weights.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raw = _in_float64(name, source) if file is None else file.get(name)
            if raw is not None and raw.dtype == torch.float64 and bool(raw.isfinite().all()):
                raise hf_weights.beyond_float32(name, source)
            raise hf_weights.not_finite(name, source)


def _in_float64(name: str, directory: Path) -> Tensor | None:
    """Of a weight that the directory holds in float64."""
    tensor = hf_weights.stored(directory).get(name) if hf_weights.present(directory) else None
    if tensor is None or tensor.dtype != "F64":
        return None
    return torch.from_numpy(np.fromfile(tensor.file, "<f8", tensor.num_bytes // 8, offset=tensor.start))
