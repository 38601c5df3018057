"""The user's own file of targets: what is true of machines and of nobody's recipe. Reads, checks and adds entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from podwright import slices
from podwright.accelerators import ACCELERATORS
from podwright.errors import UserError, both_ends, expanded, nearest
from podwright.recipe.wrong_values import in_words
from podwright.recipe.yaml_file import fault_of, once
from podwright.rundir import Record, replace_file
from podwright.shell import targets_file
from podwright.targets import kinds
from podwright.targets.base import Settings

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class FileFault(UserError):
    """The file as such cannot be read, whichever entry is wanted."""


class _TextLoader(yaml.BaseLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        return once(super().compose_mapping_node(anchor))


def names() -> list[str]:
    return list(_entries())


def find(name: str) -> Settings | None:
    """The target called `name`; None when there is none. UserError when its entry is wrong, or has the name of something else."""
    entries = _entries()
    if name not in entries:
        return None
    if fault := _name_fault(name):
        raise UserError(f"{targets_file()} has a target {name!r}: {fault}", "give it another name there", "wrong-name")
    return _parse(name, entries[name], str(targets_file()))


def _name_fault(name: str) -> str:
    """Why a target cannot be called `name`; "" where it can."""
    if is_reserved(name):
        return "it is the name of this machine, a slice or an accelerator"
    if not _NAME.fullmatch(name):
        return "a name begins with a letter, and has letters, digits, '.', '_' and '-' alone"
    return ""


def require(name: str) -> Settings:
    settings = find(name)
    if settings is None:
        guess = nearest(name, names())
        fix = f"did you mean {guess}?" if guess else "`podwright target list` shows yours"
        raise UserError(f"there is no target {name!r} in {targets_file()}", fix, "no-such-target")
    return settings


def proposals(pairs: Sequence[str]) -> dict[str, str]:
    """Values for keys that an entry of `pairs` must have and lacks, where the tools of its kind know them."""
    given = dict(pair.partition("=")[::2] for pair in pairs)
    if given.get("kind") not in kinds.configured():
        return {}
    fields = kinds.settings_class(given["kind"]).model_fields
    if all(key in given for key, field in fields.items() if field.is_required()):
        return {}
    return {key: value for key, value in kinds.proposals(given["kind"], given).items() if key not in given}


def add(name: str, pairs: Sequence[str]) -> Settings:
    """Write a new entry at the end of the file; what stands there stays as it is."""
    path = targets_file()
    if fault := _name_fault(name):
        raise UserError(f"{name!r} cannot be the name of a target: {fault}", "take another name", "wrong-name")
    if name in _entries():
        raise UserError(
            f"there is a target {name!r} already", f"change it in {path}, or take another name", "name-taken"
        )
    entry: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in entry:
            raise UserError(
                f"{pair!r} sets nothing, or a key again", "write each key once, such as partition=gpu", "no-key-value"
            )
        try:
            entry[key] = yaml.load(value, yaml.BaseLoader) if value.strip() else ""
        except yaml.YAMLError:
            entry[key] = value
    settings = _parse(name, entry)
    checkout = getattr(settings, "recipes", "")
    if checkout and not expanded(checkout).is_dir():
        raise UserError(
            f"target {name!r}: recipes={checkout} is no directory", "clone tpu-recipes there", "no-such-folder"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    after = before + gap + yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True)
    _write(path, after, _entries() | {name: entry}, f"{name!r} cannot be added at the end of {path}")
    return settings


def remove(name: str) -> None:
    """Remove an entry with its lines; comments and the other entries stay as they are. UserError for a name that is not there."""
    path = targets_file()
    entries = _entries()
    if name not in entries:
        require(name)
    text = path.read_text()
    root = yaml.compose(text, yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode)
    begin, end = next((k.start_mark.line, v.end_mark) for k, v in root.value if k.value == name)
    lines = text.splitlines(keepends=True)
    last = end.line if end.column else end.line - 1
    while last > begin and lines[last].strip()[:1] in ("", "#"):  # a block ends where the next one begins
        last -= 1
    after = "".join(lines[:begin] + lines[last + 1 :])
    others = {key: value for key, value in entries.items() if key != name}
    _write(path, after, others, f"the lines of {name!r} in {path} hold more than this target")


def _write(path: Path, text: str, entries: dict[str, Any], refusal: str) -> None:
    """Replace the file of targets by one with these entries; UserError with `refusal` if `text` holds others."""
    try:
        written = yaml.load(text, _TextLoader) or {}
    except yaml.YAMLError:
        written = None
    if written != entries:
        raise UserError(refusal, "change the file by hand", "file-not-changed")
    replace_file(path, text.encode())


def is_reserved(name: str) -> bool:
    """Whether --on takes the name for this machine or a slice, or it is that of an accelerator."""
    if name == "local" or name in {accelerator.name for accelerator in ACCELERATORS}:
        return True
    try:
        slices.parse(name)
    except UserError:
        return False
    return True


def _entries() -> dict[str, Any]:
    """Every entry as it stands, all values as text: YAML takes 24:00:00 for a number."""
    path = targets_file()
    if path.exists() and not path.is_file():
        raise FileFault(f"{path} is no regular file", "name a file in PODWRIGHT_TARGETS", "no-regular-file")
    try:
        entries = yaml.load(path.read_text(), _TextLoader)
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise FileFault(
            f"{path} cannot be read: {e.strerror}", "name another file in PODWRIGHT_TARGETS", "unreadable"
        ) from e
    except UnicodeDecodeError as e:
        raise FileFault(f"{path} is not text", "name another file in PODWRIGHT_TARGETS", "not-text") from e
    except yaml.YAMLError as e:
        line, fault = fault_of(e)
        where = f" line {line}" if line else ""
        raise FileFault(f"{path}{where} is not YAML: {fault}", "fix it there", "not-yaml") from e
    if entries in (None, ""):
        return {}
    if not isinstance(entries, dict):
        raise FileFault(
            f"{path} holds no mapping of names", "write NAME:, and indented below it kind: slurm", "no-mapping"
        )
    return entries


def _parse(name: str, entry: Any, file: str = "") -> Settings:
    """`file`: that has the entry; "" of one that was typed."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind not in kinds.configured():
        what = f"target {name!r} has {'no kind' if kind is None else f'kind={flow(kind)}'}"
        raise UserError(what, f"known: kind={', kind='.join(kinds.configured())}", "unknown-kind")
    model = kinds.settings_class(kind)
    try:
        return cast(Settings, model.model_validate(entry))
    except ValidationError as e:
        faults = e.errors()
        first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
        raise _wrong(name, model, first, file) from None


