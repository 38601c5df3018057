"""Schemas of answers: what may stand in each field, what makes an answer valid, and the one way it is written.

A schema is data, a YAML file such as recipes/answers/ethogram.yaml. Both halves read it: the plan and `podwright data check` judge by it,
training writes by it, decoding is bound to it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from podwright.errors import UserError, expanded, nearest
from podwright.recipe import yaml_file
from podwright.recipe.text_lines import JsonFault, is_encodable, parse_json
from podwright.recipe.wrong_values import shown as typed

DEFAULT = "ethogram"
MEDIA = ("image", "audio", "video")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_KEYS = ("version", "instruction", "fields", "at_least", "texts")
_MOST_RATINGS = 101

FieldFault = tuple[str, str]
"""field, and what is wrong with its value"""
Value = str | int


@dataclasses.dataclass(frozen=True)
class Floor:
    """A rating that is at least `value` where a field has one of certain values."""

    field: str
    value: int
    when: Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class AnswerSchema:
    """Fields are dotted names of values in nested objects, in the order in which they are written."""

    version: str
    instruction: str
    """what a model is asked that was not trained on lines at hand"""
    options: Mapping[str, tuple[Value, ...]]
    """the values of each field that an answer is graded by; whole numbers of a rating"""
    floors: tuple[Floor, ...]
    texts: tuple[str, ...]
    """free texts, written after the fields"""
    file: str = ""
    """that it was read from; "" for a shipped one"""

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.options)

    @property
    def closing(self) -> str:
        """What makes JSON of an answer that ends right after the value of its last field."""
        last = self.fields[-1]
        return ("" if self.is_rating(last) else '"') + "}" * len(last.split("."))

    def is_rating(self, field: str) -> bool:
        return field in self.options and isinstance(self.options[field][0], int)

    def allowed(self, field: str, values: Mapping[str, Any]) -> tuple[Value, ...]:
        """The values of a field that may stand beside those of the fields before it."""
        least = [floor.value for floor in self.floors if floor.field == field and _cause(floor, values)]
        return tuple(v for v in self.options[field] if not least or (isinstance(v, int) and v >= max(least)))

    def flattened(self, answer: dict[str, Any], texts: bool = True) -> dict[str, Any]:
        """Dotted fields of a valid answer, in the order in which it is written; without `texts`, those that are graded."""
        flat: dict[str, Any] = {}
        for field in (*self.fields, *(self.texts if texts else ())):
            here: Any = answer
            for name in field.split("."):
                here = here[name]
            flat[field] = here
        return flat

    def pieces(self, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        """An answer as compact JSON in pieces: (field, text), with "" for the field of what is the same in every answer."""
        slots = {field: f"<{n}>" for n, field in enumerate((*self.fields, *self.texts))}
        rest = json.dumps(nested(dict(slots)), separators=(",", ":"))
        parts = []
        for field, slot in slots.items():
            before, _, rest = rest.partition(f'"{slot}"' if self.is_rating(field) else slot)
            parts += [("", before), (field, written(values[field]))]
        return [*parts, ("", rest)]

    def answer_faults(self, answer: Any) -> Iterator[FieldFault]:
        """What is wrong with a parsed answer."""
        if not isinstance(answer, dict):
            yield "response", f"{shown(answer)} is not an object"
            return
        yield from self._unknown(answer)
        values: dict[str, Any] = {}
        for field in (*self.fields, *self.texts):
            value = _at(answer, field)
            if wrong := self._wrong(field, value):
                yield field, wrong
            else:
                values[field] = value
        for floor in self.floors:
            if floor.field in values and values[floor.field] < floor.value and (cause := _cause(floor, values)):
                yield floor.field, f"{values[floor.field]} is below {floor.value}, the least for {cause}"

    def line_faults(self, line: Mapping[str, Any]) -> Iterator[FieldFault]:
        """What is wrong with one row of a file, without looking at its media."""
        for field in ("instruction", "response"):
            value = line.get(field)
            if not isinstance(value, str) or not value.strip():
                yield field, "is missing" if field not in line else f"{shown(value)} is not a text"
            elif not is_encodable(value):
                yield field, f"{shown(value)} holds half a character (a lone surrogate)"
        given = [name for name in MEDIA if name in line]
        if not given:
            yield "image", "is missing, and so are audio and video; a line needs one of them"
        for name in given:
            if not isinstance(line[name], str) or not line[name]:
                yield name, f"{shown(line[name])} is not a path"
        response = line.get("response")
        if isinstance(response, str) and response.strip() and is_encodable(response):
            try:
                answer = parse_json(response.encode())
            except JsonFault as e:
                yield "response", f"{shown(response)} is not JSON ({e})"
            else:
                yield from self.answer_faults(answer)

    def _wrong(self, field: str, value: Any) -> str:
        if value is None:
            return "is missing"
        if field in self.texts:
            is_text = isinstance(value, str) and value.strip() and is_encodable(value)
            return "" if is_text else f"{shown(value)} is not a text"
        known = self.options[field]
        if self.is_rating(field):
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            return (
                ""
                if is_integer and value in known
                else f"{shown(value)} is not a whole number from {known[0]} to {known[-1]}"
            )
        return (
            ""
            if isinstance(value, str) and value in known
            else f"{shown(value)} is none of {', '.join(map(str, known))}"
        )

    def _unknown(self, answer: dict[str, Any]) -> Iterator[FieldFault]:
        """Keys that would be lost in silence."""
        known = {*self.fields, *self.texts}
        groups = {".".join(path[:n]) for path in (field.split(".") for field in known) for n in range(1, len(path))}
        for path in ("", *sorted(groups)):
            level = _at(answer, path) if path else answer
            for name in level if isinstance(level, dict) else ():
                field = f"{path}.{name}" if path else name
                if field not in known | groups:
                    yield (
                        field if is_encodable(field) else path or "response",
                        f"{shown(name)} is no field of the schema of answers {self.version}",
                    )


def of(value: str | dict[str, Any]) -> AnswerSchema:
    """The schema that a recipe has: the name of a shipped one, or the content of a file."""
    return _shipped(value) if isinstance(value, str) else parse(value)


def content(value: Any) -> Any:
    """What a recipe keeps of the value of `data.answers`: of a file its content, so that a run needs the file no more."""
    if isinstance(value, dict):
        parse(value)
        return value
    if not isinstance(value, str):
        raise UserError(
            f"data.answers={shown(value)} is no schema of answers", f"give a YAML file, or {', '.join(shipped())}"
        )
    if value in shipped():
        return value
    path = expanded(value)
    if not path.exists():
        guess = nearest(value, list(shipped()))
        fix = f"did you mean {guess}?" if guess else f"give a YAML file, or {', '.join(shipped())}"
        raise UserError(f"data.answers={value} is not there", fix)
    raw = yaml_file.read(path, "start it with 'version: V1'") | {"file": value}
    parse(raw)
    return raw


def shipped() -> dict[str, Path]:
    return {p.stem: p for p in sorted((yaml_file.SHIPPED / "answers").glob("*.yaml"))}


@functools.cache
def _shipped(name: str) -> AnswerSchema:
    files = shipped()
    if name not in files:
        raise UserError(f"there is no schema of answers {name!r}", f"give a YAML file, or {', '.join(files)}")
    return parse(yaml_file.read(files[name]))


def parse(raw: Mapping[str, Any]) -> AnswerSchema:
    """UserError for what is no schema, with the key and its value."""
    file = raw.get("file", "")
    where = file or "data.answers"
    if unknown := [key for key in raw if key not in (*_KEYS, "file")]:
        raise UserError(f"{where}: {unknown[0]} is no key of a schema of answers", f"known: {', '.join(_KEYS)}")
    texts = _names(where, "texts", raw.get("texts", []))
    fields = raw.get("fields")
    if not isinstance(fields, dict) or not fields:
        raise UserError(
            f"{where}: fields={shown(fields)} is no mapping", "write fields:, and below it NAME: [value, value]"
        )
    options = {field: _options(where, field, given) for field, given in fields.items()}
    _names(where, "fields", [*fields, *texts])
    _layout(where, [*fields, *texts], [*fields])
    floors = tuple(_floor(where, given, options) for given in _listed(where, "at_least", raw.get("at_least", [])))
    version, instruction = (
        raw.get(key, default) for key, default in (("version", "V1"), ("instruction", "Describe it."))
    )
    for key, value in (("version", version), ("instruction", instruction), ("file", file)):
        if not isinstance(value, str) or not is_encodable(value):
            raise UserError(f"{where}: {key}={shown(value)} is not a text", "write it in quotes")
    return AnswerSchema(version, instruction, options, floors, texts, file)


def _listed(where: str, key: str, given: Any) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise UserError(f"{where}: {key}={shown(given)} is no list", f"write {key}: [ ... ]")
    return list(given)


def _names(where: str, key: str, given: Any) -> tuple[str, ...]:
    names = _listed(where, key, given)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UserError(
                f"{where}: {key}: {shown(name)} is no name of a field",
                "use letters, digits and _, with dots between levels",
            )
        if names.count(name) > 1:
            raise UserError(f"{where}: {name} is there twice", "leave one of them out")
    return tuple(names)


def _options(where: str, field: str, given: Any) -> tuple[Value, ...]:
    if isinstance(given, dict):
        first, last = given.get("from", 0), given.get("to", 0)
        if given.keys() != {"from", "to"} or not (_is_integer(first) and _is_integer(last) and first < last):
            raise UserError(
                f"{where}: {field}={shown(given)} is no range of whole numbers", f"write {field}: {{from: 1, to: 5}}"
            )
        if last - first >= _MOST_RATINGS:
            raise UserError(f"{where}: {field} has {last - first + 1} values", f"give at most {_MOST_RATINGS}")
        return tuple(range(first, last + 1))
    values = _listed(where, str(field), given)
    for value in values:
        if not isinstance(value, str) or not value.strip() or not is_encodable(value):
            raise UserError(f"{where}: {field}: {shown(value)} is not a text", "write it in quotes, as 'no' or '3'")
    if len(values) < 2 or len(set(values)) < len(values):
        raise UserError(f"{where}: {field}={shown(given)}", "give two values or more, each of them once")
    return tuple(values)


def _layout(where: str, names: list[str], graded: list[str]) -> None:
    """UserError unless the names are leaves of nested objects that are written in their order."""
    for name in names:
        if below := next((other for other in names if other.startswith(f"{name}.")), None):
            raise UserError(f"{where}: {name} is a field, and has {below} below it", "name them apart")
    written_in_order = list(_dotted(nested(dict.fromkeys(names))))
    if written_in_order != names:
        moved = next(a for a, b in zip(names, written_in_order, strict=True) if a != b)
        raise UserError(
            f"{where}: {moved} is not next to the other fields of its group",
            "list the fields of a group one after the other, texts last",
        )
    leaves = [name.rpartition(".")[2] for name in graded]
    if twice := next((leaf for leaf in leaves if leaves.count(leaf) > 1), None):
        raise UserError(
            f"{where}: two fields end in {twice}, the name under which a report lists them", "name one otherwise"
        )


def _floor(where: str, given: Any, options: Mapping[str, tuple[Value, ...]]) -> Floor:
    example = "write {field: risk, value: 4, when: {group: [agonistic]}}"
    if not isinstance(given, dict) or given.keys() != {"field", "value", "when"} or not isinstance(given["when"], dict):
        raise UserError(f"{where}: at_least: {shown(given)} is no rule", example)
    field, value, order = given["field"], given["value"], list(options)
    if field not in options or not _is_integer(value) or value not in options[field]:
        raise UserError(
            f"{where}: at_least: {shown(value)} is no value of {shown(field)}, a range of whole numbers", example
        )
    when = {cause: tuple(_listed(where, f"at_least: {cause}", values)) for cause, values in given["when"].items()}
    for cause, values in when.items():
        if cause not in options or order.index(cause) >= order.index(field):
            raise UserError(
                f"{where}: at_least: {shown(cause)} is no field before {field}", "list it before that field"
            )
        if strange := [v for v in values if v not in options[cause] or isinstance(v, int)]:
            raise UserError(
                f"{where}: at_least: {shown(strange[0])} is no value of {cause}",
                f"known: {', '.join(map(str, options[cause]))}",
            )
    return Floor(field, value, when)


def _cause(floor: Floor, values: Mapping[str, Any]) -> str:
    """What calls for a floor among these values; "" where nothing does."""
    causes = [f"{f.rpartition('.')[2]} {values[f]}" for f, alarming in floor.when.items() if values.get(f) in alarming]
    return causes[0] if causes else ""


def shown(value: Any) -> str:
    """A value as it stands in a message: on one line, and not longer than that."""
    text = repr(value) if isinstance(value, str) or not is_encodable(typed(value)) else typed(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nested(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field, value in values.items():
        *path, last = field.split(".")
        here = tree
        for name in path:
            here = here.setdefault(name, {})
        here[last] = value
    return tree


def written(value: Any) -> str:
    """A value as it stands in JSON, a text without its quotes."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)[1:-1]


def _dotted(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _at(answer: Any, field: str) -> Any:
    for name in field.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
