"""What a value that names weights or data stands for: a path of this machine, or an id of the Hugging Face hub. By its look alone."""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from podwright.errors import UserError, both_ends, expanded, from_os, nearest, visible
from podwright.recipe.yaml_file import Dumper

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,95})?")
_MISSPELT, _LIKE = 0.85, 0.7  # how like a name that is here: so that it is that name misspelt, and so that it may be
_SUFFIXES = {
    ".jsonl",
    ".ndjson",
    ".json",
    ".parquet",
    ".csv",
    ".tsv",
    ".txt",
    ".arrow",
    ".npy",
    ".array_record",
    ".gz",
    ".zip",
}
_SUFFIXES |= {".tar", ".zst", ".bin", ".pt", ".pth", ".safetensors", ".gguf", ".yaml", ".py"}
# What people call the folders in which weights and data lie; nobody's name on the hub.
_FOLDERS = {"data", "dataset", "datasets", "model", "models", "checkpoint", "checkpoints", "weights", "runs", "out"}
_FOLDERS |= {"output", "outputs", "corpus", "shared", "tmp"}
_NUMBERED = re.compile(r"(?P<stem>.+?)[-_.](?P<number>\d+)-of-(?P<total>\d+)\b")
_KINDS = {
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


def looks_like_path(source: str, cwd: Path) -> bool:
    """Whether a value is a path even where nothing is there; what is left may be OWNER/NAME on the hub."""
    if looks_like_file(source):
        return True  # the pattern has one slash at most, and starts with neither ., / nor ~
    folder, slash, _ = source.partition("/")
    if os.path.lexists(cwd / source):
        return True
    if slash and (folder.lower() in _FOLDERS or os.path.lexists(cwd / folder)):
        return True
    return bool(_nearest(folder, cwd, _MISSPELT))


def looks_like_file(source: str) -> bool:
    """Whether a value can be no id of the hub, whatever lies where it is typed."""
    return not _HUB_ID.fullmatch(source) or Path(source).suffix.lower() in _SUFFIXES


def missing(key: str, source: str, cwd: Path) -> UserError:
    """An error for a path with nothing there, typed as key=source, with the nearest name in its folder."""
    what = f"{key}={visible(both_ends(source))} is not there"
    if "://" in source:
        what = f"{key}={source} is a URL, and files are read from this machine here"
        return UserError(what, "copy it to this machine, and give its path", "not-local")
    path = cwd / expanded(source)
    if os.path.islink(path):
        return dead_link(f"{key}={source}", path)
    fix = "check the path"
    if guess := _nearest(path.name, path.parent, _LIKE):
        nearest_source = str(Path(source).with_name(guess))
        fix = f"did you mean {shlex.quote(f'{key}={nearest_source}')}?"
    elif "/" in source and not looks_like_file(source):
        fix = f"check the path; on the Hugging Face hub an id is OWNER/NAME, and {source} is taken for a path"
    return UserError(what, fix, "no-such-file")


def no_tokenizer(typed: str, path: Path) -> UserError:
    """An error for a tokenizer, `path` where it was `typed`, that is not there or has no tokenizer.json."""
    if os.path.exists(path):
        fix = "give a Hugging Face directory that was saved with a fast tokenizer"
        return UserError(f"{typed} has no tokenizer.json", fix, "no-tokenizer")
    fix = "give a directory of this machine: ids of the Hugging Face hub are not fetched"
    if guess := nearest(typed, ["bytes"]):
        fix = f"did you mean {guess}?"
    return UserError(f"there is no tokenizer {typed}", fix, "no-tokenizer")


def absent(typed: str, path: Path) -> UserError:
    """An error for a path of this machine that is not an override's value, with nothing there."""
    if os.path.islink(path):
        return dead_link(typed, path)
    fix = "check the path"
    guess = _nearest(path.name, path.parent, _LIKE)
    if guess and typed.strip("/."):
        fix = f"did you mean {shlex.quote(str(Path(typed).with_name(guess)))}?"
    return UserError(f"there is no {visible(typed)}", fix, "no-such-file")


def dead_link(name: str, path: str | Path) -> UserError:
    """An error for a link that leads to nothing, or back to itself."""
    what = f"{name} is a link to {os.readlink(path)}, which is not there"
    return UserError(what, "fix the link", "dead-link")


def require_no_dead_link(path: Path) -> None:
    """UserError for a link with nothing behind it, which looks as if no file were there."""
    if os.path.islink(path) and not os.path.exists(path):
        raise dead_link(str(path), path)


def media_folder(lines: Path, root: str) -> Path:
    """What paths in the lines of a file are relative to."""
    return expanded(root) if root else lines.parent


def require_root(key: str, root: str, cwd: Path) -> None:
    """UserError for a folder of media that is none; `key`: what it was typed after."""
    if not root:
        return
    path = cwd / expanded(root)
    if not os.path.exists(path):
        raise missing(key, root, cwd)
    require_directory(f"{key}={root}", path)


def check_options(root: str, answers: str = "", columns: Mapping[Any, str] = MappingProxyType({})) -> str:
    """Of `podwright data check`, so that it judges lines as a run does with this data.root, these data.columns and a schema of answers in
    this file."""
    style: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "allow_unicode": True, "width": math.inf}
    named = yaml.dump(dict(columns), Dumper=Dumper, **style).strip() if columns else ""
    given = (("--answers", answers), ("--root", root), ("--columns", named))
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value)


