"""Held-out lines that a run trains on as well, where an evaluation measures what was memorized, or that it never reads.

Both halves read it: a plan and `podwright data check` warn in the same words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from podwright.errors import counted

_NAMES = ("test.jsonl", "val.jsonl", "validation.jsonl", "valid.jsonl", "dev.jsonl", "eval.jsonl")
_LONGEST = 60  # characters of a question in a message


def misnamed(folder: Path, name: str) -> Path | None:
    """A file of held-out lines under another name than `name`, which nobody reads; None where `name` is there, or there is none."""
    if os.path.lexists(folder / name):
        return None
    return next((path for other in _NAMES if other != name and (path := folder / other).is_file()), None)


def renaming(path: Path, name: str) -> str:
    """What to type so that the file is read under that name."""
    return f"type {shlex.join(['mv', str(path), str(path.with_name(name))])}"


def unread(training: Path) -> tuple[str, str] | None:
    """What is wrong with a directory of multimodal lines whose held-out ones have another name than val.jsonl, and what to type."""
    path = misnamed(training.parent, "val.jsonl") if training.name == "train.jsonl" else None
    if path is None:
        return None
    return f"{path} is not read: the last lines of {training.name} are held out", renaming(path, "val.jsonl")


def shared(training: Iterable[Hashable], held_out: Sequence[Hashable]) -> list[Hashable]:
    """Those of the held-out lines that training has too, by what makes lines equal."""
    known = set(training)
    return [line for line in held_out if line in known]


def warning(source: str, files: tuple[str, str], lines: Sequence[Hashable], num_held_out: int) -> tuple[str, str]:
    """What is wrong with `files` (training, held out) of the directory `source` that share `lines`, and what to type."""
    training, name = files
    also = "is" if len(lines) == 1 else "are"
    example = next((line for line in lines if isinstance(line, str)), "")
    such = f", such as {example[:_LONGEST]!r}" if example else ""
    what = (
        f"{counted(len(lines), 'line')} of the {num_held_out:,} of {name} {also} in {training} too{such}: "
        "an evaluation on lines that a run trains on measures what was memorized"
    )
    if not training.endswith(".jsonl"):
        return what, f"leave these lines out of {name}"
    single = shlex.quote(f"data.source={source.rstrip('/')}/{training}")
    return what, f"leave these lines out of {name}, or type {single} to hold a part of that file out"
