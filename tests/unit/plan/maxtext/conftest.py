"""A stand-in for Python 3.12, and a context in which environments are made with it."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright.plan.compiled import maxtext_environment
from podwright.plan.compiled.compile import CompileContext
from podwright.shell import Shell

INTERPRETER = Path(__file__).with_name("interpreter.py")
VERSIONS = {"maxtext": "0.2.5", "jax": "0.12.0.1", "jaxlib": "0.12.0.1", "libtpu": "0.0.52", "tokamax": "0.0.17"}


class StandIn:
    """The state of the interpreter, and what was announced."""

    def __init__(self, folder: Path) -> None:
        self.state, self.cache = folder / "state", folder / "cache"
        self.state.mkdir()
        self.announced: list[str] = []
        self.phases: list[str] = []
        self.python = folder / "python3.12"
        self.python.write_text(INTERPRETER.read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
        self.python.chmod(0o755)
        self.context = CompileContext(
            self.cache, lambda program, phase, s: self.phases.append(phase), announce=self.announced.append
        )

    def says(self, **texts: object) -> None:
        for name, text in texts.items():
            file = "reading.json" if name == "reading" else name
            (self.state / file).write_text(json.dumps(text) if name == "reading" else str(text))

    def starts(self) -> list[dict[str, Any]]:
        path = self.state / "argv.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def installed(self, name: str, versions: dict[str, str] | None = None) -> Path:
        """An environment that is there already."""
        folder = self.cache / name
        (folder / "bin").mkdir(parents=True)
        shutil.copy(self.python, folder / "bin" / "python")
        (folder / "made.json").write_text(json.dumps(versions or VERSIONS))
        return folder


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    own = StandIn(tmp_path)
    monkeypatch.setenv("INTERPRETER_STATE", str(own.state))
    monkeypatch.setattr(maxtext_environment, "_interpreter", lambda: str(own.python))
    # A stand-in needs no core: it does not wait for the real compilers of other tests.
    monkeypatch.setattr(Shell, "private_folder", staticmethod(lambda: tmp_path))
    for name in [name for name in os.environ if name.startswith("M_")]:
        monkeypatch.delenv(name)
    yield own
