"""Launchers killed at any instant of runs on GKE: nothing is left, nothing of others is changed, no step is missing, no run is stuck.

`bench/chaos.py` lives more of them and counts.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube import controllers
from tests.e2e.chaos_gke import live, live_briefly
from tests.e2e.chaos_gke_script import BRIEF, CLOUDY_EVENTS, EVENTS, of_gke, of_gke_briefly
from tests.e2e.chaos_phases import GKE_PHASES
from tests.e2e.chaos_script import Script
from tests.e2e.fork_server import ForkServer

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
LIVES = 12
"""about 50 kills"""


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(BRIEF)))
def test_a_short_life_on_gke_leaves_nothing_behind_and_loses_no_step(
    number: int, tmp_path: Path, forks: ForkServer
) -> None:
    live_briefly(number, tmp_path, forks).require_no_fault()


@pytest.mark.long
def test_short_lives_have_all_moments_and_all_kinds_of_faults_that_lives_can_have() -> None:
    short, drawn = [of_gke_briefly(number) for number in range(len(BRIEF))], [of_gke(seed) for seed in range(1000)]
    assert moments(short) == moments(drawn) == {*GKE_PHASES, *EVENTS, *CLOUDY_EVENTS}
    kinds = [{what for script in scripts for what, _, _ in script.cloud} for scripts in (short, drawn)]
    assert kinds[0] == kinds[1]


def moments(scripts: list[Script]) -> set[str]:
    """Phases, and lines of the journal around which launchers are killed."""
    kills = [kill for script in scripts for kill in script.kills]
    return {kill.event.partition(":")[2] or str(kill.phase) for kill in kills} - {""}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3000, 3000 + LIVES))
def test_many_lives_on_gke_leave_nothing_behind_and_lose_no_step(seed: int, tmp_path: Path) -> None:
    live(seed, tmp_path).require_no_fault()
