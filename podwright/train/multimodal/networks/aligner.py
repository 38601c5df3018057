"""Phase 1's aligner: features of any modality into the one space that all share. Reads and writes aligner.pt as PurrSight does."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from podwright.errors import UserError, expanded
from podwright.train.multimodal.networks import stored

MODALITIES = ("text", "image", "audio")
PREFIX = "projection_heads."
_NORM_EPS = 1e-6
_LOG_SCALE = {"text": 1.0, "image": 2.66, "audio": 2.66}


class _ProjectionHead(nn.Module):
    def __init__(self, inner: int, dim: int):
        super().__init__()
        self.ln = nn.LayerNorm(inner, eps=_NORM_EPS)
        self.fc = nn.Linear(inner, dim, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        projected: Tensor = self.fc(self.ln(features))
        return projected


class _Scale(nn.Module):
    def __init__(self, log_scale: float):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(log_scale))


class Aligner(nn.Module):
    def __init__(self, dims: Mapping[str, int], dim: int, scaled: bool = False):
        """`dims`: features of each modality that it has a head for. `scaled`: what `forward` gives has length exp(logit_scale)."""
        super().__init__()
        self.dims, self.dim, self.scaled = dict(dims), dim, scaled
        self.projection_heads = nn.ModuleDict(
            {f"{name}_head": _ProjectionHead(inner, dim) for name, inner in dims.items()}
        )
        self.postprocessors = nn.ModuleDict({f"{name}_scaling": _Scale(_LOG_SCALE[name]) for name in dims})

    def forward(self, modality: str, features: Tensor) -> Tensor:
        """What Phase 2's projector gets: [batch, dim] of length 1; of length exp(logit_scale) where it is `scaled`."""
        unit = self.unit(modality, features)
        return unit * self.scale(modality) if self.scaled else unit

    def unit(self, modality: str, features: Tensor) -> Tensor:
        """[batch, dim] of length 1."""
        return F.normalize(self.projection_heads[f"{modality}_head"](features), dim=-1)

    def scale(self, modality: str) -> Tensor:
        """The factor exp(logit_scale) of similarities in Phase 1's loss."""
        value: Tensor = self.postprocessors[f"{modality}_scaling"].logit_scale.exp()  # type: ignore[operator]
        return value


def info_nce(
    units: Mapping[str, Tensor], scales: Mapping[str, Tensor], present: Mapping[str, Tensor], own: Tensor | None = None
) -> Tensor:
    """The symmetric InfoNCE loss: a line's vector of one modality is scored against the vectors of another of all lines.

    `units` [B, D] of length 1 and `present` [B] of each modality. The mean over the pairs of modalities that two lines or more have, and
    over these lines, of both directions; similarities are multiplied by the mean of the two scales. `own` [B]: the lines whose share is
    asked for; shares of all lines add up to the whole. 0 where no pair has two lines.
    """
    losses = []
    names = list(units)
    for i, modality in enumerate(names):
        for other in names[i + 1 :]:
            both = present[modality] & present[other]
            count = int(both.sum())
            if count < 2:  # contrastive loss needs two
                continue
            mine = both if own is None else both & own
            right = (both.cumsum(0) - 1)[mine]
            scale = (scales[modality] + scales[other]) / 2
            there = scale * units[modality][mine] @ units[other][both].T
            back = scale * units[other][mine] @ units[modality][both].T
            losses.append(
                (F.cross_entropy(there, right, reduction="sum") + F.cross_entropy(back, right, reduction="sum"))
                / (2 * count)
            )
    if not losses:
        return torch.stack([x.sum() for x in units.values()]).sum() * 0.0
    return torch.stack(losses).mean()


def load(
    source: str,
    dims: Mapping[str, int],
    dim: int,
    needed: Collection[str] = MODALITIES,
    seed: int = 0,
    scaled: bool = False,
) -> Aligner:
    """An aligner with a head for each modality of `dims`; those that are not `needed` may be missing in the file, and are random then.

    UserError for a file that is not the aligner of these encoders.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = Aligner(dims, dim, scaled)
    if source == "random":
        return built
    weights = _read(source)
    wanted = built.state_dict()
    random = {modality for modality in dims if modality not in needed and not has_head(modality, weights)}
    for name, value in wanted.items():
        held = weights.get(_scale_name(name, weights))
        if held is None:
            if name.startswith(PREFIX) and name.removeprefix(PREFIX).partition("_")[0] not in random:
                raise stored.misfit(
                    "aligner.source", source, name, None, value, "give the aligner.pt of these modalities"
                )
            continue
        one_number = value.ndim == 0 and held.shape == (1,)  # as some files have a scale
        if held.shape != value.shape and not one_number:
            fix = "change the encoders to those it was trained with"
            if held.ndim and name.endswith("fc.weight") and len(held) != dim:
                fix = f"type aligner.dim={len(held)}"
            raise stored.misfit("aligner.source", source, name, held, value, fix)
    built.load_state_dict({name: weights.get(_scale_name(name, weights), value) for name, value in wanted.items()})
    stored.require_finite(built.state_dict(), expanded(source))
    return built


def has_head(modality: str, weights: Mapping[str, Tensor]) -> bool:
    return any(name.startswith(f"{PREFIX}{modality}_head.") for name in weights)


def sizes(source: str) -> dict[str, int]:
    """Features of each modality that the file `source` has a head for."""
    weights = _read(source)
    names = {modality: f"{PREFIX}{modality}_head.fc.weight" for modality in MODALITIES}
    held = {modality: weights[name] for modality, name in names.items() if name in weights}
    return {modality: value.shape[-1] for modality, value in held.items()}


def _read(source: str) -> dict[str, Tensor]:
    """The weights of an aligner.pt by name."""
    path = expanded(source)
    weights = stored.read(
        "aligner.source", path, "give an aligner.pt, or aligner.source=random to see whether all works"
    )
    if not any(name.startswith(PREFIX) for name in weights):
        raise UserError(
            f"aligner.source={path} has no weights under {PREFIX}", "give the aligner.pt of Phase 1", "not-an-aligner"
        )
    return weights


def _scale_name(name: str, weights: Mapping[str, Tensor]) -> str:
    """A scale's name in the file, where it may stand elsewhere: postprocessors.image.1.logit_scale."""
    if name in weights or not name.startswith("postprocessors."):
        return name
    modality = name.removeprefix("postprocessors.").partition("_")[0]
    for key in weights:
        if key.startswith(f"postprocessors.{modality}") and key.endswith("logit_scale"):
            return key
    return name
