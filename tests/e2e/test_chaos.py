"""Launchers killed at any instant, with and without faults of the cloud: nothing is left, no step is missing, no run is stuck.

`python -m tests.e2e.test_chaos SEED...` lives the lives of these seeds (FIRST-LAST works too) and prints a table.
"""

import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.chaos import TABLE, live
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


def main() -> int:
    failed = 0
    print(TABLE, flush=True)
    for words in sys.argv[1:]:
        first, _, last = words.partition("-")
        for seed in range(int(first), int(last or first) + 1):
            life = live(seed, Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-")))
            failed += bool(life.faults)
            print(life.row, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
