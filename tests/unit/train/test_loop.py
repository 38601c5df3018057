"""What the loop refuses before it starts."""

import pytest

from podwright.errors import UserError
from podwright.train import speed
from podwright.train.grpo import loop
from tests.unit.train import small


def test_sizes_that_the_mesh_divides_are_taken():
    loop._divides(small.recipe("batch_size=8", "training.gradient_accumulation_steps=2"), 4)
    loop._divides(small.recipe("batch_size=8", "warm_start=null"), 8)


@pytest.mark.parametrize(
    ("overrides", "shards", "says"),
    [
        (["batch_size=6"], 4, r"batch_size=6 is not divisible by data x fsdp = 4 devices; make it a multiple of 4"),
        (
            ["batch_size=8", "training.gradient_accumulation_steps=4"],
            4,
            r"batch_size=2 \(a micro-batch\) is not divisible",
        ),
        (["warm_start.batch_size=6"], 4, r"warm_start.batch_size=6 is not divisible by data x fsdp = 4 devices"),
    ],
)
def test_a_size_that_the_mesh_does_not_divide_is_one_line(overrides, shards, says):
    with pytest.raises(UserError, match=says):
        loop._divides(small.recipe(*overrides), shards)


@pytest.mark.parametrize(("platform", "factor"), [("darwin", 1), ("linux", 1024)])
def test_peak_memory_is_in_the_units_of_the_platform(monkeypatch, platform, factor):
    monkeypatch.setattr(speed.sys, "platform", platform)
    peak = speed.resource.getrusage(speed.resource.RUSAGE_SELF).ru_maxrss
    assert speed.peak_memory_bytes() == pytest.approx(peak * factor, rel=0.5)
