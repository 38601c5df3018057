"""No plan of a test waits for a bucket: there is none."""

import pytest

from podwright.plan.checks import streams


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PATIENCE_S", 0.2)
