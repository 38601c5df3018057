"""What Phase 1 starts from: the features of its lines by modality. What cannot be paired is left out and counted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from podwright.data import pairs, synthetic_pairs
from podwright.data.line_files import Record
from podwright.data.lines import split
from podwright.data.pairs import Pair, alone
from podwright.errors import UserError, counted, expanded
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.rundir import RunDir
from podwright.train import data_record
from podwright.train.multimodal.data import features, inputs
from podwright.train.multimodal.data.features import Sight
from podwright.train.multimodal.networks import encoders
from podwright.train.multimodal.networks.aligner import MODALITIES
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
        return PairedLines(
            {m: x[chosen] for m, x in self.features.items()}, {m: x[chosen] for m, x in self.present.items()}
        )

    def of(self, modalities: Sequence[str]) -> PairedLines:
        return PairedLines({m: self.features[m] for m in modalities}, {m: self.present[m] for m in modalities})

    def to(self, device: torch.device) -> PairedLines:
        pin = device.type == "cuda"

        def moved(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {m: (x.pin_memory() if pin else x).to(device, non_blocking=True) for m, x in tensors.items()}

        return PairedLines(moved(self.features), moved(self.present))


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


def load(
    run: RunDir, recipe: ContrastiveRecipe, world: World, say: Callable[[str], None] = features.silent
) -> PairedInputs:
    """`say`: takes a notice for the user."""
    if recipe.data.source == "drawn":
        source = run.path / "data"
        world.on_each_disk(
            lambda: synthetic_pairs.write(source, recipe.data.num_train, recipe.data.num_test, recipe.seed)
        )
    else:
        source = expanded(recipe.data.source)
    before = world.from_first(lambda: data_record.written(run))
    *all_parts, read = split(source, recipe.data, pairs.reader(recipe.data.root), before.read)
    inputs.same_everywhere(source, recipe.data.source, world)
    parts = [[line for line in part if not alone(line.contents)] for part in all_parts]
    num_alone = sum(map(len, all_parts)) - sum(map(len, parts))
    seen = sight(recipe, named([line for part in parts for line in part]), say)
    wrong: list[Record] = []
    built, used = [], []
    for lines in parts:
        values, present, faults = features.of_lines(
            [line.contents for line in lines], seen, recipe.data.num_workers, world, run.path.parent / features.FEATURES
        )
        wrong += [{"line": lines[i].line, "field": None, "message": message} for i, message in sorted(faults.items())]
        several = torch.stack([*present.values(), torch.zeros(len(lines), dtype=torch.bool)]).sum(0) > 1
        num_alone += int((~several).sum())
        used.append([lines[i].contents for i in several.nonzero()[:, 0]])
        built.append(PairedLines(values, present).at(several.nonzero()[:, 0]))
    inputs.require_decoded(wrong, source, recipe.data)
    dims = {m: dim for m, dim in seen.dims.items() if _paired(built[0], m) > 1}
    if not dims:
        raise UserError(
            f"data.source={recipe.data.source} has no two lines with the same two modalities",
            "give lines that have two of them",
        )
    if len(built[1]) < 2:
        raise UserError(
            f"data.source={recipe.data.source} holds out {counted(len(built[1]), 'line')} with two modalities, and retrieval needs 2",
            "give val.jsonl more, or leave it away and type data.num_test=2 or more",
        )
    digests = (data_record.rows(json.dumps(features.marks(line), sort_keys=True) for line in part) for part in used)
    rows, notices = data_record.check(run, recipe.data.source, before, read, *digests)
    for notice in notices:
        say(notice)
    return PairedInputs(built[0].of(list(dims)), built[1].of(list(dims)), dims, num_alone, rows)


def sight(recipe: ContrastiveRecipe, modalities: Sequence[str], say: Callable[[str], None] = features.silent) -> Sight:
    """The encoders of these modalities."""
    make = {
        "text": lambda: text_encoder(recipe.text_encoder),
        "image": lambda: encoders.image_encoder(recipe.encoders),
        "audio": lambda: encoders.audio_encoder(recipe.encoders),
    }
    built = {modality: make[modality]() for modality in modalities}
    about = recipe.encoders.model_dump_json() + recipe.text_encoder.model_dump_json()
    return Sight(built, None, encoders.fingerprint(*built.values(), about=about), features.DecodeTime(say))


def named(lines: Sequence[Pair]) -> list[str]:
    """The modalities that lines name, in their order."""
    fields = {field for line in lines for field in line.contents}
    return [m for m in MODALITIES if m in fields or (m != "text" and "video" in fields)]


def _paired(lines: PairedLines, modality: str) -> int:
    """Lines that have it, by the other modality with which most do."""
    own = lines.present[modality]
    return max((int((own & other).sum()) for m, other in lines.present.items() if m != modality), default=0)
