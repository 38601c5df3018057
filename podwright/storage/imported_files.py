"""Which files a Python file brings along: those beside it that it imports, and those that these import, as its text says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def closure(path: Path) -> list[Path]:
    """`path` and every module and package in its folder that it imports, directly or through others."""
    files = set[Path]()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in files:
            files.add(file)
            waiting += [each for name in _imported(file) for each in _modules(path.parent, name)]
    return sorted(files)


def _imported(path: Path) -> Iterator[str]:
    """First parts of what a file imports. A file that cannot be parsed imports nothing: whoever runs it says so."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _modules(folder: Path, name: str) -> list[Path]:
    """As Python looks for it: a package with an __init__.py first, whose files all count, then a module."""
    package = folder / name
    if (package / "__init__.py").is_file():
        return sorted(
            p for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts and p.suffix == ".py"
        )
    module = folder / f"{name}.py"
    return [module] if module.is_file() else []
