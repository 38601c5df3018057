"""Writes what was rendered: the same input changes nothing, and a file that was edited is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import read_json, replace_file

RECORD = ".rendered.json"
"""hashes of the files as they were written, by name"""


def write(folder: Path, files: Mapping[str, str], overwrite: bool = False) -> dict[str, str]:
    """`written`, `unchanged` or `removed` by name, the last for files of an earlier rendering that are no longer made.

    UserError, before anything is written, for a file that was not rendered or was edited since; `overwrite` replaces it.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"-o {folder} is a file", "name a directory", "not-a-folder")
    for name in (*files, RECORD):
        if (folder / name).is_dir():
            raise UserError(f"{folder / name} is a directory", "remove it, or name another one with -o", "not-a-file")
    before = _record(folder)
    edited = []
    for name in sorted({*files, *before}):
        if _is_edited(folder / name, files.get(name), before.get(name, "")):
            edited.append(name)
    if edited and not overwrite:
        what = f"{', '.join(edited)} in {folder}: edited, or not rendered"
        raise UserError(what, "name another directory with -o, or add --overwrite", "edited-file")
    folder.mkdir(parents=True, exist_ok=True)
    states = {}
    for name, text in files.items():
        path = folder / name
        states[name] = "unchanged" if _hash_of(path) == _hash(text) else "written"
        if states[name] == "written":
            replace_file(path, text.encode())
        if path.suffix == ".sh":
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o444) >> 2)  # whoever may read it may run it
    for name in before:
        if name not in files and (folder / name).is_file():
            (folder / name).unlink()
            states[name] = "removed"
    record = json.dumps({name: _hash(text) for name, text in files.items()}, indent=1) + "\n"
    if _hash_of(folder / RECORD) != _hash(record):
        replace_file(folder / RECORD, record.encode())
    return states


def _is_edited(path: Path, text: str | None, written: str) -> bool:
    here = _hash_of(path)
    return here not in ("", written) and (text is None or here != _hash(text))


def _record(folder: Path) -> dict[str, str]:
    """{} where there is none, or it cannot be read: then every file that differs counts as edited."""
    record = read_json(folder / RECORD)
    return {name: str(value) for name, value in record.items() if Path(name).name == name}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_of(path: Path) -> str:
    """ "" where there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
