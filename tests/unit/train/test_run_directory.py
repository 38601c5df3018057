"""A trainer whose run directory is deleted ends by itself."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

GUARDED = (
    "import sys, time; from pathlib import Path; from podwright.train import run_directory\n"
    "run_directory.guard(Path(sys.argv[1]), every_s=0.05); print('ready', flush=True); time.sleep(float(sys.argv[2]))"
)


def start(recipe: Path, seconds: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", GUARDED, str(recipe), str(seconds)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("comes_back", [False, True])
def test_it_ends_and_says_so_even_if_something_creates_the_directory_again(tmp_path: Path, comes_back: bool) -> None:
    run = tmp_path / "r"
    run.mkdir()
    (run / "recipe.json").write_text("{}")
    process = start(run / "recipe.json", 60)
    time.sleep(0.3)
    assert process.poll() is None
    shutil.rmtree(run)
    if comes_back:
        (run / "checkpoints").mkdir(parents=True)
    out, _ = process.communicate(timeout=20)
    assert (
        process.returncode == 1
        and f"the run directory {run} was deleted: process {process.pid} of its trainer ends" in out
    )
    assert run.exists() is comes_back


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_is_only_away_for_a_moment_or_never_had_a_recipe_goes_on(tmp_path: Path, there: bool) -> None:
    recipe = tmp_path / "recipe.json"
    if there:
        recipe.write_text("{}")
    process = start(recipe, 1.5)
    if there:
        recipe.rename(tmp_path / "away")
        time.sleep(0.12)
        (tmp_path / "away").rename(recipe)
    assert process.wait(20) == 0
