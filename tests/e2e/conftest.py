"""A runs directory with `podwright` over the stand-in trainer in it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAUNCH = Path(__file__).parents[1] / "launch.py"
RECIPE = ("qwen3-tiny-arithmetic-grpo", "data.num_train=64", "model.name=qwen3-micro")


class Bench:
    """Starts `podwright` processes in a folder of their own and reads what they leave there."""

    launch = LAUNCH

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(self.launch), *argv],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(LAUNCH.parents[1]), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def call(self, *argv: str, **env: str) -> tuple[int, str, str]:
        process = self.start(*argv, **env)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def run(self, steps: int, *argv: str, **env: str) -> tuple[int, str, str]:
        return self.call("run", *RECIPE, f"training.max_steps={steps}", "--name", "r", "--force", *argv, **env)

    def start_run(self, steps: int, *argv: str, **env: str) -> subprocess.Popen[str]:
        return self.start("run", *RECIPE, f"training.max_steps={steps}", "--name", "r", "--force", *argv, **env)

    def path(self, name: str = "") -> Path:
        return self.folder / "runs" / "r" / name

    def records(self, name: str) -> list[dict[str, Any]]:
        path = self.path(name)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def steps(self) -> list[int]:
        return [r["step"] for r in self.records("metrics.jsonl")]

    def standing(self) -> dict[str, Any]:
        code, out, err = self.call("list", "--json")
        assert code == 0, err
        (row,) = json.loads(out)
        return row

    def close(self) -> None:
        if self.path("journal.jsonl").exists():
            self.call("stop", "r")
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def wait_for(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()
