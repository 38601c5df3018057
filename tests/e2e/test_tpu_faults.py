"""Workers of a simulated slice that are lost, or under maintenance, while a run trains on them: each is named in one line, and the slice is replaced."""

import pytest

from tests.e2e.conftest import wait_for
from tests.e2e.test_tpu_vm import TpuBench, endings, gcloud, lab, stood_in  # noqa: F401  fixtures
from tests.lab import cloud
from tests.lab.gcloud.control import Gcloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")


def training(gcloud: Gcloud, bench: TpuBench, steps: int, others_s: float) -> str:  # noqa: F811
    """Start a run, whose other processes than the first live for `others_s`; the name of its slice once it trains."""
    bench.settings(env=["STANDIN_STEP_S", "STANDIN_OTHER"])
    bench.start_run(steps, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25", STANDIN_OTHER=str(others_s))
    wait_for(lambda: len(bench.steps()) > 2, 90)
    (node,) = (row["name"] for row in gcloud.resources() if row["kind"] == "node")
    return node


@pytest.mark.parametrize("worker", [2, pytest.param(0, marks=pytest.mark.long)])
def test_a_worker_that_cannot_be_reached_in_mid_run_is_named_and_costs_the_slice_only(
    gcloud: Gcloud,  # noqa: F811
    stood_in: TpuBench,  # noqa: F811
    worker: int,
) -> None:
    steps = 72  # of a quarter of a second: longer than the hosts wait for one that is silent
    node = training(gcloud, stood_in, steps, 20.0)
    gcloud.unreachable(node, worker)
    out, err = stood_in.started[0].communicate(timeout=200)
    assert stood_in.started[0].returncode == 0, (out, err)
    first, second = endings(stood_in)
    lost = f"host {node}-w-{worker} was lost: its connection to the other hosts closed, or was silent for 15 s"
    assert (first, second[0]) == (("NODE_LOST", lost), "FINISHED")
    assert sorted(set(stood_in.steps())) == list(range(1, steps + 1))
    assert gcloud.resources() == [] and [row["name"] for row in gcloud.ledger()] == [node, f"{node[:-1]}2"]
