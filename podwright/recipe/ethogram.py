"""The V3 answer: what may stand in each field, what makes one valid, and the one way it is written.

Both halves read it: the plan and `podwright data check` judge by it, training writes by it, decoding is bound to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

VERSION = "V3"
MARKERS, CLASSIFICATION = "diagnostic.physical_markers", "diagnostic.classification"
CHOICES: dict[str, tuple[str, ...]] = {
    f"{MARKERS}.ears": ("forward", "sideways", "flattened", "alert"),
    f"{MARKERS}.tail": ("neutral", "tucked", "lashing", "upright", "puffed"),
    f"{MARKERS}.posture": ("relaxed", "crouched", "lateral_recumbent", "arched", "tense"),
    f"{MARKERS}.vocalization": ("purr", "hiss", "growl", "chirp", "meow", "trill", "silent"),
    f"{CLASSIFICATION}.ethogram_group": ("social_affiliative", "agonistic", "maintenance", "predatory"),
    f"{CLASSIFICATION}.affective_state": ("content", "anxious", "aggressive", "playful", "distressed", "neutral"),
    f"{CLASSIFICATION}.arousal_level": ("low", "medium", "high"),
}
RISK = f"{CLASSIFICATION}.risk_rating"
RISKS = (1, 2, 3, 4, 5)
ALARMING = {
    f"{CLASSIFICATION}.ethogram_group": {"agonistic"},
    f"{CLASSIFICATION}.affective_state": {"aggressive", "distressed"},
}
LEAST_ALARMING_RISK = 4
TEXTS = ("behavioral_summary", "human_actionable_insight")
FIELDS = (*CHOICES, RISK)
"""the fields that an answer is graded by, in the order in which it is written"""
MEDIA = ("image", "audio", "video")

FieldFault = tuple[str, str]
"""field, and what is wrong with its value"""


def shown(value: Any) -> str:
    """A value as it stands in a message: on one line, and not longer than that."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def risks(answers: dict[str, Any]) -> tuple[int, ...]:
    """The ratings that may follow these classifications."""
    alarming = any(answers.get(field) in values for field, values in ALARMING.items())
    return tuple(r for r in RISKS if r >= LEAST_ALARMING_RISK) if alarming else RISKS


def flattened(answer: dict[str, Any]) -> dict[str, Any]:
    """Dotted fields of a valid answer, in the order in which it is written."""
    flat: dict[str, Any] = {}
    for field in (*FIELDS, *TEXTS):
        here: Any = answer
        for name in field.split("."):
            here = here[name]
        flat[field] = here
    return flat


def nested(values: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field, value in values.items():
        *path, last = field.split(".")
        here = tree
        for name in path:
            here = here.setdefault(name, {})
        here[last] = value
    return tree


def pieces(values: dict[str, Any]) -> list[tuple[str, str]]:
    """An answer as compact JSON in pieces: (field, text), with "" for the field of what is the same in every answer."""
    slots = {field: f"<{n}>" for n, field in enumerate((*FIELDS, *TEXTS))}
    rest = json.dumps(nested(dict(slots)), separators=(",", ":")).replace(f'"{slots[RISK]}"', slots[RISK])
    parts = []
    for field, slot in slots.items():
        before, _, rest = rest.partition(slot)
        parts += [("", before), (field, written(values[field]))]
    return [*parts, ("", rest)]


def written(value: Any) -> str:
    """A value as it stands in JSON, a text without its quotes."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)[1:-1]


def answer_faults(answer: Any) -> Iterator[FieldFault]:
    """What is wrong with a parsed answer."""
    if not isinstance(answer, dict):
        yield "response", f"{shown(answer)} is not an object"
        return
    yield from _unknown(answer)
    values: dict[str, Any] = {}
    for field in (*FIELDS, *TEXTS):
        value = _at(answer, field)
        wrong = _wrong(field, value)
        if wrong:
            yield field, wrong
        else:
            values[field] = value
    if RISK in values and values[RISK] not in risks(values):
        why = next(
            f"{f.rpartition('.')[2]} {values[f]}" for f, alarming in ALARMING.items() if values.get(f) in alarming
        )
        yield RISK, f"{values[RISK]} is below {LEAST_ALARMING_RISK}, the least for {why}"


def line_faults(line: Any) -> Iterator[FieldFault]:
    """What is wrong with one parsed line of a file, without looking at its media."""
    if not isinstance(line, dict):
        yield "line", f"{shown(line)} is not an object"
        return
    for field in ("instruction", "response"):
        value = line.get(field)
        if not isinstance(value, str) or not value.strip():
            yield field, "is missing" if field not in line else f"{shown(value)} is not a text"
        elif not _encodable(value):
            yield field, f"{shown(value)} holds half a character"
    given = [name for name in MEDIA if name in line]
    if not given:
        yield "image", "is missing, and so are audio and video; a line needs one of them"
    for name in given:
        if not isinstance(line[name], str) or not line[name]:
            yield name, f"{shown(line[name])} is not a path"
    response = line.get("response")
    if isinstance(response, str) and response.strip() and _encodable(response):
        try:
            answer = json.loads(response)
        except (ValueError, RecursionError) as e:
            yield "response", f"{shown(response)} is not JSON ({str(e)[:60]})"
        else:
            yield from answer_faults(answer)


def _at(answer: Any, field: str) -> Any:
    for name in field.split("."):
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


def _wrong(field: str, value: Any) -> str:
    if value is None:
        return "is missing"
    if field in TEXTS:
        return "" if isinstance(value, str) and value.strip() and _encodable(value) else f"{shown(value)} is not a text"
    if field == RISK:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return "" if is_integer and value in RISKS else f"{shown(value)} is not a whole number from 1 to 5"
    known = CHOICES[field]
    return "" if isinstance(value, str) and value in known else f"{shown(value)} is none of {', '.join(known)}"


def _unknown(answer: dict[str, Any]) -> Iterator[FieldFault]:
    """Keys that would be lost in silence."""
    levels = {"": answer} | {path: _at(answer, path) for path in ("diagnostic", MARKERS, CLASSIFICATION)}
    known = {field for field in (*FIELDS, *TEXTS)} | {"diagnostic", MARKERS, CLASSIFICATION}
    for path, level in levels.items():
        for name in level if isinstance(level, dict) else ():
            field = f"{path}.{name}" if path else name
            if field not in known:
                yield field if _encodable(field) else path or "response", f"{shown(name)} is no field of {VERSION}"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
