"""Schemas of answers: what may stand in each field, what makes an answer valid, and the one way it is written.

A schema is data, a YAML file such as recipes/answers/ethogram.yaml. Both halves read it: the plan and `podwright data check` judge by it,
training writes by it, decoding is bound to it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from podwright.errors import UserError, both_ends, expanded, nearest
from podwright.recipe import yaml_file
from podwright.recipe.text_lines import JsonFault, is_encodable, parse_json
from podwright.recipe.wrong_values import in_words
from podwright.recipe.wrong_values import shown as typed

DEFAULT = "ethogram"
MEDIA = ("image", "audio", "video")
_MOST_RATINGS = 101

FieldFault = tuple[str, str]
"""field, and what is wrong with its value"""
Value = str | int


def _values(given: object) -> object:
    """The values of a field: a list of texts, or {from: 1, to: 5} for the whole numbers of a rating."""
    if isinstance(given, dict):
        first: Any = given.get("from")
        last: Any = given.get("to")
        are_integers = type(first) is int and type(last) is int
        if given.keys() == {"from", "to"} and are_integers and 0 < last - first < _MOST_RATINGS:
            return tuple(range(first, last + 1))
        raise ValueError(f"must be a range of at most {_MOST_RATINGS} whole numbers, written {{from: 1, to: 5}}")
    if not isinstance(given, list) or not all(isinstance(value, str) and value.strip() for value in given):
        raise ValueError("must be a list of texts, in quotes as 'no' or '3', or {from: 1, to: 5}")
    if len(given) < 2 or len(set(given)) < len(given):
        raise ValueError("must have two values or more, each of them once")
    return tuple(given)


_STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]


class Floor(BaseModel):
    """A rating that is at least `value` where a field has one of certain values."""

    model_config = _STRICT
    field: str
    value: int
    when: dict[str, list[str]]


class AnswerSchema(BaseModel):
    """Fields are dotted names of values in nested objects, in the order in which they are written."""

    model_config = _STRICT
    version: str = "V1"
    instruction: str = "Describe it."
    """what a model is asked that was not trained on lines at hand"""
    options: dict[Name, Annotated[tuple[Value, ...], BeforeValidator(_values)]] = Field(alias="fields", min_length=1)
    """the values of each field that an answer is graded by; whole numbers of a rating"""
    floors: list[Floor] = Field([], alias="at_least")
    texts: list[Name] = []
    """free texts, written after the fields"""
    file: str = ""
    """that it was read from; "" for a shipped one"""

    @model_validator(mode="after")
    def _fits_together(self) -> AnswerSchema:
        self._require_layout()
        for floor in self.floors:
            self._require_floor(floor)
        return self

    def _require_layout(self) -> None:
        """ValueError unless the names are leaves of nested objects that are written in their order."""
        names = [*self.options, *self.texts]
        leaves = [name.rpartition(".")[2] for name in self.options]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is there twice")
            if any(other.startswith(f"{name}.") for other in names):
                raise ValueError(f"{name} is a field, and has fields below it")
        for leaf in leaves:
            if leaves.count(leaf) > 1:
                raise ValueError(f"two fields end in {leaf}, the name under which a report lists them")
        for name, written_name in zip(names, _dotted(nested(dict.fromkeys(names))), strict=True):
            if name != written_name:
                raise ValueError(f"{name} is not next to the other fields of its group, texts last")

    def _require_floor(self, floor: Floor) -> None:
        if not self.is_rating(floor.field) or floor.value not in self.options[floor.field]:
            raise ValueError(f"at_least: {floor.value} is no rating of {floor.field}")
        before = self.fields[: self.fields.index(floor.field)]
        for cause, values in floor.when.items():
            if cause not in before:
                raise ValueError(f"at_least: {cause} is no field before {floor.field}")
            for value in values:
                if value not in self.options[cause]:
                    raise ValueError(f"at_least: {shown(value)} is no value of {cause}")

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
        values_of_field = self.options[field]
        if not least:
            return tuple(values_of_field)
        return tuple(v for v in values_of_field if isinstance(v, int) and v >= max(least))

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
            if floor.field in values and values[floor.field] < floor.value:
                cause = _cause(floor, values)
                if cause:
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
        options = self.options[field]
        if value in options and type(value) is type(options[0]):
            return ""
        if self.is_rating(field):
            return f"{shown(value)} is not a whole number from {options[0]} to {options[-1]}"
        return f"{shown(value)} is none of {', '.join(map(str, options))}"

    def _unknown(self, answer: dict[str, Any]) -> Iterator[FieldFault]:
        """Keys that would be lost in silence."""
        for field in _dotted(answer):
            if field not in (*self.fields, *self.texts):
                name = field.rpartition(".")[2]
                message = f"{shown(name)} is no field of the schema of answers {self.version}"
                yield field if is_encodable(field) else "response", message


def of(value: str | dict[str, Any]) -> AnswerSchema:
    """The schema that a recipe has: the name of a shipped one, or the content of a file."""
    return _shipped(value) if isinstance(value, str) else parse(value)


def content(value: Any) -> Any:
    """What a recipe keeps of the value of `data.answers`: of a file its content, so that a run needs the file no more."""
    if isinstance(value, dict):
        parse(value)
        return value
    fix = f"give a YAML file, or {', '.join(shipped())}"
    if not isinstance(value, str):
        raise UserError(f"data.answers={shown(value)} is no schema of answers", fix, "answer-schema")
    if value in shipped():
        return value
    path = expanded(value)
    if not path.exists():
        if guess := nearest(value, list(shipped())):
            fix = f"did you mean {guess}?"
        raise UserError(f"data.answers={value} is not there", fix, "no-such-file")
    raw = yaml_file.read(path, "start it with 'version: V1'") | {"file": value}
    parse(raw)
    return raw


def shipped() -> dict[str, Path]:
    return {p.stem: p for p in sorted((yaml_file.SHIPPED / "answers").glob("*.yaml"))}


@functools.cache
def _shipped(name: str) -> AnswerSchema:
    files = shipped()
    if name not in files:
        fix = f"give a YAML file, or {', '.join(files)}"
        raise UserError(f"there is no schema of answers {name!r}", fix, "answer-schema")
    return parse(yaml_file.read(files[name]))


def parse(raw: Mapping[str, Any]) -> AnswerSchema:
    """UserError for what is no schema, with the key and its value."""
    try:
        return AnswerSchema.model_validate(raw)
    except ValidationError as e:
        first = e.errors()[0]
        where = raw.get("file") or "data.answers"
        key = ".".join(map(str, first["loc"]))
        value = f"{key}={shown(first['input'])}: " if key else ""
        fix = "correct it; recipes/answers/ethogram.yaml shows every key"
        raise UserError(f"{where}: {value}{in_words(first)}", fix, "answer-schema") from e


def _cause(floor: Floor, values: Mapping[str, Any]) -> str:
    """What calls for a floor among these values; "" where nothing does."""
    causes = [f"{f.rpartition('.')[2]} {values[f]}" for f, alarming in floor.when.items() if values.get(f) in alarming]
    return causes[0] if causes else ""


def shown(value: Any) -> str:
    """A value as it stands in a message: on one line, and not longer than that."""
    text = repr(value) if isinstance(value, str) or not is_encodable(typed(value)) else typed(value)
    return both_ends(text, 60)


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
    """The names of the leaves, an empty object among them."""
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _at(answer: Any, field: str) -> Any:
    for name in field.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer
