"""A plugin of pytest: what each test took, its fixtures and the processes that it waited for included, one JSON line a test.

Tests that a file names are left out, so that a run that was broken off goes on where it ended.
"""

import json
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

CLOCK, PASSED = "PODWRIGHT_TESTS_CLOCK", "PODWRIGHT_TESTS_PASSED"
"""name the file of lines, and a file of the tests that are left out"""
_failed: set[str] = set()
_skipped: set[str] = set()


def environment(clock: Path) -> dict[str, str]:
    """For a run that adds to `clock` and leaves out what has passed by it. The list does not change while workers read it."""
    rows = [json.loads(line) for line in clock.read_text().splitlines()] if clock.exists() else []
    passed = clock.with_suffix(".passed")
    passed.write_text("".join(f"{row['test']}\n" for row in rows if row["passed"]))
    return {CLOCK: str(clock), PASSED: str(passed)}


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
    row = {
        "test": item.nodeid,
        "cpu_s": round(_cpu_s() - cpu_s, 4),
        "wall_s": round(time.monotonic() - wall_s, 4),
        "passed": item.nodeid not in _failed | _skipped,
        "skipped": item.nodeid in _skipped,
        "long": item.get_closest_marker("long") is not None,
    }
    with open(os.environ[CLOCK], "a") as out:
        out.write(json.dumps(row) + "\n")
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        _failed.add(item.nodeid)
    if report.skipped:
        _skipped.add(item.nodeid)
    return report
