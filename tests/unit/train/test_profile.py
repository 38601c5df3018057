"""Which steps are traced, as the run directory has it."""

from pathlib import Path

from podwright.rundir import RunDir
from podwright.train import profile


def test_the_steps_to_trace_are_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert profile.of(run).steps == frozenset()
    run.profiled.write_text("[10, 11]")
    assert profile.of(run).steps == {10, 11}
