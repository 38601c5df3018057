"""Aligned features of every file, computed once and kept on disk: the encoders are frozen, so no later step needs them.

A feature is found again by the content of its file and by the encoder and aligner that made it, in parts that are written whole.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from podwright.data import media
from podwright.data.annotated import Example
from podwright.recipe import llm
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import aligner, encoders
from podwright.train.multimodal.model import MODALITIES
from podwright.train.multimodal.world import World

_PART = 1024  # files whose features are written at a time
_BATCH = 32  # files that an encoder sees at a time


@dataclasses.dataclass(frozen=True)
class Sight:
    """The frozen half of the model."""

    encoders: dict[str, encoders.Encoder]
    aligner: aligner.Aligner
    fingerprint: str

    @torch.no_grad()
    def align(self, modality: str, prepared: Sequence[Tensor], device: torch.device) -> Tensor:
        """[files, D]; a video's pictures come stacked, and their features are averaged."""
        sizes = [len(x) if x.ndim == 4 else 1 for x in prepared]
        stacked = torch.cat([x if x.ndim == 4 else x[None] for x in prepared]).to(device)
        raw = self.encoders[modality].to(device)(stacked)
        means = torch.stack([part.mean(0) for part in raw.split(sizes)])
        found: Tensor = self.aligner.to(device)(modality, means).float().cpu()
        return found


def sight(recipe: MultimodalRecipe) -> Sight:
    made = {"image": encoders.image_encoder(recipe.encoders), "audio": encoders.audio_encoder(recipe.encoders)}
    heads = aligner.load(recipe.aligner.source, {"text": llm.TEXT_DIM} | {k: v.dim for k, v in made.items()}, recipe.aligner.dim)
    heads.requires_grad_(False)
    mark = encoders.fingerprint(*made.values(), heads, about=recipe.encoders.model_dump_json())
    return Sight(made, heads, mark)


def of_files(
    examples: Sequence[Example], found: Sight, recipe: MultimodalRecipe, world: World, folder: Path
) -> tuple[Tensor, Tensor, dict[int, str]]:
    """Features [N, M, D], which are there [N, M], and what is wrong with the files of which examples."""
    store = folder / found.fingerprint
    if world.rank == 0:
        store.mkdir(parents=True, exist_ok=True)
    world.barrier()
    keys: dict[str, tuple[str, str, Path]] = {}
    wanted, faults = [], {}
    with concurrent.futures.ThreadPoolExecutor(recipe.data.num_workers) as pool:
        for number, sources in enumerate(pool.map(_sources, examples)):
            if isinstance(sources, str):
                faults[number], sources = sources, {}
            wanted.append({modality: key for modality, (key, _) in sources.items()})
            keys |= {key: (modality, *rest) for modality, (key, rest) in sources.items()}
        known = _read(store)
        missing = [key for key in keys if key not in known]
        wrong: dict[str, str] = {}
        for start in range(0, len(missing), _PART):
            own = missing[start : start + _PART][world.rank :: world.size]
            wrong |= _compute({key: keys[key] for key in own}, found, store, world, pool)
    for other in world.gathered(wrong):
        wrong |= other
    known = _read(store) if missing else known
    for number, one in enumerate(wanted):
        for key in one.values():
            if key not in known:
                faults[number] = wrong.get(key, "its features cannot be read back")
    return *_stacked(wanted, known, recipe.aligner.dim), faults


def one_line(example: Example, found: Sight, device: torch.device) -> tuple[Tensor, Tensor]:
    """[1, M, D] and [1, M] of files that nobody will ask for again; media.Unreadable for a bad one."""
    values = torch.zeros(1, len(MODALITIES), found.aligner.dim)
    present = torch.zeros(1, len(MODALITIES), dtype=torch.bool)
    sources = _sources(example)
    if isinstance(sources, str):
        raise media.Unreadable(sources)
    for n, modality in enumerate(MODALITIES):
        if modality in sources:
            field, path = sources[modality][1]
            values[0, n] = found.align(modality, [_prepared(modality, field, path, found)], device)[0]
            present[0, n] = True
    return values, present


def _sources(example: Example) -> dict[str, tuple[str, tuple[str, Path]]] | str:
    """modality -> key, and the field and path it comes from; a picture or sound of its own comes before a video's. A text: the fault."""
    made: dict[str, tuple[str, tuple[str, Path]]] = {}
    try:
        for field, path in example.paths.items():
            mark = media.digest(path)
            for modality in ("image", "audio") if field == "video" else (field,):
                if field != "video" or (modality not in example.paths and (modality == "image" or media.has_sound(path))):
                    made[modality] = (f"{field}-{modality}-{mark}", (field, path))
    except media.Unreadable as e:
        return f"{path.name}: {e}"
    return made


def _prepared(modality: str, field: str, path: Path, found: Sight) -> Tensor:
    prepare = found.encoders[modality].prepare
    if field != "video":
        made: Tensor = prepare(media.picture(path) if modality == "image" else media.sound(path))
        return made
    frames, track = media.video(path)
    if modality == "image":
        return torch.stack([prepare(frame) for frame in frames])
    if track is None:
        raise media.Unreadable("it has no sound")
    made = prepare(track)
    return made


def _compute(
    keys: dict[str, tuple[str, str, Path]], found: Sight, store: Path, world: World, pool: concurrent.futures.Executor
) -> dict[str, str]:
    """Writes the features of these files as one part; what is wrong with those that have none."""

    def prepared(item: tuple[str, tuple[str, str, Path]]) -> tuple[str, str, Tensor | str]:
        key, (modality, field, path) = item
        try:
            return key, modality, _prepared(modality, field, path, found)
        except media.Unreadable as e:
            return key, modality, f"{path.name}: {e}"

    wrong: dict[str, str] = {}
    done: dict[str, np.ndarray] = {}
    for batch in _groups(pool.map(prepared, keys.items()), _BATCH):
        for modality in MODALITIES:
            good = {key: x for key, one, x in batch if one == modality and isinstance(x, Tensor)}
            if good:
                done |= dict(zip(good, found.align(modality, list(good.values()), world.device).numpy(), strict=True))
        wrong |= {key: x for key, _, x in batch if isinstance(x, str)}
    if done:
        part = store / f"{min(done)}-{len(done)}.npz"
        with part.with_suffix(f".{world.rank}.unfinished").open("wb") as f:
            np.savez(f, keys=np.array(list(done)), features=np.stack(list(done.values())))
        Path(f.name).replace(part)
    return wrong


def _groups(items: Iterator, size: int) -> Iterator[list]:
    group = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _read(store: Path) -> dict[str, np.ndarray]:
    known: dict[str, np.ndarray] = {}
    for part in sorted(store.glob("*.npz")):
        with np.load(part) as found:
            known |= dict(zip(map(str, found["keys"]), found["features"], strict=True))
    return known


def _stacked(wanted: Sequence[dict[str, str]], known: dict[str, np.ndarray], dim: int) -> tuple[Tensor, Tensor]:
    values = torch.zeros(len(wanted), len(MODALITIES), dim)
    present = torch.zeros(len(wanted), len(MODALITIES), dtype=torch.bool)
    for row, keys in enumerate(wanted):
        for n, modality in enumerate(MODALITIES):
            if keys.get(modality) in known:
                values[row, n] = torch.from_numpy(known[keys[modality]])
                present[row, n] = True
    return values, present
