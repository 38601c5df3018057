"""Which files of a data source GRPO reads: the file that it names, or those of the training and of the test part of a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from podwright.data.rows import container
from podwright.errors import UserError
from podwright.recipe.corpus import ARROW, COMPRESSIONS, SUFFIXES, is_saved
from podwright.recipe.paths import require_all_numbered, require_file_or_directory, require_no_dead_link

_LINES = [suffix for suffix in SUFFIXES if suffix not in (".parquet", ARROW)]
_ENDINGS = [*_LINES, *(suffix + compression for suffix in _LINES for compression in COMPRESSIONS)]
_NAMED = 3  # files of a message


@dataclasses.dataclass(frozen=True)
class ExampleFiles:
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    """() for a single file, of which a part is held out"""
    unread: tuple[Path, ...] = ()
    """others of these names"""


def is_of_grpo(path: Path) -> bool:
    """Whether a path is a table, a JSON list or compressed rows, or a directory as GRPO reads them."""
    if path.is_file() or is_saved(str(path)):
        return container(path) != "" and not path.name.endswith((".jsonl", ".ndjson"))
    return any(part_files(path, part) for part in ("train", "test")) or any(path.glob("*.parquet"))


def files(source: str, path: Path, training: bool = True) -> ExampleFiles:
    """Of a file, or of a directory: train and test with one of the endings, or train*.parquet and test*.parquet as the hub lays them out.

    Without `training` the test part is enough.
    """
    require_file_or_directory(f"data.source={source}", path)
    if path.is_file():
        return ExampleFiles((path,), ())
    train, test = part_files(path, "train"), part_files(path, "test")
    if is_saved(str(path)) and not test:
        return ExampleFiles(train or (path,), ())
    if not test or (training and not train):
        absent = "test" if train else "train"
        fix = (
            "give a directory with train.jsonl and test.jsonl (or .json, .csv, .parquet, each perhaps with .gz or .zst)"
        )
        if len(train) == 1:
            fix = f"add it, or type data.source={train[0]} to hold a part of that file out"
        elif train or test:
            fix = f"add {absent}.jsonl, or name the files train*.parquet and test*.parquet"
        raise UserError(f"data.source={source} has no file of its {absent} part", fix, "no-such-file")
    named = [file for part in ("train", "test") for file in (*of_split(path, part), *path.glob(f"{part}*.parquet"))]
    return ExampleFiles(train, test, tuple(file for file in named if file not in (*train, *test)))


def part_files(path: Path, part: str) -> tuple[Path, ...]:
    """The files of the training or the test part of a directory; () where it has none."""
    for name in ("test", "validation", "val") if part == "test" else (part,):
        if is_saved(str(path / name)):
            return (path / name,)
        for folder in (path, path / "main", path / "data"):
            if present := of_split(folder, name)[:1] or sorted(folder.glob(f"{name}*.parquet")):
                require_all_numbered(str(folder), (file.name for file in present))
                return tuple(present)
    return ()


def of_split(path: Path, split: str, more: tuple[str, ...] = ()) -> list[Path]:
    """The files of one part that lie in a directory, with one of the endings that are read or of `more`."""
    present = []
    for ending in (*_ENDINGS, *more):
        file = path / f"{split}{ending}"
        require_no_dead_link(file)
        if file.is_file():
            present.append(file)
        elif file.exists():
            raise UserError(f"{file} is not a file", "replace it by a file of rows", "not-a-file")
    return present


def unread(files: ExampleFiles) -> tuple[str, str] | None:
    """What is wrong with a directory that holds more files of these names than are read, and what to do."""
    if not files.unread:
        return None
    names = ", ".join(path.name for path in files.unread[:_NAMED])
    read = " and ".join(path.name for path in (*files.train[:1], *files.test[:1]))
    what = f"{files.unread[0].parent} has files beside {read} that are not read: {names}"
    return what, "move those out of the directory that are not to be read"