def _wrong(name: str, model: type[BaseModel], fault: ErrorDetails, file: str) -> UserError:
    """What is wrong with a key of target `name`. A value of a list is not shown: it may be a secret."""
    path = fault["loc"]
    key = ".".join(map(str, path))
    fix = f"fix it in {file}" if file else "correct it"
    match fault["type"]:
        case "extra_forbidden":
            guess = nearest(key, list(model.model_fields))
            fix = f"did you mean {guess}?" if guess else "leave it out"
            return UserError(f"target {name!r} has no key {key!r}", fix, "unknown-key")
        case "missing":
            fix = f"set it in {file}" if file else f"add {key}=... to the command"
            return UserError(f"target {name!r}: {key} is missing", fix, "missing-key")
        case "tuple_type" | "string_type" if fault["type"] == "tuple_type" or len(path) > 1:
            return UserError(
                f"target {name!r}: {path[0]} is no list of plain words", f"write {path[0]}=[FIRST, SECOND]", "no-list"
            )
    if not key:
        return UserError(f"target {name!r}: {in_words(fault)}", fix, "wrong-value")
    if fault["type"] == "value_error" and not isinstance(fault["input"], str):  # the message names the word of the list
        return UserError(f"target {name!r}: {key}: {in_words(fault)}", fix, "wrong-value")
    return UserError(
        f"target {name!r}: {key}={both_ends(flow(fault['input']), 60)} {in_words(fault)}", fix, "wrong-value"
    )


def require_accepted(identity: Record) -> None:
    """UserError where the settings that a run has recorded, and whose entry is gone, hold what an entry may not have now."""
    if identity["kind"] not in kinds.configured() or identity["target"] in names():
        return
    settings = kinds.recorded_settings(identity["kind"], identity["settings"])
    name = identity["target"]
    try:
        _parse(name, settings.model_dump(mode="json", exclude_defaults=True))
    except UserError as e:
        fix = f"type podwright target add {name} kind={identity['kind']} with the corrected settings"
        raise UserError(f"{e.what} (recorded by the run)", fix, e.code) from e


def flow(value: Any) -> str:
    """A value on one line, as it can be typed."""
    if value is None or isinstance(value, str):
        return value or ""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip().removesuffix("...").strip()  # the end of a document, after a single word
