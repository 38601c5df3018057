"""tokamax's kernel for KDA, its program interpreted on a CPU, against the definition; where a Python has the library (3.12 or newer)."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from podwright.errors import UserError
from podwright.kernels import kda_tokamax
from tests.unit.kernels.kda_tokamax_distances import DOCUMENTS, SHIFTS
from tests.unit.kernels.test_gpu_programs import PYTHON

HERE = importlib.util.find_spec("tokamax") is not None


@pytest.fixture(scope="module")
def distances() -> dict[str, list[float]]:
    """Of all cases, by this Python or by that of the programs for GPUs."""
    python = sys.executable if HERE else str(PYTHON)
    if not Path(python).exists() or subprocess.run([python, "-c", "import tokamax"], check=False).returncode:
        pytest.skip(f"inconclusive: no tokamax here, nor at {PYTHON} (CONTRIBUTING.md)")
    argv = [python, "-m", "tests.unit.kernels.kda_tokamax_distances"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PALLAS_INTERPRET": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_output_and_gradients_are_those_of_the_definition(
    shift: str, documents: str, distances: dict[str, list[float]]
) -> None:
    assert len(distances[f"{shift}, {documents}"]) == 6
    assert max(distances[f"{shift}, {documents}"]) <= 1e-4


@pytest.mark.skipif(HERE, reason="tokamax is installed")
def test_without_the_library_one_line_says_what_to_type():
    with pytest.raises(
        UserError, match=r"the library tokamax is missing or too old here .*type: pip install 'tokamax>=0\.0\.17'"
    ):
        kda_tokamax.library()
