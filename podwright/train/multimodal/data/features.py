"""Features of every file and text, computed once and kept on disk: the encoders are frozen, so no later step needs them.

A feature is found again by the content of its file and by what made it, in parts that are written whole. Phase 2's are aligned.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from podwright.data import media
from podwright.data.annotated import AnnotatedExample
from podwright.recipe import llm
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import part_of
from podwright.train.multimodal.networks import aligner, encoders
from podwright.train.multimodal.networks.model import MODALITIES
from podwright.train.multimodal.processes import cores
from podwright.train.multimodal.processes.world import World

_PART = 1024  # files whose features are written at a time
_BATCH = 32  # pictures or sounds that an encoder sees at a time: always as many, see `_in_batches`
_DEFAULT_WORKERS = 16  # at most: more threads wait for Python's lock
FEATURES = ".features"
"""the folder beside the runs"""

Contents = Mapping[str, Path | str]
"""field -> its file; of a text, the text itself"""
_Source = tuple[str, Path | str]
"""the field that a modality comes from, and what is in it"""


@dataclasses.dataclass(frozen=True)
class Sight:
    """The frozen half of the model."""

    encoders: dict[str, encoders.Encoder]
    """of each modality"""
    aligner: aligner.Aligner | None
    """None: features are what the encoders give"""
    fingerprint: str

    @property
    def dims(self) -> dict[str, int]:
        return {
            modality: self.aligner.dim if self.aligner else encoder.dim for modality, encoder in self.encoders.items()
        }

    @torch.no_grad()
    def features(self, modality: str, prepared: Sequence[Tensor], device: torch.device, size: int = _BATCH) -> Tensor:
        """[files, D]; a video's pictures come stacked, and their features are averaged. `size`: of the batches in which they are computed."""
        sizes = [len(x) if x.ndim == 4 else 1 for x in prepared]
        stacked = torch.cat([x if x.ndim == 4 else x[None] for x in prepared])
        raw = _in_batches(self.encoders[modality].to(device), stacked, size, device)
        means = torch.stack([part.mean(0) for part in raw.split(sizes)])
        if self.aligner:
            means = _in_batches(functools.partial(self.aligner.to(device), modality), means, size, device)
        return means.float().cpu()


def _in_batches(compute: Callable[[Tensor], Tensor], rows: Tensor, size: int, device: torch.device) -> Tensor:
    """`compute` of `rows`, in batches of exactly `size`, zeros after the last row.

    The last bits of a row's result depend on the size of its batch. With one size a file has the same features whatever files are computed
    with it: on one machine or on several, at once or in the next attempt of a run.
    """
    results = []
    for part in rows.split(size):
        padding = part.new_zeros(size - len(part), *part.shape[1:])
        results.append(compute(torch.cat([part, padding]).to(device))[: len(part)])
    return torch.cat(results)


def sight(recipe: MultimodalRecipe) -> Sight:
    built = {"image": encoders.image_encoder(recipe.encoders), "audio": encoders.audio_encoder(recipe.encoders)}
    dims = {k: v.dim for k, v in built.items()}
    if recipe.aligner.source == "random":  # a file's head for text is not read: Phase 2 has no features of text
        dims = {"text": llm.TEXT_DIM} | dims
    scaled = recipe.aligner.features == "scaled"
    heads = aligner.load(recipe.aligner.source, dims, recipe.aligner.dim, needed=MODALITIES, scaled=scaled)
    heads.requires_grad_(False)
    about = recipe.encoders.model_dump_json() + recipe.aligner.features
    return Sight(built, heads, encoders.fingerprint(*built.values(), heads, about=about))


def of_files(
    examples: Sequence[AnnotatedExample], sight: Sight, recipe: MultimodalRecipe, world: World, folder: Path
) -> tuple[Tensor, Tensor, dict[int, str]]:
    """Features [N, M, D], which are there [N, M], and what is wrong with the files of which examples."""
    values, present, faults = of_lines([e.paths for e in examples], sight, recipe.data.num_workers, world, folder)
    return torch.stack([values[m] for m in MODALITIES], 1), torch.stack([present[m] for m in MODALITIES], 1), faults


def of_lines(
    lines: Sequence[Contents], sight: Sight, num_workers: int, world: World, folder: Path
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[int, str]]:
    """Features [N, D] of each modality, which are there [N], and what is wrong with which lines; `num_workers`: 0 as the cores allow."""
    threads = num_workers or min(cores.of_process(world), _DEFAULT_WORKERS)
    store = folder / sight.fingerprint
    world.on_each_disk(lambda: store.mkdir(parents=True, exist_ok=True))
    near = world.neighbours
    keys: dict[str, tuple[str, _Source]] = {}
    wanted, faults = [], {}
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for number, sources in enumerate(pool.map(_sources, lines)):
            if isinstance(sources, str):
                faults[number], sources = sources, {}
            wanted.append({modality: key for modality, (key, _) in sources.items()})
            keys |= {key: (modality, source) for modality, (key, source) in sources.items()}
        missing = world.on_each_disk(lambda: _missing(store, keys))  # once, before any process adds to it
        wrong: dict[str, str] = {}
        for start in range(0, len(missing), _PART):
            if world.stopping():
                break
            own = missing[start : start + _PART][near.index(world.rank) :: len(near)]
            wrong |= _compute({key: keys[key] for key in own}, sight, store, world, pool)
    world.require_going_on()
    for other in world.gathered(wrong):
        wrong |= other
    known = _read(store, keys)
    for number, line in enumerate(wanted):
        for key in line.values():
            if key not in known:
                faults[number] = wrong.get(key, "its features cannot be read back")
    for seen in world.gathered(faults):  # what one machine cannot read, none has
        faults = seen | faults
    return *_stacked(wanted, known, sight.dims), faults


