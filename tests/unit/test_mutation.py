"""The mutants that score the tests: what is changed, who is said to reach it, and that a kill is told from a survivor."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import __main__ as judged
from tests.mutation import changes, reach
from tests.mutation.changes import ROOT

SOURCE = '''"""A module."""

import math

LIMIT = 3


def small(x: int = 2) -> bool:
    """Whether it is."""
    if x < LIMIT and not math.isnan(x):
        return True
    return f"{x + 1}" == "é" + str(x - 1)


class Box:
    def size(self): return 1 + 2

    def grow(self) -> None:
        def inner() -> None:
            print("grown")

        inner()
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "podwright").mkdir()
    (tmp_path / "podwright/a.py").write_text(SOURCE)
    for owner in (changes, reach):
        if hasattr(owner, "ROOT"):
            monkeypatch.setattr(owner, "ROOT", tmp_path)
    return "podwright/a.py"


def test_each_mutant_changes_one_piece_and_keeps_the_lines(module: str) -> None:
    drawn = changes.mutants(module, set(range(changes.count(module))))
    assert [m.number for m in drawn] == list(range(changes.count(module)))
    for m in drawn:
        differing = [a != b for a, b in zip(m.source.splitlines(), SOURCE.splitlines(), strict=True)]
        assert sum(differing) == 1 and differing.index(True) == m.line - 1, m
        assert ast.dump(ast.parse(m.source)) != ast.dump(ast.parse(SOURCE)), m
    written = {(m.before, m.after) for m in drawn}
    assert {("3", "4"), ("x < LIMIT", "x <= LIMIT"), ("print('grown')", "pass"), ("x - 1", "x + 1")} <= written
    assert ("x + 1", "x - 1") not in written  # inside an f-string


def test_the_draw_is_the_same_for_a_seed_and_spans_the_product(module: str) -> None:
    total = changes.count(module)
    assert changes.sample(1, 5) == changes.sample(1, 5) != changes.sample(2, 5)
    assert len(changes.sample(0, 2 * total)) == total


def test_mutants_that_stand_are_kept_and_new_ones_drawn_up_to_the_total(module: str) -> None:
    standing = changes.sample(2, 3)
    drawn = {m.number for m in changes.sample(1, 5, standing)}
    new = [m.number for m in changes.sample(1, 5)]
    assert len(drawn) == 5 and drawn > {m.number for m in standing} and drawn - {m.number for m in standing} <= set(new)


def test_probes_are_in_every_function_and_change_nothing_else() -> None:
    text = reach.probed(SOURCE, 10)
    calls = list[int]()
    space = {"__builtins__": {**vars(__import__("builtins")), "_reach_": calls.append}}
    text = text.replace("__import__('builtins').__dict__.get('_reach_', id)", "_reach_")
    exec(compile(text, "a.py", "exec"), space)
    assert space["small"](1) is True and space["Box"]().size() == 3 and space["Box"]().grow() is None  # type: ignore[operator]
    assert calls == [10, 11, 12, 13]
    assert reach.functions(SOURCE) == [(8, 12), (16, 16), (18, 22), (19, 20)]


def test_a_line_is_reached_by_the_tests_of_its_innermost_function(module: str, tmp_path: Path) -> None:
    found = reach.Reach(tmp_path)
    found.log.mkdir()
    found.table.write_text(json.dumps({module: [[0, 8, 12], [1, 16, 16], [2, 18, 22], [3, 19, 20]]}))
    (found.log / "1").write_text("0\ta::small\n2\ta::grow\n3\ta::inner\n0\tb::failed\n0\tc::slow\n0\tsession\n")
    row = {"cpu_s": 1, "wall_s": 2, "passed": True, "long": False}
    rows = [row | {"test": f"a::{name}"} for name in ("small", "grow", "inner")]
    rows += [row | {"test": "b::failed", "passed": False}, row | {"test": "c::slow", "long": True}]
    found.clock.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found.read()
    for line, calling in ((10, {"a::small"}), (20, {"a::inner"}), (22, {"a::grow"}), (16, set[str]())):
        assert found.of(module, line, "test") == calling
    assert found.of(module, 5, "test") == {"a::small", "a::grow", "a::inner"}
    assert found.of(module, 10, "test-long") == {"c::slow"}


def test_a_kept_reach_goes_by_the_text_of_a_line(module: str, tmp_path: Path) -> None:
    line = (changes.ROOT / module).read_text().splitlines()[9].strip()
    kept = reach.KeptReach(tmp_path, {f"{module}|{line}": {"a::small": 2.0}})
    assert kept.of(module, 10, "test-long") == {"a::small"} and kept.of(module, 16, "test-long") == set()
    assert kept.seconds == {"a::small": 2.0}


def test_mutants_of_a_result_are_those_whose_line_stands_with_their_killers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutant is known by its line and its change; killers whose file is gone are none."""
    monkeypatch.setattr(judged, "ROOT", tmp_path)
    monkeypatch.setattr(changes, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a.py").write_text("X = 1\nY = X < 2\nZ = 7\n")
    (tmp_path / "test_a.py").touch()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    row = {"file": "a.py", "line": 2, "before": "X < 2", "after": "X <= 2", "verdict": "killed", "test": "test_a.py::a"}
    rows = [row, row | {"before": "2", "after": "3", "test": "test_gone.py::a"}]
    rows += [
        row | {"line": 3, "before": "7", "after": "8"},
        row | {"line": 1, "before": "1", "after": "2", "verdict": "survived"},
    ]
    (tmp_path / "result.json").write_text(json.dumps({"commit": head, "mutants": rows}))
    (tmp_path / "a.py").write_text("\nX = 1\nY = X < 2\nZ = 8\n")
    chosen = judged.standing(tmp_path / "result.json", killed=True)
    assert [(m.line, m.after, test) for m, test in chosen] == [
        (3, "X <= 2", "test_a.py::a"),
        (3, "3", "test_gone.py::a"),
    ]
    assert list(judged.killers(chosen)) == ["a.py|Y = X < 2"]
    assert list(judged.killers(chosen)["a.py|Y = X < 2"]) == ["test_a.py::a"]
    assert [m.line for m, _ in judged.standing(tmp_path / "result.json", killed=False)] == [2]


def test_a_worker_tells_the_test_that_fails_from_tests_that_pass(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_good(): pass\ndef test_bad(): assert 0\ndef test_never(): assert 0\n")
    (tmp_path / "test_loop.py").write_text("def test_loop():\n    while True: pass\n")
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    wanted = [["test_a.py::test_good"], ["test_a.py::test_good", "test_a.py::test_bad"], ["test_a.py::gone"]]
    jobs = "".join(json.dumps({"tests": tests, "limit_s": 60}) + "\n" for tests in wanted)
    jobs += json.dumps({"tests": ["test_loop.py::test_loop"], "limit_s": 2}) + "\n"
    code = "from tests.mutation import worker; worker.LIBRARIES = (); worker.main()"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, input=jobs, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["verdict"] for row in rows] == ["survived", "killed", "no tests", "timeout"]
    assert rows[1]["test"] == "test_a.py::test_bad"
