"""The smallest and the largest value that each key of a shipped recipe allows: planned within seconds, and refused with a remedy that works."""

import math
import random
import re
import signal
import sys
import types
import typing
from collections.abc import Iterator

import pytest

from podwright import slices
from podwright.errors import UserError
from podwright.plan.estimates import memory
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe import load
from podwright.recipe.schema import LIMIT

LIMIT_S, SAMPLE, ROUNDS = 120, 40, 6
FREE = ("kind", "name", "description", "expect", "trackers")  # that no plan depends on
PAIR = re.compile(r"(?<![\w.])([a-z_]+(?:\.[a-z_0-9]+)*)=([^\s,;)]+)")


def leaves(schema, prefix=""):
    for name, field in schema.model_fields.items():
        section = load._section(field.annotation)
        yield from leaves(section, f"{prefix}{name}.") if section else [(prefix + name, field)]


def constraints(annotation):
    """Every `Field(ge=..., lt=...)` of nested annotations."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from (m for a in annotation.__metadata__ for m in getattr(a, "metadata", [a]))
        yield from constraints(annotation.__origin__)
    elif typing.get_origin(annotation) in (types.UnionType, typing.Union):
        for option in typing.get_args(annotation):
            yield from constraints(option)


def options(annotation):
    if typing.get_origin(annotation) is typing.Annotated:
        return options(annotation.__origin__)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [option for part in typing.get_args(annotation) for option in options(part)]
    return [annotation]


def extremes(field) -> Iterator[str]:
    """The values at both ends of what a key allows, and every one of a few words."""
    found = [*field.metadata, *constraints(field.annotation)]
    above = {name: [getattr(m, name) for m in found if getattr(m, name, None) is not None] for name in ("ge", "gt")}
    below = {name: [getattr(m, name) for m in found if getattr(m, name, None) is not None] for name in ("le", "lt")}
    for kind in options(field.annotation):
        if kind is int:
            yield str(max([*above["ge"], *(n + 1 for n in above["gt"])], default=-LIMIT))
            yield str(min([*below["le"], *(n - 1 for n in below["lt"])], default=LIMIT - 1))
        elif kind is float:
            yield repr(max([*above["ge"], *(math.nextafter(n, math.inf) for n in above["gt"])], default=-1e300))
            yield repr(min([*below["le"], *(math.nextafter(n, 0) for n in below["lt"])], default=sys.float_info.max))
        elif kind is bool:
            yield from ("false", "true")
        elif typing.get_origin(kind) is typing.Literal:
            yield from (f"'{word}'" for word in typing.get_args(kind))


CASES = [
    (name, f"{key}={value}", on)
    for name in load.shipped()
    for key, field in leaves(type(load.load(name)))
    if key.partition(".")[0] not in FREE
    for value in extremes(field)
    for on in ("local", "v6e-16" if hasattr(load.load(name), "mesh") else "8xA100-40GB")
]


def planned(name, overrides, on):
    """(message, what to type) of what refuses a recipe."""

    def too_slow(*_):
        raise AssertionError(f"{name} {' '.join(overrides)} --on {on}: no plan within {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(LIMIT_S)
    try:
        where = None if on == "local" else slices.parse(on)
        plan = make(load.load(name, overrides), Destination(on, where, here=where is None), PlanOptions())
    except UserError as e:
        return [(e.what, e.fix)]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert all(f.fix for f in plan.findings if f.level != "info"), plan.findings
    return [(f.message, f.fix) for f in plan.errors]


def follow(name, override, on):
    """What refuses a recipe after each remedy that names keys or a slice has been typed; what refuses it without the override is left out."""
    known = {message for message, _ in planned(name, [], on)}
    overrides, faults = {override.partition("=")[0]: override.partition("=")[2]}, [("", "")]
    for _ in range(ROUNDS):
        typed = [f"{key}={value}" for key, value in overrides.items()]
        faults = [fault for fault in planned(name, typed, on) if fault[0] not in known]
        remedies = [re.split(r"; |, or |, and | or ", fix)[0] for _, fix in faults]
        remedy = next((text for text in remedies if "=" in text or "--on " in text), "")
        if not remedy:
            return [fault for fault in faults if fault[1].startswith("type ") and fault[1] != memory.FIT]
        overrides |= dict(PAIR.findall(remedy))
        if slice_ := re.search(r"--on (\S+)", remedy):
            on = slice_[1]
            known |= {message for message, _ in planned(name, [], on)}
    return faults


@pytest.mark.brief(12)
@pytest.mark.parametrize(("name", "override", "on"), random.Random(7).sample(CASES, SAMPLE))
def test_an_extreme_value_is_planned_or_refused_with_a_remedy_that_works(name, override, on):
    assert follow(name, override, on) == []


@pytest.mark.long
@pytest.mark.parametrize("name", load.shipped())
def test_every_extreme_value_is_planned_or_refused_with_a_remedy_that_works(name):
    left = {case: faults for case in CASES if case[0] == name and (faults := follow(*case))}
    assert left == {}
