"""Every result in bench/results is of a commit of this history, and says whether files were changed since it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = sorted((ROOT / "bench" / "results").glob("*.json"))


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", autouse=True)
def history() -> None:
    """A skip says which commits cannot be looked up here, so that nobody takes it for an answer."""
    if not shutil.which("git") or git("rev-parse", "--git-dir").returncode:
        pytest.skip("not a git checkout: the commits of bench/results cannot be looked up")
    if git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        pytest.skip("a shallow clone: the commits of bench/results cannot be looked up; type git fetch --unshallow")
    if git("rev-list", "--count", "HEAD").stdout.strip() == "1":
        pytest.skip("a checkout with a single commit: the commits of bench/results cannot be looked up")


def commits(value: Any) -> Iterator[str]:
    """All that a result names, wherever in it; words may follow a commit."""
    if isinstance(value, dict):
        yield from (str(x) for key, x in value.items() if key == "commit")
        value = list(value.values())
    if isinstance(value, list):
        for x in value:
            yield from commits(x)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_result_is_of_a_commit_that_is_in_the_history(path: Path) -> None:
    """And where `bench/stamp.py` of that commit writes `dirty`, the result has it."""
    result = json.loads(path.read_text())
    named = list(commits(result))
    assert named, f"{path.name} names no commit: bench/stamp.py writes it"
    for text in named:
        commit = re.match(r"[0-9a-f]{7,40}\b", text)
        assert commit, f"{path.name} names {text!r}, which is no commit"
        in_history = git("merge-base", "--is-ancestor", commit[0], "HEAD").returncode == 0
        assert in_history, (
            f"{path.name}: commit {commit[0]} is not in the history of HEAD; run bench/{path.stem.partition('-')[0]}.py again"
        )
        if '"dirty"' in git("show", f"{commit[0]}:bench/stamp.py").stdout:
            assert isinstance(result.get("dirty"), bool), f"{path.name} does not say whether the tree was dirty"
