"""From a name or a file plus dotted overrides to a typed recipe, with errors that say what to type."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from podwright.errors import UserError, both_ends, expanded, nearest, visible
from podwright.recipe import answers, kinds, multimodal
from podwright.recipe.kinds import Recipe
from podwright.recipe.schema import RefusedValue
from podwright.recipe.wrong_values import in_words, shown
from podwright.recipe.yaml_file import SHIPPED, Dumper, Loader, fault_of, read, scalars

Raw = dict[str, Any]
"""a recipe as its file has it"""
R = TypeVar("R", bound=BaseModel)
_STORED = "recipe.json"  # of a run, with every key that there was when it began


def shipped() -> dict[str, Path]:
    return {p.stem: p for p in sorted(SHIPPED.glob("*.yaml"))}


def load(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe `name_or_path` (a shipped name, a YAML file or the recipe.json of a run) with `key.path=value` overrides applied."""
    path = _find(name_or_path)
    raw = read(path)
    schema = kinds.find(raw.get("kind")).schema
    if tables := _tables(schema):
        raw |= scalars(path, tables)
    for name, texts in scalars(path, _of_texts(schema)).items():
        for key, text in texts.items():
            if not isinstance(raw[name].get(key), str | None):  # 0.10 is a version, and not the number 0.1
                raw[name][key] = text
    return _parse_with(multimodal.completed(raw) if path.name == _STORED else raw, overrides)


def exists(name_or_path: str) -> bool:
    """Whether a shipped recipe, a file or a directory has this name."""
    return name_or_path in shipped() or (bool(name_or_path.strip()) and expanded(name_or_path).exists())


def settled(raw: Raw) -> Raw:
    """`raw` checked, with every default."""
    return parse(raw).model_dump(mode="json")


def written(raw: Raw) -> str:
    """A recipe as a file."""
    return yaml.dump(raw, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=140)


