"""How values that a cluster writes are read."""

import pytest

from podwright.targets.gke.cluster_view import quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [(16, 16), ("16", 16), ("10k", 10_000), ("1Ki", 1024), ("500m", 0.5), ("1e3", 1000), ("2E", 2e18), ("1.5M", 1.5e6)],
)
def test_a_quantity_has_the_unit_that_the_cluster_gives_it(text: str | int, number: float) -> None:
    assert quantity(text) == number
