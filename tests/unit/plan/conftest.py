"""No plan of a test asks a bucket: there is none."""

import pytest

from podwright.plan.checks import patience


@pytest.fixture(autouse=True)
def no_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_GCS", "http://127.0.0.1:9")
