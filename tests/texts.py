"""`python -m tests.texts` writes golden_texts.txt: each code of an error or a finding, and under it the texts that have the code.

What a text holds of the user's input stands there as the expression that it comes from, in braces.
"""

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[1] / "podwright"
GOLDEN = Path(__file__).with_name("golden_texts.txt")
ERROR = ("what", "fix", "code")
FINDING = ("check", "level", "message", "fix", "code")
HEAD = "# Made by python -m tests.texts: codes of errors and findings, each with the texts that have it.\n"


@dataclass(frozen=True)
class Text:
    where: str
    code: str
    """"" where none is given; in braces where it is the value of an expression"""
    level: str
    """of a finding"""
    text: str


@functools.cache
def texts() -> tuple[Text, ...]:
    """Of every call in the product that makes an error or a finding."""
    return tuple(_texts())


def _texts() -> Iterator[Text]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(PRODUCT.rglob("*.py"))}
    parameters = {"Finding": FINDING, **dict.fromkeys(_errors(trees.values()), ERROR)}
    for path, tree in trees.items():
        for call, scope in _calls(tree, tree):
            names = parameters.get(_name(call.func))
            if names and not _passes_on(call):
                given = dict(zip(names, call.args, strict=False))
                given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
                code, level = (_template(given[key], scope) if key in given else "" for key in ("code", "level"))
                parts = [_template(given[key], scope) for key in ("what", "message", "fix") if key in given]
                where = f"{path.relative_to(PRODUCT.parent)}:{call.lineno}"
                yield Text(where, code, level, "; ".join(filter(None, parts)))


def _calls(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Every call below `node`, with the innermost function that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scope
        yield from _calls(child, child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else scope)


def _passes_on(call: ast.Call) -> bool:
    """Whether it has its arguments from a sequence or a record, which holds the code too."""
    return any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords)


def _errors(trees: Iterable[ast.Module]) -> set[str]:
    """UserError and its subclasses that are called with the same arguments."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    errors = {"UserError"}
    for node in [*classes, *classes]:  # a subclass of one that comes later is seen the second time
        has_own = any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body)
        if not has_own and errors & {_name(base) for base in node.bases}:
            errors.add(node.name)
    return errors


def golden() -> str:
    by_code = defaultdict[str, set[str]](set)
    for item in texts():
        if item.code:
            by_code[item.code].add(item.text)
    blocks = [f"{code}\n" + "".join(f"  {text}\n" for text in sorted(by_code[code])) for code in sorted(by_code)]
    return "\n".join([HEAD, *blocks])


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _template(value: ast.expr, scope: ast.AST) -> str:
    """The text that `value` makes; a name stands for what it was last set to before, where that is a text."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.JoinedStr):
        return "".join(_template(part, scope) for part in value.values)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _template(value.left, scope) + _template(value.right, scope)
    if isinstance(value, ast.FormattedValue):
        value = value.value
    if isinstance(value, ast.Name):
        written = [
            node.value
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign)
            and node.lineno < value.lineno
            and any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets)
        ]
        if written and isinstance(written[-1], ast.Constant | ast.JoinedStr):
            return _template(written[-1], scope)
    return "{" + ast.unparse(value) + "}"


if __name__ == "__main__":
    GOLDEN.write_text(golden())
