"""The user's own file of targets: what is true of machines and of nobody's recipe. Reads, checks and adds entries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ValidationError

from podwright import slices
from podwright.accelerators import ACCELERATORS
from podwright.errors import UserError, expanded, from_os, nearest
from podwright.recipe.wrong_values import in_words
from podwright.recipe.yaml_file import fault_of, once
from podwright.rundir import Record, replace_file
from podwright.shell import targets_file
from podwright.targets import kinds
from podwright.targets.base import Settings
from podwright.targets.settings.env import without_value
from podwright.targets.settings.ssh import IPV6

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_ALLOWED = "begin with a letter, and use letters, digits, '.', '_' and '-' alone"
_RESERVED = "it stands for this machine, a slice or an accelerator; take another name"


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
    if name in entries and is_reserved(name):
        what = f"{targets_file()} has a target {name!r}, which is the name of {'this machine' if name == 'local' else 'a slice'}"
        raise UserError(what, "give it another name there")
    if name in entries and not _NAME.fullmatch(name):
        what = f"{targets_file()} has a target {name!r}, which is no name of a target"
        raise UserError(what, f"give it another name there: {_ALLOWED}")
    return _parse(name, entries[name], str(targets_file())) if name in entries else None


def require(name: str) -> Settings:
    settings = find(name)
    if settings is not None:
        return settings
    if is_reserved(name):
        raise UserError(
            f"{name} needs no entry in {targets_file()}", f"type podwright doctor --on {name}"
            if name == "local" else f"it is a slice or an accelerator: type podwright plan RECIPE --on {name}"
        )  # fmt: skip
    known = names()
    guess = nearest(name, known)
    there = f"did you mean {guess}?" if guess else f"there are {', '.join(known)}" if known else "there is none yet"
    raise UserError(
        f"there is no target {name!r} in {targets_file()}", f"{there}; `podwright target add NAME kind=ssh` adds one"
    )


def proposals(pairs: Sequence[str]) -> dict[str, str]:
    """Values for keys that an entry of `pairs` must have and lacks, where the tools of its kind know them."""
    given = dict(pair.partition("=")[::2] for pair in pairs)
    if given.get("kind") not in kinds.configured():
        return {}
    fields = kinds.settings_class(given["kind"]).model_fields
    missing = [key for key, field in fields.items() if field.is_required() and key not in given]
    return kinds.proposals(given["kind"], missing, given)


class MissingKey(UserError):
    """An entry lacks a key that it must have."""

    def __init__(self, what: str, fix: str, key: str):
        super().__init__(what, fix)
        self.key = key


def add(name: str, pairs: Sequence[str]) -> Settings:
    """Write a new entry at the end of the file; what stands there stays as it is."""
    path = _regular_file()
    if not _NAME.fullmatch(name) or is_reserved(name):
        why = _ALLOWED if not _NAME.fullmatch(name) else _RESERVED
        raise UserError(f"{name!r} cannot be the name of a target", why)
    if name in _entries():
        raise UserError(f"there is a target {name!r} already", f"change it in {path}, or take another name")
    entry: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{pair!r} sets nothing", "write KEY=VALUE, for example partition=gpu")
        if key in entry:
            raise UserError(f"{key}= is there twice", "leave one of them out")
        try:
            entry[key] = yaml.load(value, yaml.BaseLoader) if value.strip() else ""
        except yaml.YAMLError:
            entry[key] = value
    settings = _parse(name, entry)
    checkout = getattr(settings, "recipes", "")
    if checkout and not expanded(checkout).is_dir():
        fix = "give the path of a checkout of tpu-recipes, or leave recipes out"
        raise UserError(f"target {name!r}: recipes={checkout} is no directory", fix)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    after = before + gap + yaml.safe_dump({name: entry}, sort_keys=False, allow_unicode=True)
    if not _holds(after, name):
        what = f"nothing can be added at the end of {path}"
        raise UserError(what, "write each entry as NAME: in a line of its own, with its keys indented below it")
    replace_file(path, after.encode(), None)
    return settings


def remove(name: str) -> None:
    """Remove an entry with its lines; comments and the other entries stay as they are. UserError for a name that is not there."""
    path, entries = _regular_file(), _entries()
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
    try:
        left = yaml.load(after, _TextLoader) or {}
    except yaml.YAMLError:
        left = None
    if left != {key: value for key, value in entries.items() if key != name}:
        raise UserError(f"the lines of {name!r} in {path} hold more than this target", "remove it there by hand")
    replace_file(path, after.encode(), None)


def _regular_file() -> Path:
    """The file of targets, to be written; UserError for a device, a pipe or a directory."""
    path = targets_file()
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no regular file, and cannot hold targets", "name a file in PODWRIGHT_TARGETS")
    return path


def _holds(text: str, name: str) -> bool:
    try:
        return name in yaml.load(text, _TextLoader)
    except yaml.YAMLError:
        return False


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
    try:
        entries = yaml.load(path.read_text(), _TextLoader)
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as e:
        raise FileFault(f"{path} is not text", "name another file in PODWRIGHT_TARGETS, or fix it") from e
    except OSError as e:
        known = from_os(e, path)
        what = known.what if known else f"{path} cannot be read: {e}"
        raise FileFault(what, known.fix if known else "name another file in PODWRIGHT_TARGETS") from e
    except yaml.YAMLError as e:
        line, fault = fault_of(e)
        what = f"{path}{f' line {line}' if line else ''} is not YAML: {fault}"
        raise FileFault(what, "fix that line" if line else "name another file in PODWRIGHT_TARGETS, or fix it") from e
    if entries in (None, ""):
        return {}
    if not isinstance(entries, dict):
        raise FileFault(f"{path} holds no mapping of names", "write NAME:, and indented below it kind: slurm")
    return entries


def _parse(name: str, entry: Any, file: str = "") -> Settings:
    """`file`: that has the entry; "" of one that was typed."""
    where, fix = (f" in {file}", f"fix it in {file}") if file else ("", "correct it and type the command again")
    if not isinstance(entry, dict) or entry.get("kind") not in kinds.configured():
        kind = entry.get("kind") if isinstance(entry, dict) else None
        given = "no kind" if kind is None else f"kind={kind!r}" if isinstance(kind, str) else f"kind={flow(kind)}"
        guess = nearest(str(entry["kind"]), kinds.configured()) if isinstance(entry, dict) and "kind" in entry else ""
        known = f"known: kind={', kind='.join(kinds.configured())}"
        raise UserError(
            f"target {name!r}{where} has {given}", f"did you mean kind={guess}? {known}" if guess else known
        )
    model = kinds.settings_class(entry["kind"])
    try:
        return cast(Settings, model.model_validate(entry))
    except ValidationError as e:
        first = next((error for error in e.errors() if error["type"] == "extra_forbidden"), e.errors()[0])
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            same = "bucket" if key == "storage" and "bucket" in model.model_fields else ""
            guess = same or nearest(key, list(model.model_fields))
            fix = f"did you mean {guess}?" if guess else f"delete it in {file}" if file else _known(model)
            others = [kind for kind in kinds.configured() if key in kinds.settings_class(kind).model_fields]
            if others and not same:
                fix = f"{key} is a key of kind={others[0]}; leave it out"
            raise UserError(f"target {name!r} has no key {key!r}", fix) from e
        text, nested = flow(first["input"]), first["type"] in ("tuple_type", "string_type")
        if first["loc"][:1] == ("env",) and nested and (named := without_value(text)) != text:
            what = f"target {name!r}: env has {named!r} with a value: it takes names of variables, never their values"
            raise UserError(what, "write it like env=[HF_TOKEN]") from None
        if first["type"] == "tuple_type":
            raise _no_list(name, key, first["input"]) from e
        if first["type"] == "string_type" and len(first["loc"]) > 1:
            what = f"target {name!r}: {first['loc'][0]} has an entry that is no plain text: {flow(first['input'])}"
            raise UserError(
                what, f"write {first['loc'][0]}=[first, second], without further brackets and colons"
            ) from e
        if first["type"] == "missing":
            what = f"target {name!r}: {key} is missing"
            raise MissingKey(what, f"set it in {file}" if file else f"add {key}=... to the command", key) from e
        shown = (
            isinstance(first["input"], str) or first["type"] != "value_error"
        )  # else the message names the word of a list
        given = "" if not key else f"{key}={flow(first['input'])} " if shown else f"{key}: "
        raise UserError(f"target {name!r}: {given}{in_words(first)}", fix) from e


def require_accepted(identity: Record) -> None:
    """UserError where the settings that a run has recorded, and whose entry is gone, hold what an entry may not have now."""
    if identity["kind"] not in kinds.configured() or identity["target"] in names():
        return
    settings = kinds.recorded_settings(identity["kind"], identity["settings"])
    try:
        _parse(identity["target"], settings.model_dump(mode="json", exclude_defaults=True))
    except UserError as e:
        name = identity["target"]
        what = f"{e.what} (recorded by the run; {targets_file()} has no target {name!r})"
        raise UserError(
            what, f"type podwright target add {name} kind={identity['kind']} with the corrected settings"
        ) from e


def _no_list(name: str, key: str, value: Any) -> UserError:
    """Of what stands where a list of words should."""
    text = flow(value)
    what = f"target {name!r}: {key}={text} is no list of plain words"
    if isinstance(value, dict):
        return UserError(what, f"write {key}=[{', '.join(map(str, value))}]")
    words = text.strip("[]")
    if key == "hosts" and "::" in words:
        return UserError(f"target {name!r}: hosts={text}: an IPv6 address is not taken", IPV6)
    if text.startswith("[") and not text.endswith("]"):
        return UserError(f"target {name!r}: {key}={text} has no closing bracket", f"write {key}=[{words}]")
    listed = ", ".join(words.split()) if key == "ssh" else words  # which takes each word apart
    return UserError(what, f"write {key}=[{listed or 'NAME'}], commas between several")


def flow(value: Any) -> str:
    """A value on one line, as it can be typed."""
    if value is None or isinstance(value, str):
        return value or ""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return text.strip().removesuffix("...").strip()  # the end of a document, after a single word


def _known(model: type[BaseModel]) -> str:
    return f"known: {', '.join(model.model_fields)}"
