"""The package as it is here, for hosts that have none."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]


def pack_code(tar: tarfile.TarFile, adapt: Callable[[tarfile.TarInfo], tarfile.TarInfo | None] | None = None) -> None:
    """Under code/. `adapt`: what is to be changed of each entry; None leaves it out."""
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            tar.add(path, f"code/podwright/{path.relative_to(_PACKAGE)}", filter=adapt)
    if (recipes := _PACKAGE.parent / "recipes").is_dir():  # of a checkout; a wheel has them inside
        tar.add(recipes, "code/recipes", filter=adapt)
