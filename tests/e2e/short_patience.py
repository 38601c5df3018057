"""The trainer, `short_patience.py RUN --attempt N`, whose watchdog ends a run that hangs after seconds instead of minutes."""

import sys
from pathlib import Path

from podwright.rundir import RunDir

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 30.0
"""from a hang to the end of the first process"""


def interpreter(path: Path) -> Path:
    """A Python for the hosts of a target: what would train is this trainer."""
    path.write_text(
        f"""#!/bin/sh
export PYTHONPATH={ROOT}
case "$*" in "-m podwright.train /"*) shift 2; set -- -m {__name__} "$@" ;; esac
exec {sys.executable} "$@"
"""
    )
    path.chmod(0o755)
    return path


def process(run: Path, rank: int) -> int:
    """Of this trainer at work on `run`: its number as seen from here, wherever it was started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"{__name__}\0{run}\0".encode() in (path / "cmdline").read_bytes()
            if ours and f"\0RANK={rank}\0".encode() in b"\0" + (path / "environ").read_bytes():
                return int(path.name)
        except OSError:
            continue
    raise AssertionError(f"no process {rank} of {run}")


def assert_stacks_of_both(run: RunDir, stopped: int, loop: str) -> None:
    """In attempt 1 of two processes, of which one was stopped: what both were at in the file `loop`."""
    for rank in range(2):
        stacks = run.stacks(1, rank).read_text()
        if rank == stopped:
            stacks = stacks.partition("gave no sign for ")[2]
            assert "(T (stopped)); where it was when it was continued:" in stacks
        assert "most recent call first" in stacks and loop in stacks, stacks


if __name__ == "__main__":
    from podwright.train import __main__ as trainer
    from podwright.train import observe
    from podwright.train.watchdog import Patience

    observe.PATIENCE = Patience(first_s=120.0, least_s=6.0, most_s=6.0, grace_s=6.0)
    sys.exit(trainer.main())
