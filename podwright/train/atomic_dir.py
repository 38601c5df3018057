"""A directory that is given to others: there with all that belongs to it, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def create(out: Path) -> Iterator[Path]:
    """A folder to write into, which is `out` in the end, and gone where that fails."""
    part = out.with_name(
        f".{out.name}.{os.getpid()}.part"
    )  # what a killed process leaves behind is not taken for a model
    try:
        yield part
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