def override(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """`recipe` with `key.path=value` overrides applied."""
    return _parse_with(recipe.model_dump(mode="json"), overrides)


def _parse_with(raw: Raw, overrides: Sequence[str]) -> Recipe:
    before, data = _steps(raw), copy.deepcopy(raw.get("data"))
    for text in overrides:
        _override(raw, text)
    section = raw.get("data")
    unlike = 0 < _steps(raw) < before or section != data
    if unlike and not any(text.startswith("expect") for text in overrides):
        raw = _without_figure(raw)
    if raw.get("kind") == "multimodal" and isinstance(section, dict) and "answers" in section:
        raw["data"] = section | {"answers": answers.content(section["answers"])}
    return parse(raw)


def without_effect(overrides: Sequence[str]) -> list[str]:
    """A sentence for each override whose key, or the section around it, is set again by a later one, which counts."""
    sentences = []
    for number, text in enumerate(overrides, 1):
        key = text.partition("=")[0]
        for later in overrides[number:]:
            if f"{key}.".startswith(f"{later.partition('=')[0]}."):
                sentences.append(f"{text} has no effect: {later} comes after it")
                break
    return sentences


def unused(overrides: Sequence[str], read: Sequence[str], use: str) -> list[str]:
    """A sentence for each override of which `use` reads nothing; `read`: the keys and sections that it reads."""
    sentences = []
    for text in overrides:
        key = text.partition("=")[0] + "."
        if not any(key.startswith(f"{name}.") or f"{name}.".startswith(key) for name in read):
            sentences.append(f"{text} has no effect on {use}: leave it out")
    return sentences


def _steps(raw: Raw) -> float:
    """The steps of training that a recipe names; infinite where it counts in epochs, or names none that can be read."""
    training = raw.get("training")
    steps = training.get("max_steps") if isinstance(training, dict) else None
    return steps if isinstance(steps, int) and steps else math.inf


def smoke(recipe: Recipe, steps: int) -> Recipe:
    """`recipe` cut down to `steps` steps and little data, to see whether the whole path works."""
    raw = recipe.model_dump(mode="json")
    for key, value in kinds.find(recipe.kind).smoke(recipe, steps).items():
        section, _, name = key.partition(".")
        raw[section][name] = value
    return parse(_without_figure(raw))


def _without_figure(raw: Raw) -> Raw:
    """`raw` of a run that is shorter than what the author of the recipe measured, or on other data: nothing is expected of its result."""
    if isinstance(expect := raw.get("expect"), dict):
        raw["expect"] = expect | {"value": None, "evidence": ""}
    return raw


def parse(raw: Raw) -> Recipe:
    schema = kinds.find(raw.get("kind")).schema
    try:
        return schema.model_validate(raw)
    except ValidationError as e:
        raise _explain(e, schema) from e


def stored(raw: Raw) -> Recipe:
    """A recipe as a run or an export keeps it; keys that it is too old for have the value that they stand for there."""
    return parse(multimodal.completed(raw))


def require(recipe: Recipe, schema: type[R]) -> R:
    """`recipe`, which has to be of the kind with that schema; else UserError."""
    if not isinstance(recipe, schema):
        (kind,) = get_args(schema.model_fields["kind"].annotation)
        raise UserError(f"{recipe.name} is a recipe of kind {recipe.kind}", f"name one of kind {kind}", "other-kind")
    return recipe


def fingerprint(recipe: Recipe) -> str:
    """Twelve hex digits that are equal exactly when two resolved recipes are."""
    return fingerprint_of(recipe.model_dump(mode="json"))


def fingerprint_of(raw: Any) -> str:
    """The same of what a recipe.json holds, whichever version wrote it."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:12]


def fields(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Every dotted key of `model` with its meaning."""
    meanings: dict[str, str] = {}
    for name, field in model.model_fields.items():
        section = _section(field.annotation)
        if section is None:
            meanings[prefix + name] = field.description or ""
        else:
            meanings |= fields(section, f"{prefix}{name}.")
    return meanings


def _section(annotation: Any) -> type[BaseModel] | None:
    for option in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(option, type) and issubclass(option, BaseModel) and "tuple" not in str(annotation):
            return option
    return None


def _find(name_or_path: str) -> Path:
    names = shipped()
    if name_or_path in names:
        return names[name_or_path]
    path = expanded(name_or_path)
    if path.is_file():
        return path
    if name_or_path and path.is_dir():
        raise UserError(f"{name_or_path} is a folder, and a recipe is a YAML file", _in_folder(path), "not-a-file")
    if path.suffix in (".yaml", ".yml"):
        raise UserError(f"there is no recipe file {name_or_path}", "check the path", "no-such-file")
    fix = "`podwright recipes list` shows all"
    if guess := nearest(name_or_path, list(names)):
        fix = f"did you mean {guess}? {fix}"
    raise UserError(f"there is no recipe {name_or_path!r}", fix, "unknown-recipe")


def _in_folder(path: Path) -> str:
    """What to type in place of a folder: the recipe of a run, or the YAML file there."""
    candidates = [path / _STORED, *sorted(path.glob("*.y*ml"))]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        return "give a YAML file; `podwright recipes list` shows shipped recipes"
    return f"type {shlex.quote(str(file))}"


def _override(raw: Raw, text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(
            f"{text!r} is not an override", "write key.path=value, for example training.max_steps=10", "not-an-override"
        )
    if key == "kind":
        raise UserError(
            f"{text}: the kind of a recipe cannot be changed",
            "name a recipe of that kind; `podwright recipes list`",
            "other-kind",
        )
    model = kinds.find(raw.get("kind")).schema
    table, _, entry = key.partition(".")
    if entry and table in _tables(model):
        held = raw.get(table)
        raw[table] = (held if isinstance(held, dict) else {}) | {entry: _text_of(key, value)}
        return
    known = list(fields(model))
    sections = {k.rsplit(".", 1)[0] for k in known if "." in k}
    if key not in known and key not in sections:
        raise _unknown(key, known)
    parsed = _text_of(key, value) if _is_text(model, key) else value_of(key, value)
    *path, last = key.split(".")
    here = raw
    for part in path:
        if not isinstance(here.get(part), dict):
            here[part] = {}
        here = here[part]
    here[last] = "" if parsed is None and _is_text(model, key) else parsed


def value_of(key: str, value: str) -> Any:
    """What is typed behind an equals sign, as YAML."""
    try:
        return yaml.load(value, Loader)
    except yaml.YAMLError as e:
        raise UserError(f"{key}={value} cannot be read as a value: {fault_of(e)[1]}", "quote it", "not-yaml") from e


def _text_of(key: str, value: str) -> Any:
    """The same where a text is wanted: as it is typed, without the quotes around it."""
    return value_of(key, value) if value.startswith(("'", '"')) else value


def _tables(model: type[BaseModel]) -> list[str]:
    """Sections that have keys of another program, which are not listed here: any key may be typed, and its value is a text."""
    return [name for name, field in model.model_fields.items() if get_origin(field.annotation) is dict]


def _of_texts(model: type[BaseModel]) -> list[str]:
    """Sections whose values are all texts."""
    sections = {name: _section(field.annotation) for name, field in model.model_fields.items()}
    return [
        name
        for name, section in sections.items()
        if section and all(f.annotation is str for f in section.model_fields.values())
    ]


def _is_text(model: type[BaseModel], key: str) -> bool:
    """Whether nothing after the equals sign is an empty text, and not the absence of a value."""
    *path, last = key.split(".")
    for part in path:
        model = _section(model.model_fields[part].annotation) or model
    return last in model.model_fields and model.model_fields[last].annotation is str


def _unknown(key: str, known: list[str]) -> UserError:
    leaf = key.rsplit(".", 1)[-1]
    same_leaf = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    fix = "`podwright recipes show NAME` lists all keys"
    guess = nearest(key, same_leaf, cutoff=0) or nearest(key, known)
    if guess:
        fix = f"did you mean {guess}?"
    elif "arguments" in known and "." not in key:
        fix = f"type arguments.{key}=VALUE, if MaxText has it; {fix}"
    return UserError(f"unknown key {key}", fix, "unknown-key")


def _explain(error: ValidationError, model: type[BaseModel]) -> UserError:
    """The first fault of a recipe as one line."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(key, list(fields(model)))
    if first["type"] == "missing":
        meaning = fields(model).get(key)
        return UserError(f"{key} is missing", f"type {key}=VALUE{f': {meaning}' if meaning else ''}", "missing-key")
    message = in_words(first)
    if first["loc"][-1:] == ("[key]",):  # of a table whose keys are a choice
        *table, name, _ = map(str, first["loc"])
        return UserError(f"{'.'.join(table)}: its key {visible(name)} {message}", "change this key", "unknown-key")
    refused = first.get("ctx", {}).get("error")
    if isinstance(refused, RefusedValue):
        return UserError(message, refused.fix, "wrong-value")
    meaning = fields(model).get(key, "")
    given = f"{visible(key)}={both_ends(shown(first['input']))}"
    return UserError(f"{given}: {message}", f"{key}: {meaning}" if meaning else "change this value", "wrong-value")
