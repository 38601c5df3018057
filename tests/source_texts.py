"""Texts in the source of a module that a person may get to see."""

import ast
from collections.abc import Iterator
from pathlib import Path


def strings(path: Path) -> Iterator[str]:
    """The string constants of a module, without its docstrings and those of its classes and functions."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
