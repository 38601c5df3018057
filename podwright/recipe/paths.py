"""What a value that names weights or data stands for: a path of this machine, or an id of the Hugging Face hub. By its look alone."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from podwright.errors import UserError, expanded, from_os, nearest, visible

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[\w.-]{1,95})?")
_MISSPELT, _LIKE = 0.85, 0.7  # how like a name that is here: so that it is that name misspelt, and so that it may be
_SUFFIXES = {".jsonl", ".json", ".parquet", ".csv", ".tsv", ".txt", ".arrow", ".npy", ".array_record", ".gz", ".zip"}
_SUFFIXES |= {".tar", ".zst", ".bin", ".pt", ".pth", ".safetensors", ".gguf", ".yaml", ".py"}
# What people call the folders in which weights and data lie; nobody's name on the hub.
_FOLDERS = {"data", "dataset", "datasets", "model", "models", "checkpoint", "checkpoints", "weights", "runs", "out"}
_FOLDERS |= {"output", "outputs", "corpus", "shared", "tmp"}
_NUMBERED = re.compile(r"(?P<stem>.+?)[-_.](?P<number>\d+)-of-(?P<total>\d+)\b")
_ON_HUB = re.compile(r"huggingface\.co/(?:datasets/)?([\w.-]+/[\w.-]+)/?$")
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
    if os.path.lexists(cwd / source) or (slash and (folder.lower() in _FOLDERS or os.path.lexists(cwd / folder))):
        return True
    return bool(_nearest(folder, cwd, _MISSPELT))


def looks_like_file(source: str) -> bool:
    """Whether a value can be no id of the hub, whatever lies where it is typed."""
    return not _HUB_ID.fullmatch(source) or Path(source).suffix.lower() in _SUFFIXES


def is_hub_id(typed: str, path: Path) -> bool:
    """Whether a value with nothing at its `path` is OWNER/NAME, and no folder of that owner's name is there."""
    return "/" in typed and not looks_like_file(typed) and not os.path.exists(path.parent)


def missing(key: str, source: str, cwd: Path) -> UserError:
    """An error for a path with nothing there, with the nearest name beside the first part of it that is not there."""
    if "://" in source:
        return _url(key, source)
    path = cwd / expanded(source)
    if os.path.islink(path):
        return dead_link(f"{key}={source}", path)
    what = f"{key}={visible(source)} is not there"
    parts = [*reversed(path.parents), path]
    absent_part = next((part for part in parts if not os.path.exists(part)), path)
    guess = _nearest(absent_part.name, absent_part.parent, _LIKE)
    near = absent_part.with_name(guess or absent_part.name) / path.relative_to(absent_part)
    if os.path.exists(near):
        typed = near.relative_to(cwd) if near.is_relative_to(cwd) and not source.startswith(("/", "~")) else near
        return UserError(what, f"did you mean {shlex.quote(f'{key}={typed}')}?")
    if looks_like_file(source) or "/" not in source:
        return UserError(what, "check the path")
    return UserError(
        what, f"check the path; on the Hugging Face hub an id is OWNER/NAME, and {source} is taken for a path"
    )


def _url(key: str, source: str) -> UserError:
    """An error for a URL where a path of this machine is read."""
    scheme, _, rest = source.partition("://")
    what = f"{key}={source} is a URL, and files are read from this machine here"
    of_hub = _ON_HUB.match(rest)
    if of_hub or scheme == "file":
        return UserError(what, f"type {shlex.quote(f'{key}={of_hub[1] if of_hub else rest}')}")
    return UserError(what, "copy it to this machine, and give its path")


def no_tokenizer(typed: str, path: Path) -> UserError:
    """Of a tokenizer, `path` where it was `typed`, that is not there or has no tokenizer.json."""
    if os.path.exists(path):
        return UserError(
            f"{typed} has no tokenizer.json", "give a Hugging Face directory that was saved with a fast tokenizer"
        )
    if guess := nearest(typed, ["bytes"]):
        return UserError(f"there is no tokenizer {typed}", f"did you mean {guess}?")
    if looks_like_file(typed) or ("/" in typed and not is_hub_id(typed, path)):
        return absent(typed, path)
    folder = shlex.quote(typed.rpartition("/")[2])
    what = f"there is no directory {typed}: a tokenizer is read from this machine, ids of the Hugging Face hub are not fetched"
    fetched = f"hf download {shlex.quote(typed)} tokenizer.json tokenizer_config.json --local-dir {folder}"
    return UserError(what, f"type {fetched}, and give {folder} in its place")


def absent(typed: str, path: Path) -> UserError:
    """Of a path of this machine that is not an override's value, with nothing there."""
    if os.path.islink(path):
        return dead_link(typed, path)
    guess = _nearest(path.name, path.parent, _LIKE)
    near = str(Path(typed).with_name(guess)) if guess and typed.strip("/.") else ""
    return UserError(
        f"there is no {visible(typed)}", f"did you mean {shlex.quote(near)}?" if near else "check the path"
    )


def dead_link(name: str, path: str | Path) -> UserError:
    """Of a link that leads to nothing, or back to itself."""
    try:
        os.stat(path)
    except OSError as e:
        if e.errno == errno.ELOOP:
            return UserError(f"{name} is a link to {os.readlink(path)}, and its links lead in a circle", "fix the link")
    return UserError(f"{name} is a link to {os.readlink(path)}, which is not there", "fix the link")


