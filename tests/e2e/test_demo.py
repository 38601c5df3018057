"""The promise of the demo: GRPO alone gains at least 25 points, whatever the seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_grpo_gains_at_least_25_points(seed, tmp_path):
    out = tmp_path / "result.json"
    env = {
        name: value for name, value in os.environ.items() if name != "XLA_FLAGS"
    }  # one device, and a compiler that optimizes
    subprocess.run(
        [sys.executable, ROOT / "bench" / "recipe_seeds.py", "--seeds", str(seed), "--out", out], check=True, env=env
    )
    (run,) = json.loads(out.read_text())["runs"]
    assert run["accuracy_gain"] >= 0.25
