"""Which steps are traced, as the run directory has it."""

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.train import profile


@pytest.mark.parametrize("content", ["", "{", "{}", "3", '["1"]', "[true]", "[" * 100_000])
def test_a_damaged_list_of_steps_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    run = RunDir(tmp_path)
    run.profiled.write_text(content)
    with pytest.raises(UserError, match=f"{run.profiled} is no list of the steps to trace; delete it"):
        profile.of(run)


def test_the_steps_to_trace_are_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert profile.of(run).steps == frozenset()
    run.profiled.write_text("[10, 11]")
    assert profile.of(run).steps == {10, 11}
