"""Which test calls which function of the product: one run of the tests with a probe at the begin of every function.

A mutant inside a function can only be noticed by a test that calls the function, in its own process or in one that it starts.
The same run keeps the seconds of each test.
"""

import ast
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests import clock
from tests.mutation.changes import files, line_text
from tests.mutation.tree import PROBE, Tree

# Lines of a probe's file are "function <tab> test"; each process has a file of its own.
RUNTIME = """
import builtins, os

_seen, _folder = set(), {folder!r}


def _reach_(function):
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (function, test) not in _seen:
        _seen.add((function, test))
        try:
            out = os.open(os.path.join(_folder, str(os.getpid())), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o666)
            os.write(out, ("%d\\t%s\\n" % (function, test.rpartition(" ")[0])).encode())
            os.close(out)
        except OSError:
            pass  # a process that may not write here


builtins._reach_ = _reach_
"""
CALL = "__import__('builtins').__dict__.get('_reach_', id)({})"  # a Python without the probe does nothing


def functions(text: str) -> list[tuple[int, int]]:
    """(first line, last line) of every function of a module, in the order of the first lines."""
    nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return sorted((min([n.lineno, *(d.lineno for d in n.decorator_list)]), n.end_lineno or n.lineno) for n in nodes)


def probed(text: str, first: int) -> str:
    """The module with a probe in each function, numbered from `first` in the order of `functions`."""
    lines = text.encode().splitlines(keepends=True)
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes.sort(key=lambda n: min([n.lineno, *(d.lineno for d in n.decorator_list)]))
    inserted = []
    for number, node in enumerate(nodes, first):
        docstring = ast.get_docstring(node, clean=False) is not None
        if docstring and len(node.body) == 1:
            continue
        statement = node.body[docstring]
        line = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        inserted.append((line - 1, statement.col_offset, number))
    for line, column, number in sorted(inserted, reverse=True):
        before, call = lines[line][:column], CALL.format(number).encode()
        if before.strip():
            lines[line] = before + call + b"; " + lines[line][column:]
        else:
            lines.insert(line, before + call + b"\n")
    return b"".join(lines).decode()


class Reach:
    """What one run with probes found.

    `tests[function]` are the names of the tests that call it; `seconds[test]` is the processor time of a test, that of its processes included.
    """

    def __init__(self, folder: Path):
        self.folder, self.log = folder, folder / "probes"
        self.clock, self.table = folder / "clock.jsonl", folder / "functions.json"
        self.tests: dict[int, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.wall: dict[str, float] = {}
        self.tier: dict[str, str] = {}
        self.failed: set[str] = set()
        self.lines: dict[str, list[tuple[int, int, int]]] = {}

    def run(self, tree: Tree, arguments: Sequence[str]) -> bool:
        """Runs pytest in the tree, which gets the probes; tests that have passed with probes are left out. Whether it came to its end."""
        self.log.mkdir(parents=True, exist_ok=True)
        packages = next((tree.folder / ".venv/lib").glob("python*/site-packages"))
        (packages / f"{PROBE}.py").write_text(RUNTIME.format(folder=str(self.log)))
        (packages / "zz_probe.pth").write_text(f"import {PROBE}\n")
        number, table = 0, {}
        for file in files():
            text = (tree.folder / file).read_text()
            spans = functions(text)
            table[file] = [(number + n, *span) for n, span in enumerate(spans)]
            tree.write(file, probed(text, number))
            number += len(spans)
        self.table.write_text(json.dumps(table))
        argv = [str(tree.python), "-m", "pytest", "-p", "tests.clock", *arguments]
        run = subprocess.run(argv, cwd=tree.folder, env={**os.environ, **clock.environment(self.clock)}, check=False)
        return run.returncode in (0, 1)  # of pytest: all passed, or some failed

    def read(self) -> "Reach":
        if not self.table.exists():
            return self
        self.lines = {
            file: [(n, a, b) for n, a, b in spans] for file, spans in json.loads(self.table.read_text()).items()
        }
        for path in self.log.iterdir():
            for line in path.read_text(errors="replace").splitlines():
                number, _, test = line.partition("\t")
                self.tests[int(number)].add(test)
        for row in _rows(self.clock):
            self.seconds[row["test"]], self.wall[row["test"]] = row["cpu_s"], row["wall_s"]
            self.tier[row["test"]] = "test-long" if row["long"] else "test"
            (self.failed.discard if row["passed"] else self.failed.add)(row["test"])
        return self

    def of(self, file: str, line: int, tier: str) -> set[str]:
        """The tests of a tier that can notice a change of this line: those that call its function or, outside of functions, any function of
        the file."""
        spans = [span for span in self.lines[file] if span[1] <= line <= span[2]]
        numbers = [spans[-1][0]] if spans else [n for n, _, _ in self.lines[file]]
        calling = {test for n in numbers for test in self.tests[n]} - self.failed
        return {test for test in calling if self.tier.get(test) == tier}


class KeptReach(Reach):
    """What an earlier run found of some lines: {"FILE|text of the line": {test: seconds of wall time}}, the cheapest tests."""

    def __init__(self, folder: Path, kept: dict[str, dict[str, float]]):
        super().__init__(folder)
        self.kept = kept
        self.seconds = {test: seconds for tests in self.kept.values() for test, seconds in tests.items()}

    def of(self, file: str, line: int, tier: str) -> set[str]:
        return set(self.kept.get(f"{file}|{line_text(file, line)}", ()))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines() if path.exists() else []:
        yield json.loads(line)
