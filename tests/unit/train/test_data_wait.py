"""When steps wait for their data: said once, with its share, and with keys that the kind has."""

import re

import pytest

from podwright.recipe import load
from podwright.recipe.kinds import KINDS
from podwright.train.multimodal import course
from podwright.train.multimodal.processes import cores
from podwright.train.pretrain import loop
from podwright.train.step_times import StepTimes


def noticed(waits: list[float], steps: list[float]) -> dict[int, list[str]]:
    """The notices by the number of the step after which they come."""
    times = StepTimes(1, lambda mine: [mine], "copy it")
    notices = {n: times.stepped(0.0, step, wait) for n, (wait, step) in enumerate(zip(waits, steps, strict=True), 1)}
    return {n: said for n, said in notices.items() if said}


def test_a_share_of_the_time_is_said_once_after_a_window_of_steps() -> None:
    said = ["waiting for data takes 30 % of the time of the last 20 steps (0.3 s a step): copy it"]
    assert noticed([0.3] * 60, [1.0] * 60) == {20: said}


def test_short_waits_and_a_slow_first_step_are_no_news() -> None:
    assert not noticed([5.0] + [0.05] * 59, [10.0] + [1.0] * 59)


def test_a_data_set_that_gets_slow_later_is_said() -> None:
    assert list(noticed([0.0] * 100 + [0.5] * 100, [1.0] * 200)) == [120]


@pytest.mark.parametrize(
    ("num_cores", "on_host", "expected"),
    [
        (16, [range(16)], 16),
        (16, [range(16)] * 4, 4),
        (6, [range(6)] * 3, 2),
        (4, [range(4), range(4, 16)], 4),  # each process is bound to cores of its own
        (1, [range(1)] * 4, 1),
    ],
)
def test_processes_of_a_host_share_its_cores(num_cores: int, on_host: list[range], expected: int) -> None:
    assert cores.shared(range(num_cores), on_host) == expected


def test_the_keys_that_are_named_are_of_the_kinds_that_see_them() -> None:
    texts = {"pretrain": loop.DATA_WAIT, "multimodal": course.DATA_WAIT}
    for kind, text in (texts | {"contrastive": texts["multimodal"]}).items():
        keys = set(re.findall(r"\bdata\.[a-z_]+", text))
        assert keys <= load.fields(KINDS[kind].schema).keys() and (kind != "pretrain" or keys), (kind, keys)
