"""A plugin of pytest: what each test took, its fixtures and the processes that it waited for included, one JSON line a test.

Tests that a file names are left out, so that a run that was broken off goes on where it ended. After a moment that may be set no test is
begun any more; those that were not are in the lines, as left out.
"""

import json
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

CLOCK, PASSED, UNTIL = "PODWRIGHT_TESTS_CLOCK", "PODWRIGHT_TESTS_PASSED", "PODWRIGHT_TESTS_UNTIL"
"""name the file of lines, a file of the tests that are left out, and the moment (seconds since 1970) after which none is begun"""
WORKER = "PYTEST_XDIST_WORKER"
_failed: set[str] = set()
_skipped: set[str] = set()
_left_out: set[str] = set()


def environment(clock: Path) -> dict[str, str]:
    """For a run that adds to `clock` and leaves out what has passed by it. The list does not change while workers read it."""
    passed = clock.with_suffix(".passed")
    passed.write_text("".join(f"{row['test']}\n" for row in rows(clock) if row["passed"]))
    return {CLOCK: str(clock), PASSED: str(passed)}


def rows(clock: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in clock.read_text().splitlines()] if clock.exists() else []


def _write(test: str, cpu_s: float, wall_s: float, *, long: bool) -> None:
    row = {
        "test": test,
        "cpu_s": round(cpu_s, 4),
        "wall_s": round(wall_s, 4),
        "passed": test not in _failed | _skipped | _left_out,
        "skipped": test in _skipped,
        "left_out": test in _left_out,
        "long": long,
    }
    with open(os.environ[CLOCK], "a") as out:
        out.write(json.dumps(row) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = set(Path(os.environ[PASSED]).read_text().splitlines()) if PASSED in os.environ else set[str]()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def _cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    cpu_s, wall_s = _cpu_s(), time.monotonic()
    value = yield
    long = item.get_closest_marker("long") is not None
    _write(item.nodeid, _cpu_s() - cpu_s, time.monotonic() - wall_s, long=long)
    return value


@pytest.hookimpl(tryfirst=True, specname="pytest_runtest_protocol")
def pytest_begin_no_test_after_the_limit(item: pytest.Item) -> bool | None:
    if time.time() < float(os.environ.get(UNTIL) or "inf"):
        return None
    _left_out.add(item.nodeid)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        _failed.add(item.nodeid)
    if report.skipped:
        _skipped.add(item.nodeid)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test in which a worker process ended has no line from that process."""
    if WORKER not in os.environ and report.when not in ("setup", "call", "teardown"):
        _failed.add(report.nodeid)
        _write(report.nodeid, 0.0, 0.0, long=True)
