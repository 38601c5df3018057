"""A plugin of pytest: what each test took, its fixtures and the processes that it waited for included, one JSON line a test."""

import json
import os
import resource
import time
from collections.abc import Generator
from typing import Any

import pytest

CLOCK = "PODWRIGHT_TESTS_CLOCK"
_failed: set[str] = set()


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
        "passed": item.nodeid not in _failed,
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
    return report
