"""What Phase 1 starts from: the features of its lines by modality. What cannot be paired is left out and counted."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podwright.data import pairs
from podwright.data.line_files import Record
from podwright.data.pairs import alone
from podwright.errors import UserError
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.rundir import RunDir
from podwright.train import data_record
from podwright.train.multimodal.data import features, inputs
from podwright.train.multimodal.data.features import Sight
from podwright.train.multimodal.networks import encoders
from podwright.train.multimodal.networks.text_encoder import text_encoder
from podwright.train.multimodal.processes.world import World


@dataclasses.dataclass(frozen=True)
class PairedLines:
    features: dict[str, Tensor]
    """[N, D] of each modality; zeros where it is missing"""
    present: dict[str, Tensor]
    """[N] of bool"""

    def __len__(self) -> int:
        return len(next(iter(self.present.values())))

    def at(self, rows: Sequence[int] | Tensor) -> PairedLines:
        chosen = torch.as_tensor(rows)
        return self._changed(lambda x: x[chosen])

    def of(self, modalities: Sequence[str]) -> PairedLines:
        features = {modality: self.features[modality] for modality in modalities}
        return PairedLines(features, {modality: self.present[modality] for modality in modalities})

    def to(self, device: torch.device) -> PairedLines:
        pin = device.type == "cuda"
        return self._changed(lambda x: (x.pin_memory() if pin else x).to(device, non_blocking=True))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> PairedLines:
        features = {modality: change(values) for modality, values in self.features.items()}
        return PairedLines(features, {modality: change(present) for modality, present in self.present.items()})


@dataclasses.dataclass(frozen=True)
class PairedInputs:
    training: PairedLines
    held_out: PairedLines
    dims: dict[str, int]
    """features of each modality that two training lines or more pair with another"""
    num_alone: int
    """lines left out because they have one modality"""
    rows: Record
    """what the next attempt compares its lines with"""
    notices: list[str]


def load(run: RunDir, recipe: ContrastiveRecipe, world: World) -> PairedInputs:
    reader = pairs.reader(recipe.data.root, recipe.data.columns)
    source, all_parts, read, before = inputs.lines_of(run, recipe, reader, world)
    parts = [[line for line in part if not alone(line.contents)] for part in all_parts]
    num_alone = sum(map(len, all_parts)) - sum(map(len, parts))
    seen = sight(recipe, pairs.modalities(itertools.chain(*parts)))
    lines = [*parts[0], *parts[1]]
    folder = run.path.parent / features.FEATURES
    contents = [line.contents for line in lines]
    values, present, faults = features.of_lines(contents, seen, recipe.data.num_workers, world, folder)
    inputs.require_decoded(inputs.faults_of(lines, faults), source, recipe.data)
    none = torch.zeros(len(lines), dtype=torch.bool)  # of data without any modality
    several = torch.stack([*present.values(), none]).sum(0) > 1
    num_alone += int((~several).sum())
    kept = several.nonzero()[:, 0]
    kept_of_parts = kept[kept < len(parts[0])], kept[kept >= len(parts[0])]
    used = [[contents[i] for i in rows] for rows in kept_of_parts]
    built = [PairedLines(values, present).at(rows) for rows in kept_of_parts]
    dims = {m: dim for m, dim in seen.dims.items() if _paired(built[0], m) > 1}
    if not dims or len(built[1]) < 2:
        what = f"data.source={recipe.data.source} has too few lines with the same two modalities to train on or to hold out"
        raise UserError(what, "give more such lines, and type data.num_test=2 or more", "too-few-pairs")
    digests = (data_record.rows(json.dumps(features.marks(line), sort_keys=True) for line in part) for part in used)
    rows, notices = data_record.check(run, recipe.data.source, before, read, *digests)
    return PairedInputs(built[0].of(list(dims)), built[1].of(list(dims)), dims, num_alone, rows, notices)


def sight(recipe: ContrastiveRecipe, modalities: Sequence[str]) -> Sight:
    """The encoders of these modalities."""
    make = {
        "text": lambda: text_encoder(recipe.text_encoder),
        "image": lambda: encoders.image_encoder(recipe.encoders),
        "audio": lambda: encoders.audio_encoder(recipe.encoders),
    }
    built = {modality: make[modality]() for modality in modalities}
    about = recipe.encoders.model_dump_json() + recipe.text_encoder.model_dump_json()
    return Sight(built, None, encoders.fingerprint(*built.values(), about=about))


def _paired(lines: PairedLines, modality: str) -> int:
    """Lines that have it, by the other modality with which most do."""
    own = lines.present[modality]
    others = [present for name, present in lines.present.items() if name != modality]
    return max((int((own & other).sum()) for other in others), default=0)
