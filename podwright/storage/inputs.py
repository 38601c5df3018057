"""Files and folders that a recipe names on the machine where it was started: uploaded once, under the hash of their content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from podwright.errors import UserError, expanded
from podwright.rundir import Record, RunDir, is_below, write_json
from podwright.storage import open_storage
from podwright.storage.base import Storage
from podwright.storage.imported_files import closure

PREFIX = "inputs/"
LIST = "inputs.json"  # in the run directory: key of the recipe -> name in the storage
_SECTIONS = ("model", "data", "aligner", "encoders", "text_encoder")
_IN_PLACE = (("pretrain", "data.source"),)  # read from the storage a piece at a time; everything else is copied first
_REWARD = re.compile(r"rewards\[(\d+)\]")


def upload(run: RunDir, recipe: Record, cwd: Path, storage: Storage) -> dict[str, str]:
    """Upload what `recipe` names below `cwd` or by an absolute path; by key of the recipe, the name in the storage.

    May be killed and repeated: a folder counts when its list is there, and nothing is uploaded twice. Data and weights are those
    of the first time; the file of a reward may be corrected between attempts.
    """
    before = _listed(run)
    uploaded = dict(before or {})
    paths = {key: cwd / expanded(value) for key, value in named(recipe).items()}
    for key, path in paths.items():
        if _REWARD.fullmatch(key):
            if path.is_file():
                uploaded[key] = f"{_put(storage, path.parent, closure(path), 'rewards')}/{path.name}"
        elif before is None and path.exists():
            uploaded[key] = _put(storage, path, _files(path), path.name)
    if uploaded != before:
        write_json(run.path / LIST, uploaded)
    return uploaded


def localized(run: RunDir, recipe: Record) -> Record:
    """`recipe` with what was uploaded in the places where this machine reads it: copies in the run directory, or the storage itself."""
    names = _listed(run)
    if not names:
        return recipe
    storage = open_storage(run.storage_url)
    rewards = [dict(reward) for reward in recipe.get("rewards") or ()]
    for key, name in names.items():
        if number := _REWARD.fullmatch(key):
            reward = rewards[int(number[1])]
            folder, _, file = name.rpartition("/")
            function = reward["function"].rpartition(":")[2]
            reward["function"] = f"{_copy(storage, folder, run.path.resolve())}/{file}:{function}"
            continue
        section, _, field = key.partition(".")
        in_place = (recipe.get("kind"), key) in _IN_PLACE
        where = f"{storage.url}/{name}" if in_place else str(_copy(storage, name, run.path.resolve()))
        recipe = recipe | {section: recipe[section] | {field: where}}
    return recipe | ({"rewards": rewards} if rewards else {})


def _listed(run: RunDir) -> dict[str, str] | None:
    """None where nothing was uploaded yet. UserError where the list is damaged."""
    path = run.path / LIST
    try:
        names = json.loads(path.read_text())
        if all(isinstance(name, str) for name in names.values()):
            return dict(names)
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, RecursionError):
        pass
    raise UserError(
        f"{path} is damaged",
        "restore it from a copy of the run, or start the run again under another name",
        "damaged-file",
    )


def named(recipe: Record) -> dict[str, str]:
    """By key of the recipe, every value that may name a file or folder of the machine where the run was started."""
    values = {}
    for section in _SECTIONS:
        for field, value in (recipe.get(section) or {}).items():
            if isinstance(value, str) and value and (field == "source" or field.endswith("_weights")):
                values[f"{section}.{field}"] = value
    for number, reward in enumerate(recipe.get("rewards") or ()):
        file = reward["function"].rpartition(":")[0]
        if file.endswith(".py"):
            values[f"rewards[{number}]"] = file
    return {key: value for key, value in values.items() if "://" not in value}


def planned(run: RunDir, recipe: Record, cwd: Path) -> dict[str, str]:
    """What was uploaded, as `upload` returns it; before that, the word INPUT in the place of each name."""
    if (uploaded := _listed(run)) is not None:
        return uploaded
    return {key: "INPUT" for key, value in named(recipe).items() if (cwd / expanded(value)).exists()}


def uploaded_keys(run: RunDir) -> set[str]:
    """The keys of the recipe of which the storage has a copy."""
    return set(_listed(run) or ())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file())


def _put(storage: Storage, path: Path, files: list[Path], title: str) -> str:
    """The name, ending in `title`, of a file, or of those `files` of a folder, that is in the storage now."""
    base = path if path.is_dir() else path.parent
    hashes = {p.relative_to(base).as_posix(): _hash(p) for p in files}
    entry = {"title": title, "folder": path.is_dir(), "files": hashes}
    folder = f"{PREFIX}{hashlib.sha256(json.dumps(entry).encode()).hexdigest()}"
    name = f"{folder}/{title}"
    if storage.read(f"{folder}.json") is None:
        for p in files:
            storage.upload(p, f"{name}/{p.relative_to(base).as_posix()}" if path.is_dir() else name)
        storage.write(f"{folder}.json", json.dumps(entry).encode())
    return name


def _copy(storage: Storage, name: str, root: Path) -> Path:
    """On this machine, made once: several processes may come together, and each may be killed."""
    target = root / name
    if not (name.startswith(PREFIX) and is_below(name)):
        raise UserError(
            f"{LIST} of {root} names {name}, which is no input",
            "start the run again under another name",
            "damaged-file",
        )
    if target.exists():
        return target
    listed = storage.read(f"{name.rpartition('/')[0]}.json")
    if listed is None:
        raise FileNotFoundError(f"{storage.url}/{name}")
    entry: dict[str, Any] = json.loads(listed.data)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    for file in entry["files"]:
        if not is_below(file):
            raise UserError(
                f"{storage.url}/{name} holds the file {file}, which is outside of it",
                "delete that object",
                "foreign-object",
            )
        storage.download(f"{name}/{file}" if entry["folder"] else name, part / file if entry["folder"] else part)
    try:
        part.rename(target)
    except OSError:  # another process was quicker
        shutil.rmtree(part, ignore_errors=True)
    return target


def _hash(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
