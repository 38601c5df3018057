"""Which steps are traced, as the run directory has it, and which ones compile."""

from pathlib import Path

import jax
import numpy as np

from podwright.rundir import RunDir
from podwright.train import profile


def test_the_steps_to_trace_are_read(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert profile.of(run).steps == frozenset()
    run.profiled.write_text("[10, 11]")
    assert profile.of(run).steps == {10, 11}


def test_a_step_that_meets_a_new_width_is_marked_and_no_other(tmp_path: Path) -> None:
    """What is compiled between two steps, as for an evaluation, is not of the step behind it."""
    steps = profile.of(RunDir(tmp_path))
    double = jax.jit(lambda x: x * 2.5 - 1.25)
    marked = []
    for number, width in enumerate((3, 3, 5, 3, 5)):
        with steps.step(number) as marks:
            double(np.ones(width, np.float32))
        double(np.ones(20 + number, np.float32))
        marked.append(marks)
    assert marked == [{"compiled": True}, {}, {"compiled": True}, {}, {}]
