from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lab.bucket import EmulatedBucket
from podwright.plan.checks import token_lengths
from podwright.report.figures import style
from podwright.storage import base
from tests import token_counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures of the plots that a test draws, with what stands in them; their SVG is left empty."""
    figures: list[Figure] = []
    monkeypatch.setattr(style, "to_svg", lambda fig, title: figures.append(fig) or "")
    return figures
