"""Phase 1's aligner: features of any modality into the one space that all share. Reads and writes aligner.pt as it has always been."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from podwright.errors import UserError

MODALITIES = ("text", "image", "audio")
PREFIX = "projection_heads."
_NORM_EPS = 1e-6
_LOG_SCALE = {"text": 1.0, "image": 2.66, "audio": 2.66}


class _Head(nn.Module):
    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.ln = nn.LayerNorm(inner, eps=_NORM_EPS)
        self.fc = nn.Linear(inner, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.fc(self.ln(features))
        return found


class _Scale(nn.Module):
    def __init__(self, log_scale: float):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(log_scale))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.logit_scale.exp()


class Aligner(nn.Module):
    def __init__(self, dims: Mapping[str, int], dim: int):
        """`dims`: features of each modality that it has a head for."""
        super().__init__()
        self.dims, self.dim = dict(dims), dim
        self.projection_heads = nn.ModuleDict({f"{name}_head": _Head(inner, dim) for name, inner in dims.items()})
        self.postprocessors = nn.ModuleDict({name: _Scale(_LOG_SCALE[name]) for name in dims})

    def forward(self, modality: str, features: Tensor) -> Tensor:
        """[batch, dim] of length exp(logit_scale)."""
        found: Tensor = self.postprocessors[modality](F.normalize(self.projection_heads[f"{modality}_head"](features), dim=-1))
        return found


def info_nce(aligned: Mapping[str, Tensor], present: Mapping[str, Tensor]) -> Tensor:
    """The mean of the symmetric cross-entropies of every pair of modalities, over the lines that have both."""
    losses = []
    names = list(aligned)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            both = present[one] & present[other]
            if int(both.sum()) < 2:  # one line alone has nothing to be told from
                continue
            logits = aligned[one][both] @ F.normalize(aligned[other][both], dim=-1).T
            back = aligned[other][both] @ F.normalize(aligned[one][both], dim=-1).T
            right = torch.arange(len(logits), device=logits.device)
            losses.append((F.cross_entropy(logits, right) + F.cross_entropy(back, right)) / 2)
    if not losses:
        return sum(x.sum() for x in aligned.values()) * 0.0  # type: ignore[return-value]
    return torch.stack(losses).mean()


def load(source: str, dims: Mapping[str, int], dim: int) -> Aligner:
    """UserError for a file that is not the aligner of these encoders."""
    if source == "random":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Aligner(dims, dim)
    made = Aligner(dims, dim)
    path = Path(source).expanduser()
    found = _read(path)
    wanted = made.state_dict()
    for name, value in wanted.items():
        if name not in found and name.startswith(PREFIX):
            raise UserError(f"aligner.source={path} has no {name}", "give the aligner.pt of these modalities")
        if name in found and found[name].shape != value.shape:
            said = f"aligner.source={path}: {name} is {list(found[name].shape)} and not {list(value.shape)}"
            raise UserError(said, "change aligner.dim or the encoders to those it was trained with")
    made.load_state_dict({name: found.get(_scale_name(name, found), value) for name, value in wanted.items()})
    return made


def sizes(source: str) -> dict[str, int]:
    """Features of each modality that the file `source` has a head for."""
    found = _read(Path(source).expanduser())
    names = {modality: f"{PREFIX}{modality}_head.fc.weight" for modality in MODALITIES}
    return {modality: found[name].shape[1] for modality, name in names.items() if name in found}


def _scale_name(name: str, found: Mapping[str, Tensor]) -> str:
    """A scale's name in the file, which may stand deeper there: postprocessors.image.1.logit_scale."""
    modality, _, last = name.removeprefix("postprocessors.").partition(".")
    if name in found or not name.startswith("postprocessors."):
        return name
    return next((k for k in found if k.startswith(f"postprocessors.{modality}") and k.endswith(last)), name)


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"aligner.source={path} is not there", "give an aligner.pt, or aligner.source=random to see whether all works")
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        raise UserError(f"aligner.source={path} cannot be read ({type(e).__name__})", "give an aligner.pt") from e
    found = found.get("state_dict", found) if isinstance(found, dict) else {}
    if not any(name.startswith(PREFIX) for name in found):
        raise UserError(f"aligner.source={path} has no weights under {PREFIX}", "give the aligner.pt of Phase 1")
    return dict(found)
