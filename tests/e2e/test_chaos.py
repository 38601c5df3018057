"""Launchers killed at any instant, with and without faults of the cloud: nothing is left, no step is missing, no run is stuck.

`bench/chaos.py` lives more of them and counts.
"""

from pathlib import Path

import pytest

from tests.e2e.chaos import live
from tests.lab import cloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
QUICK = (2,)
LIVES = 190


@pytest.mark.parametrize("seed", QUICK)
def test_a_life_under_disturbances_leaves_nothing_behind_and_loses_no_step(seed: int, tmp_path: Path) -> None:
    life = live(seed, tmp_path)
    assert not life.faults, f"seed {seed}: {life.faults} of {life.script}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 2000 + LIVES))
def test_many_lives_under_disturbances_leave_nothing_behind_and_lose_no_step(seed: int, tmp_path: Path) -> None:
    life = live(seed, tmp_path)
    assert not life.faults, f"seed {seed}: {life.faults} of {life.script}"
