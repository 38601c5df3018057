"""Held-out lines that a run trains on as well: an evaluation on these measures what was memorized.

Both halves read it: a plan and `podwright data check` warn in the same words.
"""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Iterable, Sequence

from podwright.errors import counted

_LONGEST = 60  # characters of a question in a message


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
