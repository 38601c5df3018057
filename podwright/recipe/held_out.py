"""Held-out lines that a run trains on as well, where an evaluation measures what was memorized, or that it never reads.

Both halves read it: a plan and `podwright data check` warn in the same words.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path

from podwright.errors import counted

_NAMES = ("test.jsonl", "validation.jsonl", "valid.jsonl", "dev.jsonl", "eval.jsonl")


def unread(training: Path) -> tuple[str, str] | None:
    """What is wrong with a directory of multimodal lines whose held-out ones have another name than val.jsonl, and what to type."""
    read = training.with_name("val.jsonl")
    if training.name != "train.jsonl" or os.path.lexists(read):
        return None
    for name in _NAMES:
        path = training.with_name(name)
        if path.is_file():
            what = f"{path} is not read: the last lines of {training.name} are held out"
            return what, f"type {shlex.join(['mv', str(path), str(read)])}"
    return None


def shared(training: Iterable[Hashable], held_out: Sequence[Hashable]) -> list[Hashable]:
    """Those of the held-out lines that training has too, by what makes lines equal."""
    known = set(training)
    return [line for line in held_out if line in known]


def warning(source: str, files: tuple[str, str], lines: Sequence[Hashable], num_held_out: int) -> tuple[str, str]:
    """What is wrong with `files` (training, held out) of the directory `source` that share `lines`, and what to type."""
    training, name = files
    what = (
        f"{training} has {counted(len(lines), 'line')} of the {num_held_out:,} of {name} too: "
        "an evaluation on lines that a run trains on measures what was memorized"
    )
    fix = f"leave these lines out of {name}"
    if training.endswith(".jsonl"):
        single = shlex.quote(f"data.source={source.rstrip('/')}/{training}")
        fix += f", or type {single} to hold a part of that file out"
    return what, fix