def require_no_dead_link(path: Path) -> None:
    """UserError for a link with nothing behind it, which looks as if no file were there."""
    if os.path.islink(path) and not os.path.exists(path):
        raise dead_link(str(path), path)


def media_folder(lines: Path, root: str, cwd: Path | None = None) -> Path:
    """What paths in the lines of a file are relative to."""
    if not root:
        return lines.parent
    return (cwd or Path()) / expanded(root)


def require_root(key: str, root: str, cwd: Path) -> None:
    """UserError for a folder of media that is none; `key`: what it was typed after."""
    if not root:
        return
    path = cwd / expanded(root)
    if not os.path.exists(path):
        raise missing(key, root, cwd)
    require_directory(f"{key}={root}", path)


def check_options(root: str, answers: str = "") -> str:
    """Of `podwright data check`, so that it judges lines as a run does with this data.root and a schema of answers in this file."""
    given = (("--answers", answers), ("--root", root))
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given if value)


def project_root(names: Sequence[str], lines: Path, cwd: Path) -> str:
    """The nearest folder above a file of lines, or the working directory, below which all files of these names are; "" where there is
    none. As it is typed: the working directory is ".".
    """
    relative = [name for name in names if not os.path.isabs(name)]
    for folder in (cwd, *(cwd / lines).resolve().parent.parents) if relative else ():
        if all(os.path.isfile(folder / name) for name in relative):
            return "." if folder == cwd else str(folder)
    return ""


def _nearest(name: str, folder: Path, cutoff: float) -> str:
    """The most similar name in a folder, what they share as the suffix of a data file left aside; "" where none is similar."""
    try:
        names = {_bare(known): known for known in sorted(os.listdir(folder))}
    except OSError:
        return ""
    spaced = next((known for known in names.values() if known.strip() == name.strip() and known != name), "")
    return spaced or next(
        (names[known] for known in difflib.get_close_matches(_bare(name), list(names), 1, cutoff)), ""
    )


def _bare(name: str) -> str:
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in _SUFFIXES else name


def require_file_or_directory(key: str, path: Path) -> None:
    """UserError for what can be neither read to its end nor listed: a device, a pipe, a socket; and for what may not be looked at."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as e:  # ValueError: a null byte
        if os.path.islink(path) and not os.path.exists(path):
            raise dead_link(key, path) from e
        error = from_os(e, path) if isinstance(e, OSError) else None
        raise UserError(f"{key}: {error.what if error else e}", error.fix if error else "check the path") from e
    if kind := next((kind for is_kind, kind in _KINDS.items() if is_kind(mode)), ""):
        raise UserError(f"{key} is {kind}, not a file", "give a file or a directory")


def require_all_numbered(folder: str, names: Iterable[str]) -> None:
    """UserError where files named like train-00001-of-00003.parquet lack some of their numbers, or are of two such sets."""
    numbers: dict[str, dict[int, set[int]]] = {}
    for name in names:
        if match := _NUMBERED.match(name):
            numbers.setdefault(match["stem"], {}).setdefault(int(match["total"]), set()).add(int(match["number"]))
    for stem, by_total in numbers.items():
        if len(by_total) > 1:
            sizes = " and ".join(map(str, sorted(by_total)))
            raise UserError(f"{folder} holds {stem} files of {sizes}, which are two sets", "remove one of the two")
        ((total, present),) = by_total.items()
        first = int(total in present)  # some writers count from 1
        wanted = range(first, first + total)  # by a name, which may say any number
        lacking = total - sum(number in wanted for number in present)
        if lacking:
            listed = [number for number in wanted[: len(present) + 5] if number not in present][:5]
            what = f"{folder} lacks {lacking:,} of the {total:,} {stem} files: number {', '.join(map(str, listed))}"
            raise UserError(what + (" and others" if lacking > 5 else ""), "copy or fetch the whole set again")


def require_file(key: str, path: Path) -> None:
    """As `require_file_or_directory`, and a directory is none either."""
    require_file_or_directory(key, path)
    if path.is_dir():
        raise UserError(f"{key} is a directory, not a file", "name a file in it")


def require_weights(key: str, source: str, path: Path, fix: str, words: Sequence[str] = ("random",)) -> None:
    """UserError where no file is at the `path` of key=source: with `fix` where nothing is, else with what is there."""
    if path.is_file():
        return
    if os.path.lexists(path):
        require_file(f"{key}={source}", path)
    if not looks_like_file(source) and (guess := nearest(source, list(words))):
        raise UserError(f"there is no {key}={source}", f"did you mean {key}={guess}?")
    raise UserError(f"{key}={source} is not there", fix)


def require_directory(key: str, path: Path) -> None:
    require_file_or_directory(key, path)
    if not path.is_dir():
        raise UserError(f"{key} is a file, not a directory", "name the directory that it lies in")


def require_new_directory(typed: str, path: Path) -> None:
    """UserError where a directory that is to be written would replace something; an empty one may be there."""
    fix = "name a directory that does not exist yet or is empty"
    if path.exists() and not path.is_dir():
        raise UserError(f"{typed} is a file, and a directory is written", fix)
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{typed} is there already and not empty", fix)