def one_line(example: AnnotatedExample, sight: Sight, device: torch.device) -> tuple[Tensor, Tensor]:
    """[1, M, D] and [1, M] of files that nobody will ask for again; media.Unreadable for a bad one."""
    values = torch.zeros(1, len(MODALITIES), sight.dims[MODALITIES[0]])
    present = torch.zeros(1, len(MODALITIES), dtype=torch.bool)
    sources = _sources(example.paths)
    if isinstance(sources, str):
        raise media.Unreadable(sources)
    for n, modality in enumerate(MODALITIES):
        if modality in sources:
            prepared = _prepared(modality, sources[modality][1], sight)
            values[0, n] = sight.features(modality, [prepared], device, len(prepared) if prepared.ndim == 4 else 1)[0]
            present[0, n] = True
    return values, present


def _sources(contents: Contents) -> dict[str, tuple[str, _Source]] | str:
    """modality -> key, and where it comes from; a picture or sound of its own comes before a video's. A text: the fault."""
    sources: dict[str, tuple[str, _Source]] = {}
    for field, content in contents.items():
        if isinstance(content, str):
            sources[field] = (f"{field}-{hashlib.sha256(content.encode()).hexdigest()}", (field, content))
            continue
        try:
            mark = media.digest(content)
            for modality in ("image", "audio") if field == "video" else (field,):
                if field != "video" or (modality not in contents and (modality == "image" or media.has_sound(content))):
                    sources[modality] = (f"{field}-{modality}-{mark}", (field, content))
        except media.Unreadable as e:
            return f"{content.name}: {e}"
    return sources


def marks(contents: Contents) -> dict[str, str]:
    """What each field holds: a text itself, of a file the digest."""
    return {field: x if isinstance(x, str) else media.digest(x) for field, x in contents.items()}


def _prepared(modality: str, source: _Source, sight: Sight) -> Tensor:
    prepare = sight.encoders[modality].prepare
    field, content = source
    if isinstance(content, str):
        return prepare(content)
    if field != "video":
        return prepare(media.picture(content) if modality == "image" else media.sound(content))
    frames, track = media.video(content)
    if modality == "image":
        return torch.stack([prepare(frame) for frame in frames])
    if track is None:
        raise media.Unreadable("it has no sound")
    return prepare(track)


def _compute(
    keys: dict[str, tuple[str, _Source]],
    sight: Sight,
    store: Path,
    world: World,
    pool: concurrent.futures.Executor,
) -> dict[str, str]:
    """Writes the features of these files, a part for each modality; what is wrong with those that have none."""

    def prepared(item: tuple[str, tuple[str, _Source]]) -> tuple[str, str, Tensor | str]:
        key, (modality, source) = item
        try:
            return key, modality, _prepared(modality, source, sight)
        except media.Unreadable as e:
            return key, modality, f"{Path(source[1]).name}: {e}"

    wrong: dict[str, str] = {}
    done: dict[str, dict[str, np.ndarray]] = {modality: {} for modality in sight.encoders}
    waiting: dict[str, dict[str, Tensor]] = {modality: {} for modality in sight.encoders}

    def compute(modality: str) -> None:
        files = waiting[modality]
        if files:
            rows = sight.features(modality, list(files.values()), world.device).numpy()
            done[modality] |= dict(zip(files, rows, strict=True))
            files.clear()

    for key, modality, content in pool.map(prepared, keys.items()):
        if world.stopping():
            break
        if isinstance(content, str):
            wrong[key] = content
            continue
        waiting[modality][key] = content
        if len(waiting[modality]) == _BATCH:
            compute(modality)
    for modality in waiting:
        compute(modality)
    for known in filter(None, done.values()):
        name = hashlib.sha256("\n".join(sorted(known)).encode()).hexdigest()
        with part_of(store / f"{name}.npz") as part, part.open("wb") as f:
            np.savez(f, keys=np.array(list(known)), features=np.stack(list(known.values())))
    return wrong


def _parts(store: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """A part that a power failure has left damaged is removed, and what it held is computed again."""
    for part in sorted(store.glob("*.npz")):
        try:
            with np.load(part) as archive:
                arrays = dict(archive)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError):
            part.unlink(missing_ok=True)
            continue
        yield arrays


def _missing(store: Path, keys: Iterable[str]) -> list[str]:
    known = {str(key) for archive in _parts(store) for key in archive["keys"]}
    return [key for key in keys if key not in known]


def _read(store: Path, wanted: Container[str]) -> dict[str, np.ndarray]:
    known: dict[str, np.ndarray] = {}
    for archive in _parts(store):
        for key, row in zip(map(str, archive["keys"]), archive["features"], strict=True):
            if key in wanted:
                known[key] = row.copy()  # a view would keep the whole part
    return known


def _stacked(
    wanted: Sequence[dict[str, str]], known: dict[str, np.ndarray], dims: Mapping[str, int]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    values = {modality: torch.zeros(len(wanted), dim) for modality, dim in dims.items()}
    present = {modality: torch.zeros(len(wanted), dtype=torch.bool) for modality in dims}
    for row, keys in enumerate(wanted):
        for modality, key in keys.items():
            if key in known:
                values[modality][row] = torch.from_numpy(known[key])
                present[modality][row] = True
    return values, present
