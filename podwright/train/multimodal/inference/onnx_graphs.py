"""Aligner and projector as ONNX: a graph for each head and one for the projector, held against PyTorch when they are written."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path

import torch
from torch import Tensor, nn

from podwright import extras
from podwright.errors import UserError
from podwright.train.multimodal.networks.aligner import Aligner
from podwright.train.multimodal.networks.model import MODALITIES, Projector

_NEEDED = ("onnx", "onnxscript", "onnxruntime")
_TOLERANCE = 1e-3  # of the largest value, in float32


class _OnnxHead(nn.Module):
    def __init__(self, heads: Aligner, modality: str):
        super().__init__()
        self.heads, self.modality = heads, modality

    def forward(self, features: Tensor) -> Tensor:
        aligned: Tensor = self.heads(self.modality, features)
        return aligned


def check() -> None:
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        raise UserError(
            f"--onnx needs {', '.join(absent)}, not installed here", extras.install("onnx"), "missing-package"
        )


def write(folder: Path, heads: Aligner, projector: Projector) -> dict[str, float]:
    """Name of a graph -> how far onnxruntime's numbers are from PyTorch's, as a share of the largest.

    aligner-MODALITY.onnx: features [batch, D of its encoder] -> aligned [batch, dim].
    projector.onnx: features [batch, modalities, dim], present [batch, modalities] of bool -> soft_tokens [batch, tokens, hidden].
    """
    folder.mkdir()
    differences = {}
    for name in heads.dims:
        head = _OnnxHead(heads, name).eval()
        differences[f"aligner-{name}"] = _graph(
            folder / f"aligner-{name}.onnx", head, {"features": torch.randn(2, heads.dims[name])}, "aligned"
        )
    given = {
        "features": torch.randn(2, len(MODALITIES), heads.dim),
        "present": torch.tensor([[True] * len(MODALITIES), [False, True]]),
    }
    differences["projector"] = _graph(folder / "projector.onnx", projector.eval(), given, "soft_tokens")
    return differences


def _graph(path: Path, module: nn.Module, given: dict[str, Tensor], result: str) -> float:
    import onnxruntime

    batch = torch.export.Dim("batch")
    with contextlib.redirect_stdout(io.StringIO()):  # stdout is the document's
        torch.onnx.export(
            module,
            tuple(given.values()),
            path,
            input_names=list(given),
            output_names=[result],
            dynamic_shapes={name: {0: batch} for name in given},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    thrice = {name: torch.cat([x, x, x]) for name, x in given.items()}
    with torch.no_grad():
        wanted = module(**thrice)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (got,) = session.run([result], {name: x.numpy() for name, x in thrice.items()})
    difference = float((torch.from_numpy(got) - wanted).abs().max() / wanted.abs().max())
    assert difference < _TOLERANCE, f"{path.name} computes something else: {difference}"
    return difference
