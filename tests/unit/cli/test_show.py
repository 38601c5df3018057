"""How the figures of plans and of machines are shown on a terminal."""

import pytest

from podwright.cli import machines, show
from podwright.plan.document import PartSeconds


def test_the_time_of_a_part_is_the_sum_of_its_phases_the_longest_part_first() -> None:
    rows = [("mlp", "forward", 1.0), ("attention", "forward", 2.0), ("mlp", "recompute", 1.0), ("mlp", "backward", 3.0)]
    parts = [PartSeconds(part=part, phase=phase, seconds=seconds) for part, phase, seconds in rows]
    assert show._where_time_goes(parts) == "mlp 5.0 s (1.0 recompute), attention 2.0 s"
    small = PartSeconds(part="norm", phase="forward", seconds=0.01)
    assert show._where_time_goes([*parts, small]) == show._where_time_goes(parts), "below a percent"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, ""), (59.0, "0 min"), (5400.0, "90 min"), (7200.0, "2.0 h"), (9000.0, "2.5 h")]
)
def test_an_age_is_in_minutes_up_to_two_hours(seconds: float | None, shown: str) -> None:
    assert machines._age(seconds) == shown
