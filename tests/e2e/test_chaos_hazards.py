"""The table of what disturbs lives: what sixty of them draw, and that somebody carries out each."""

import pytest

from tests.e2e import chaos_hazards, test_chaos
from tests.e2e.chaos_disturbing import ACTS
from tests.e2e.chaos_gke_script import of_gke
from tests.e2e.chaos_hazards import GKE, HAZARDS, SHORT, TPU_VM
from tests.e2e.chaos_phases import VM_PHASES
from tests.e2e.chaos_script import EVENTS, TRAINERS, Script

LIVES = {TPU_VM: Script.of, GKE: of_gke}
CLOUD = (
    "permission missing",
    "login expired",
    "long lag",
    "slow deletion",
    "failed deletion",
    "orphaned call",
    "maintenance",
)


@pytest.mark.parametrize("cloud", LIVES)
def test_sixty_lives_draw_each_kind_of_disturbance_that_their_cloud_knows(cloud: str) -> None:
    drawn = [what for seed in range(9000, 9060) for what, _, _ in LIVES[cloud](seed).cloud if what in HAZARDS]
    possible = set(chaos_hazards.names(cloud, bucket=True, calm=False))
    assert set(drawn) == possible and set(HAZARDS) - possible <= {"maintenance"}
    assert min(drawn.count(kind) for kind in possible) >= 2


@pytest.mark.parametrize("cloud", LIVES)
def test_a_life_of_an_even_seed_has_a_cloud_without_faults(cloud: str) -> None:
    kinds = {what for seed in range(9000, 9060, 2) for what, _, _ in LIVES[cloud](seed).cloud}
    assert kinds == {name for name, hazard in HAZARDS.items() if hazard.calm}


def test_a_seed_always_draws_the_same() -> None:
    assert [life(9001) for life in LIVES.values()] == [life(9001) for life in LIVES.values()]


@pytest.mark.parametrize("cloud", LIVES)
def test_the_short_lives_have_each_kind(cloud: str) -> None:
    kinds = [what for number in range(len(SHORT)) for what, _, _ in chaos_hazards.short(number, cloud)]
    assert sorted(kinds) == sorted(chaos_hazards.names(cloud, bucket=True, calm=False))


def test_the_lives_of_the_long_tests_kill_launchers_in_every_phase_and_around_every_line() -> None:
    kills = [kill for seed in test_chaos.LIVES for kill in Script.of(seed).kills]
    assert {kill.event.partition(":")[2] for kill in kills} >= {*EVENTS, "retrying"}
    assert {kill.phase for kill in kills} >= set(VM_PHASES)
    assert {kill.phase for seed in test_chaos.TRAININGS for kill in Script.of_training(seed).kills} >= set(TRAINERS)


def test_each_kind_is_carried_out_by_a_process_or_by_the_cloud() -> None:
    assert set(HAZARDS) == (set(ACTS) - {"bucket"}) | set(CLOUD)
