"""The mutants: every small wrong change of a module, and a seeded sample of them over the whole product.

A mutant is a module with one operator, number, condition or branch changed, or one call left out. Strings and annotations are never changed.
Only the changed piece of the text is replaced, so that line numbers stay.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "minimum": "maximum", "any": "all", "zeros": "ones", "zeros_like": "ones_like", "floor": "ceil"}
NAMES |= {other: name for name, other in NAMES.items()}


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    """relative to the repository"""
    number: int
    """its place among all changes of the file, in the order of the syntax tree"""
    line: int
    before: str
    after: str
    source: str
    """the text of the whole changed file"""

    @property
    def key(self) -> str:
        return f"{self.file}:{self.number}"


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields (node to replace, its replacement) for every way to write `node` wrong."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.copy(node)
            changed.ops = [SWAPS[type(operator)]() if n == place else op for n, op in enumerate(node.ops)]  # type: ignore[misc]
            yield node, changed
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        changed_op = copy.copy(node)
        changed_op.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield node, changed_op
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value: Any = not node.value if isinstance(node.value, bool) else node.value + 1
        yield node, ast.Constant(2 * node.value if isinstance(node.value, float) and node.value else value)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, ast.Pass()
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in NAMES:
            renamed = copy.deepcopy(node)
            setattr(renamed.func, "attr" if isinstance(renamed.func, ast.Attribute) else "id", NAMES[name])
            yield node, renamed
        if name == "where" and len(node.args) == 3:
            swapped = copy.copy(node)
            swapped.args = [node.args[0], node.args[2], node.args[1]]
            yield node, swapped


def code(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of everything that runs. Places inside f-strings are wrong before Python 3.12, so these are left out."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child
                yield from code(child)


def files() -> list[str]:
    """The modules of the product."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "podwright").rglob("*.py"))


def count(file: str) -> int:
    """How many mutants a file has."""
    return sum(1 for node in code(ast.parse((ROOT / file).read_text())) for _ in changes(node))


def line_text(file: str, number: int) -> str:
    """One line of a file, without the spaces around it."""
    return (ROOT / file).read_text().splitlines()[number - 1].strip()


def mutants(file: str, numbers: set[int]) -> list[Mutant]:
    """The mutants of a file that have these numbers."""
    source = (ROOT / file).read_text()
    pairs = (pair for node in code(ast.parse(source)) for pair in changes(node))
    return [_mutant(file, source, n, *pair) for n, pair in enumerate(pairs) if n in numbers]


def sample(seed: int, total: int, standing: Iterable[Mutant] = ()) -> list[Mutant]:
    """Draws mutants, each of all changes of the product with equal probability, until there are `total` with those of `standing`.

    Returns them in the order of their files.
    """
    every = [(file, n) for file in files() for n in range(count(file))]
    chosen = dict.fromkeys((mutant.file, mutant.number) for mutant in standing)
    for place in random.Random(seed).sample(every, min(total, len(every))):
        if len(chosen) < total:
            chosen[place] = None
    numbers: dict[str, set[int]] = {}
    for file, number in chosen:
        numbers.setdefault(file, set()).add(number)
    return [mutant for file in sorted(numbers) for mutant in mutants(file, numbers[file])]


def _mutant(file: str, text: str, number: int, node: Any, changed: ast.AST) -> Mutant:
    after = ast.unparse(ast.fix_missing_locations(ast.copy_location(changed, node)))
    replacement = f"({after})" if isinstance(changed, ast.expr) else after
    # Offsets of the syntax tree count bytes.
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    lines[first : last + 1] = [head + replacement.encode() + tail]
    source = b"".join(lines).decode()
    compile(source, file, "exec")
    return Mutant(file, number, node.lineno, ast.unparse(node).partition("\n")[0], after.partition("\n")[0], source)
