"""Where CI has installed what the tests of clusters and of the browser need, a skip of theirs fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import SKIPS_FAIL

ROOT = Path(__file__).resolve().parents[2]


def summary_of(file: str, **more: str) -> str:
    """The output of the tests of `file` on a machine without any command."""
    env = {k: v for k, v in os.environ.items() if k != SKIPS_FAIL} | {"PATH": "/nonexistent"} | more
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long", file]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True).stdout


@pytest.mark.parametrize("file", ["tests/unit/report/test_browser.py", "tests/e2e/test_slurm.py"])
def test_a_skip_fails_where_nothing_should_be_missing(file: str) -> None:
    last = summary_of(file).splitlines()[-1]
    assert re.search(r"\d+ skipped", last) and "failed" not in last and "passed" not in last
    out = summary_of(file, **{SKIPS_FAIL: "1"})
    last = out.splitlines()[-1]
    assert re.search(r"\d+ errors?", last) and "skipped" not in last and "passed" not in last
    assert f"skipped where {SKIPS_FAIL} is set" in out
