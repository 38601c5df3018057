"""Launchers killed at any instant, with and without faults of the cloud: nothing is left, no step is missing, no run is stuck.

`bench/chaos.py` lives more of them and counts.
"""

from pathlib import Path

import pytest

from lab import cloud
from tests.e2e.chaos_hazards import SHORT
from tests.e2e.chaos_script import Script
from tests.e2e.chaos_training import Trained, train
from tests.e2e.chaos_vms import live, live_briefly

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
QUICK = (2, pytest.param(5, marks=pytest.mark.long))
"""without faults of the cloud and in a bucket; with such faults and without a bucket"""
LIVES, TRAININGS = (2000, 2001, 2002, 2003, 2004, 2006, 2011, 2013, 2015, 2016, 2017, 2021), (2, 5, 7)
"""seeds with about 50 kills, around every line of the journal and in every phase, and with 9; bench/chaos.py has as many as one likes"""


@pytest.mark.long
@pytest.mark.parametrize("seed", QUICK)
def test_a_life_under_disturbances_leaves_nothing_behind_and_loses_no_step(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path).require_no_fault()


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(SHORT)))
def test_a_short_life_in_which_each_kind_of_disturbance_comes_leaves_nothing_and_loses_no_step(
    number: int, tmp_path: Path
) -> None:
    live_briefly(number, tmp_path).require_no_fault()


@pytest.mark.long
@pytest.mark.parametrize("seed", LIVES)
def test_many_lives_under_disturbances_leave_nothing_behind_and_lose_no_step(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path).require_no_fault()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    life, trained = train(Script.undisturbed(), tmp_path_factory.mktemp("undisturbed"))
    assert trained, life.faults
    return trained


@pytest.mark.long
@pytest.mark.crowded
@pytest.mark.parametrize("seed", TRAININGS)
def test_training_under_disturbances_ends_bit_for_bit_like_an_undisturbed_one(
    seed: int, tmp_path: Path, undisturbed: Trained
) -> None:
    life, _ = train(Script.of_training(seed), tmp_path, undisturbed)
    life.require_no_fault()
