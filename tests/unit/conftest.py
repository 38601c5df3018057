from collections.abc import Iterator

import pytest

from lab.bucket import EmulatedBucket
from podwright.storage import base


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
