"""Tests in tiers and parts: each test file is in one part, and compiled programs are kept between runs unless they are damaged."""

import ast
import json
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

import conftest
from conftest import ROOT, SECONDS
from tests import clock, tiers

FILES = [str(path.relative_to(ROOT)) for folder in ("tests", "lab") for path in (ROOT / folder).rglob("test_*.py")]


@pytest.mark.parametrize("of", [1, 4, 7])
@pytest.mark.parametrize("tier", ["test", "long"])
def test_every_file_is_in_one_part(of: int, tier: str) -> None:
    parts = [conftest.part(FILES, n, of, tier) for n in range(1, of + 1)]
    assert sorted(file for part in parts for file in part) == sorted(FILES)


def test_parts_take_equally_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "SECONDS", {"a": {"test": 9.5}, "b": {"test": 5.0}, "c": {"test": 4.0}})
    assert conftest.part("abcd", 1, 2, "test") == {"a"} and conftest.part("abcd", 2, 2, "test") == {"b", "c", "d"}


def test_a_file_whose_tests_are_all_long_is_not_imported_by_make_test() -> None:
    assert not conftest.has_tests("tests/unit/plan/maxtext/test_real.py", "test")
    assert conftest.has_tests("tests/unit/plan/test_compile.py", "test")
    assert conftest.has_tests("tests/unit/plan/test_compile.py", "long")
    assert not conftest.has_tests("tests/unit/test_slices.py", "long")
    assert conftest.has_tests("tests/unit/test_tiers.py", "test")


def test_seconds_of_other_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "SECONDS", tmp_path / "seconds.json")
    old = {"tests/unit/test_slices.py": {"test": 1.0}, "tests/unit/test_gone.py": {"test": 1.0}}
    tiers.SECONDS.write_text(json.dumps(old))
    rows = [{"test": f"tests/unit/test_tiers.py::{n}", "wall_s": 1.26, "long": n == "c"} for n in "abc"]
    (tmp_path / "clock").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tiers.record([tmp_path / "clock"])
    wanted = {"tests/unit/test_slices.py": {"test": 1.0}, "tests/unit/test_tiers.py": {"long": 1.3, "test": 2.5}}
    assert json.loads(tiers.SECONDS.read_text()) == wanted


def test_a_run_goes_on_after_the_tests_that_have_passed(tmp_path: Path) -> None:
    file, log = tmp_path / "test_some.py", tmp_path / "clock.jsonl"
    file.write_text("def test_good(): pass\ndef test_bad(): assert 0\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.clock", "-p", "no:cacheprovider", str(file)]
    summaries = []
    for _ in range(2):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **clock.environment(log)}
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        summaries.append(done.stdout.splitlines()[-1].partition(" in ")[0])
    assert summaries == ["1 failed, 1 passed", "1 failed, 1 deselected"]


@pytest.mark.parametrize("part", ["x", "0/4", "5/4", "2/4/6", "-1/4"])
def test_what_is_no_part_is_one_line(part: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", f"--part={part}", "--collect-only", "tests/unit/test_slices.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and f"--part={part} is no part: write it as 2/4" in done.stdout + done.stderr


def test_tests_that_need_a_python_for_cuda_are_a_part_of_their_own() -> None:
    apart, numbered = collected("cuda"), [collected(f"{n}/2") for n in (1, 2)]
    assert apart == set(conftest.FOR_CUDA_PYTHON) and all(apart.isdisjoint(part) and part for part in numbered)


def collected(part: str) -> set[str]:
    """The files of a part of the long tests."""
    config = SimpleNamespace(option=SimpleNamespace(markexpr="long", part=part), stash=pytest.Stash())
    conftest.pytest_configure(config)  # type: ignore[arg-type]
    return config.stash[conftest.FILES] or set()


@pytest.mark.parametrize("skipped", [False, True])
@pytest.mark.parametrize("code", [0, 1])
def test_a_part_counts_as_passed_only_where_all_of_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, skipped: bool
) -> None:
    def run(_: list[str], environment: dict[str, str]) -> int:
        row = {"test": "a", "passed": not (code or skipped), "skipped": skipped, "left_out": False, "wall_s": 1}
        Path(environment[clock.CLOCK]).write_text(json.dumps(row) + "\n")
        return code

    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "state", lambda: "abc")
    monkeypatch.setattr(tiers, "commit", lambda: "0123456789")
    monkeypatch.setattr(tiers, "run_pytest", run)
    assert tiers.run_long(["1/4"], times=2) == code
    assert len(tiers.times_passed("1/4")) == (0 if code or skipped else 2)


