from collections.abc import Iterator

import pytest

from lab.bucket import EmulatedBucket
from podwright.plan.checks import token_lengths
from podwright.storage import base
from tests import token_counts


@pytest.fixture(autouse=True)
def counted_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans count tokens in the process of the test."""
    monkeypatch.setattr(token_lengths, "_ask", token_counts.ask)


@pytest.fixture
def counting_process(monkeypatch: pytest.MonkeyPatch, counted_tokens: None) -> None:
    """Plans count tokens in a process of their own, as they do it outside tests."""
    monkeypatch.setattr(token_lengths, "_ask", token_counts.in_a_process)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBucket]:
    """An emulated bucket that this process's clients ask."""
    monkeypatch.setattr(base, "PATIENCE_S", 20.0)
    with EmulatedBucket() as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture(params=["folder", "bucket"])
def url(request, tmp_path) -> str:
    """Of a storage, in a folder or in a bucket."""
    if request.param == "folder":
        folder = tmp_path / "shared" / "runs"
        folder.mkdir(parents=True)
        return str(folder)
    return f"{request.getfixturevalue('bucket').url}/some/runs"
