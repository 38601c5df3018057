"""How often the loops of a compiled program run; one whose end depends on its data has a bound at most."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from podwright.plan.compiled.hlo import Computation, Instruction, Module


@dataclass(frozen=True, slots=True)
class Trips:
    """How often a loop's body runs; `exact` is False when its data may end it earlier, `count` None when nothing bounds it."""

    count: int | None
    exact: bool


def trips(module: Module, loop: Instruction, computation: Computation) -> Trips:
    """Of the `while` instruction `loop` in the computation `computation`.

    From the loop's own counter: where it starts, what a turn adds, what it is compared with.
    """
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
    if known:
        return Trips(int(known[1]), True)
    condition, body = (
        _opened(module, module.computations[loop.attribute(name) or ""]) for name in ("condition", "body")
    )
    ends = _comparisons(condition, condition.root)
    counted = [
        n for compare in ends.comparisons if (n := _count(compare, condition, body, loop, computation)) is not None
    ]
    return Trips(min(counted) if counted else None, bool(counted) and ends.complete)


def _opened(module: Module, computation: Computation) -> Computation:
    """With the fusions that make one number taken apart: for a CPU they hold the end of a loop and what a turn adds to its counter."""
    instructions: list[Instruction] = []
    for at in computation.instructions:
        body = (
            module.computations.get(at.calls or "")
            if at.opcode == "fusion" and at.shape_text.split("{")[0].endswith("[]")
            else None
        )
        if body is None or body.root.opcode == "parameter":
            instructions.append(at)
            continue
        names = {
            i.name: at.operands[int(i.arguments)] if i.opcode == "parameter" else f"{at.name}/{i.name}"
            for i in body.instructions
        }
        names[body.root.name] = at.name
        for i in body.instructions:
            if i.opcode != "parameter":
                given = tuple(names[name] for name in i.operands)
                is_body_root = i.name == body.root.name
                instructions.append(
                    dataclasses.replace(i, name=names[i.name], operands=given, is_root=is_body_root and at.is_root)
                )
    return Computation(computation.name, instructions, {i.name: i for i in instructions})


@dataclass
class _Ends:
    comparisons: list[Instruction]
    complete: bool
    """whether the comparisons are all that ends the loop"""


def _comparisons(condition: Computation, at: Instruction) -> _Ends:
    at = _through(condition, at)
    if at.opcode == "compare":
        return _Ends([at], True)
    if at.opcode == "and":
        parts = [_comparisons(condition, condition.by_name[name]) for name in at.operands]
        return _Ends([c for p in parts for c in p.comparisons], all(p.complete for p in parts))
    return _Ends([], False)


def _through(computation: Computation, at: Instruction) -> Instruction:
    """What `at` is a copy of."""
    while (
        at.opcode in ("copy", "bitcast", "convert", "copy-done", "copy-start", "optimization-barrier") and at.operands
    ):
        at = computation.by_name[at.operands[0]]
    return at


@dataclass(frozen=True)
class _Linear:
    """Field `field` of the loop's tuple plus `plus`; field None for a plain number."""

    field: int | None
    plus: int


def _linear(computation: Computation, name: str) -> _Linear | None:
    at = _through(computation, computation.by_name[name])
    if at.opcode == "constant":
        return _Linear(None, int(at.arguments)) if re.fullmatch(r"-?\d+", at.arguments) else None
    if at.opcode == "get-tuple-element":
        source = _through(computation, computation.by_name[at.operands[0]])
        index = at.attribute("index")
        return _Linear(int(index), 0) if source.opcode == "parameter" and index is not None else None
    if at.opcode in ("add", "subtract") and len(at.operands) == 2:
        left, right = (_linear(computation, operand) for operand in at.operands)
        if left is None or right is None:
            return None
        if at.opcode == "add" and right.field is not None:
            left, right = right, left
        if right.field is None:
            return _Linear(left.field, left.plus + (right.plus if at.opcode == "add" else -right.plus))
    return None


def _count(
    compare: Instruction, condition: Computation, body: Computation, loop: Instruction, computation: Computation
) -> int | None:
    left, right = (_linear(condition, operand) for operand in compare.operands)
    direction = compare.attribute("direction")
    if left is None or right is None or direction is None:
        return None
    if left.field is None or (right.field is not None and _step(body, left.field) == 0):
        left, right = right, left
        direction = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, direction)
    if left.field is None:
        return None
    start, step = _initial(loop, computation, left.field), _step(body, left.field)
    limit = right.plus + (_initial(loop, computation, right.field) or 0) if right.field is not None else right.plus
    if start is None or not step or (right.field is not None and _step(body, right.field) != 0):
        return None
    left_to_go = (limit - start - left.plus) * (1 if step > 0 else -1)
    if direction in ("LE", "GE"):
        left_to_go += 1
    is_upward, is_downward = direction in ("LT", "LE"), direction in ("GT", "GE")
    if (is_upward and step > 0) or (is_downward and step < 0) or direction == "NE":
        return max(-(-left_to_go // abs(step)), 0)
    return None


def _field(computation: Computation, tuple_name: str, field: int) -> str | None:
    at = _through(computation, computation.by_name[tuple_name])
    return at.operands[field] if at.opcode == "tuple" else None


def _step(body: Computation, field: int) -> int | None:
    """What one turn adds to that field; None when it is not a fixed number."""
    name = _field(body, body.root.name, field)
    after = _linear(body, name) if name else None
    return after.plus if after and after.field == field else None


def _initial(loop: Instruction, computation: Computation, field: int) -> int | None:
    name = _field(computation, loop.operands[0], field)
    before = _linear(computation, name) if name else None
    return before.plus if before and before.field is None else None