# The mark is not at the beginning of a line, or this file itself would be taken for one of long tests.
LONG_TESTS = """
import os, pathlib, pytest; pytestmark = pytest.mark.long
def once(name):
    seen = pathlib.Path(name)
    return seen.exists() or seen.touch()
def test_good(): pass
def test_bad(): assert 0
def test_unsteady(): assert once("unsteady")
def test_whose_process_dies():
    if not once("dies"): os._exit(3)
"""


def test_ci_runs_what_failed_once_more_and_fails_only_if_it_fails_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--part')\n")
    file = tmp_path / "test_some.py"
    file.write_text(LONG_TESTS)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("PYTEST_ADDOPTS", clock.CLOCK, clock.PASSED, clock.WORKER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "UNSTEADY", tmp_path / "unsteady.yaml")
    monkeypatch.setattr(tiers, "WORKERS", ["-n", "2", "-q"])
    monkeypatch.setattr(tiers, "state", lambda: "abc")
    monkeypatch.setattr(tiers, "commit", lambda: f"{11:040x}")
    tiers.UNSTEADY.write_text("")
    assert tiers.run_for_ci() == 1
    out = capfd.readouterr().out
    assert "part 4/8, drawn by commit 00000000" in out and "1 failed twice: test_some.py::test_bad" in out
    rows = yaml.safe_load(tiers.UNSTEADY.read_text())
    assert {row["test"] for row in rows} == {"test_some.py::test_unsteady", "test_some.py::test_whose_process_dies"}

    file.write_text(LONG_TESTS.replace("def test_bad(): assert 0", ""))
    assert tiers.run_for_ci() == 0
    assert tiers.run_for_ci(limit_s=-1) == 0
    assert "3 left out, for the time was over: test_some.py::" in capfd.readouterr().out
    file.write_text("import nothing_of_this_name")
    assert tiers.run_for_ci() == 1, "what cannot be imported is a failure"


def test_every_test_file_has_a_sentence() -> None:
    """Which tests/README.md prints: what the file proves."""
    silent = [file for file in FILES if not (ast.get_docstring(ast.parse((ROOT / file).read_text())) or "").strip()]
    assert silent == [], "begin these files with a sentence of what they prove"


def test_the_state_changes_with_product_and_tests_and_not_with_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    before = tiers.state()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/page.md").write_text("1")
    (tmp_path / "lab").mkdir()
    assert before == tiers.state()
    (tmp_path / "lab/new.py").write_text("1")
    assert before != tiers.state()


def entry(folder: Path, name: str, content: bytes, age_s: float) -> Path:
    path = folder / f"{name}-cache"
    path.write_bytes(content)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_a_compiled_program_that_was_cut_off_is_deleted(tmp_path: Path) -> None:
    good = zlib.compress(os.urandom(1000))
    kept, cut = entry(tmp_path, "kept", good, 100), entry(tmp_path, "cut", good[:500], 100)
    writing = entry(tmp_path, "writing", good[:500], 1)
    conftest.drop_unreadable(tmp_path)
    assert kept.exists() and not cut.exists() and writing.exists()
    os.utime(writing, (time.time() - 70,) * 2)
    os.utime(tmp_path / "checked", (time.time() - 100,) * 2)
    conftest.drop_unreadable(tmp_path)
    assert kept.exists() and not writing.exists()


def test_too_many_compiled_programs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "LARGEST_BYTES", 10)
    entry(tmp_path, "large", b"x" * 11, 100)
    conftest.drop_unreadable(tmp_path)
    assert not tmp_path.exists()


def test_each_test_file_has_its_seconds_and_its_row() -> None:
    """tests/README.md has a row for each file."""
    assert sorted(set(SECONDS) ^ set(FILES)) == [], (
        "python -m tests.tiers record CLOCK, then python -m tests.tiers table"
    )
    is_current = tiers.TABLE.read_text().endswith(tiers.table())
    assert is_current, "type python -m tests.tiers table"