def _nearest(name: str, folder: Path, cutoff: float) -> str:
    """The most similar name in a folder, what they share as the suffix of a data file left aside; "" where none is similar."""
    try:
        names = {_bare(known): known for known in sorted(os.listdir(folder))}
    except OSError:
        return ""
    for known in names.values():
        if known.strip() == name.strip() and known != name:
            return known
    nearest = difflib.get_close_matches(_bare(name), list(names), 1, cutoff)
    return names[nearest[0]] if nearest else ""


def _bare(name: str) -> str:
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in _SUFFIXES else name


def require_file_or_directory(key: str, path: Path) -> None:
    """UserError for what can be neither read to its end nor listed: a device, a pipe, a socket; and for what may not be looked at."""
    if os.path.islink(path) and not os.path.exists(path):
        raise dead_link(key, path)
    try:
        mode = path.stat().st_mode
    except OSError as e:
        error = from_os(e, path) or UserError(str(e), "check the path", "unreadable")
        raise UserError(f"{key}: {error.what}", error.fix, "unreadable") from e
    except ValueError as e:  # a null byte
        raise UserError(f"{key}: {e}", "check the path", "unreadable") from e
    for is_kind, kind in _KINDS.items():
        if is_kind(mode):
            raise UserError(f"{key} is {kind}, not a file", "give a file or a directory", "not-a-file")


def require_all_numbered(folder: str, names: Iterable[str]) -> None:
    """UserError where files named like train-00001-of-00003.parquet lack some of their numbers, or are of two such sets."""
    numbers: dict[str, dict[int, set[int]]] = {}
    for name in names:
        if match := _NUMBERED.match(name):
            numbers.setdefault(match["stem"], {}).setdefault(int(match["total"]), set()).add(int(match["number"]))
    for stem, by_total in numbers.items():
        if len(by_total) > 1:
            sizes = " and ".join(map(str, sorted(by_total)))
            what = f"{folder} holds {stem} files of {sizes}, which are two sets"
            raise UserError(what, "remove one of the two", "files-missing")
        ((total, present),) = by_total.items()
        first = int(total in present)  # some writers count from 1
        lacking = total - sum(first <= number < first + total for number in present)
        if lacking:
            what = f"{folder} lacks {lacking:,} of the {total:,} {stem} files"
            raise UserError(what, "copy or fetch the whole set again", "files-missing")


def require_file(key: str, path: Path) -> None:
    """As `require_file_or_directory`, and a directory is none either."""
    require_file_or_directory(key, path)
    if path.is_dir():
        raise UserError(f"{key} is a directory, not a file", "name a file in it", "not-a-file")


def require_weights(key: str, source: str, path: Path, fix: str, words: Sequence[str] = ("random",)) -> None:
    """UserError where no file is at the `path` of key=source: with `fix` where nothing is, else with what is there."""
    if path.is_file():
        return
    if os.path.lexists(path):
        require_file(f"{key}={source}", path)
    if not looks_like_file(source):
        guess = nearest(source, list(words))
        if guess:
            fix = f"did you mean {key}={guess}?"
    raise UserError(f"{key}={source} is not there", fix, "no-such-file")


def require_directory(key: str, path: Path) -> None:
    require_file_or_directory(key, path)
    if not path.is_dir():
        raise UserError(f"{key} is a file, not a directory", "name the directory that it lies in", "not-a-directory")


def require_new_directory(typed: str, path: Path) -> None:
    """UserError where a directory that is to be written would replace something; an empty one may be there."""
    fix = "name a directory that does not exist yet or is empty"
    if path.exists() and not path.is_dir():
        raise UserError(f"{typed} is a file, and a directory is written", fix, "not-a-directory")
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{typed} is there already and not empty", fix, "exists-already")


def give_default_modes(folder: Path) -> None:
    """Every file below `folder` is as a new one of this user, by the umask: safetensors writes files that nobody else may read."""
    probe = folder / f".{os.getpid()}.mode"
    probe.touch()
    for path in filter(Path.is_file, folder.rglob("*")):
        shutil.copymode(probe, path)
    probe.unlink()
