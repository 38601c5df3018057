"""Launchers killed at any instant of runs on GKE: nothing is left, nothing of others is changed, no step is missing, no run is stuck.

`bench/chaos.py` lives more of them and counts.
"""

from pathlib import Path

import pytest

from tests.e2e.chaos_gke import live, live_briefly
from tests.lab.kube import controllers

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
QUICK, LIVES = 12, 60
"""of the latter about 240 kills"""


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_short_life_on_gke_leaves_nothing_behind_and_loses_no_step(seed: int, tmp_path: Path) -> None:
    life = live_briefly(seed, tmp_path)
    assert not life.faults, f"seed {seed}: {life.faults} of {life.script}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3000, 3000 + LIVES))
def test_many_lives_on_gke_leave_nothing_behind_and_lose_no_step(seed: int, tmp_path: Path) -> None:
    life = live(seed, tmp_path)
    assert not life.faults, f"seed {seed}: {life.faults} of {life.script}"
