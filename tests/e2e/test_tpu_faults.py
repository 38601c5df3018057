"""Workers of a simulated slice that are lost, or under maintenance, while a run trains on them: each is named in one line, and the slice is replaced."""

import json

import pytest

from lab import cloud
from lab.gcloud.control import Gcloud
from tests.e2e.conftest import wait_for
from tests.e2e.test_tpu_vm import TpuBench, endings, gcloud, lab, stood_in  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")


def training(gcloud: Gcloud, bench: TpuBench, steps: int, others_s: float, **env: str) -> str:  # noqa: F811
    """Start a run, whose other processes than the first live for `others_s`; the name of its slice once it trains."""
    bench.settings(env=["STANDIN_STEP_S", "STANDIN_OTHER"])
    env |= {"STANDIN_STEP_S": "0.25", "STANDIN_OTHER": str(others_s)}
    bench.start_run(steps, "mesh.fsdp=16", "--on", "tpu", **env)
    wait_for(lambda: len(bench.steps()) > 2)
    (node,) = (row["name"] for row in gcloud.resources() if row["kind"] == "node")
    return node


@pytest.mark.long
def test_a_worker_with_a_wrong_image_is_named_and_costs_the_slice_only(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    gcloud.image("pw-*-1", 1, "tpu-ubuntu2204-base")
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code == 0, (out, err)
    first, second = endings(stood_in)
    assert first[0] == "NO_CAPACITY", first
    assert first[1].startswith("jax finds no working TPU driver on pw-r-") and "-1-w-1: " in first[1], first
    assert second[0] == "FINISHED" and stood_in.steps() == [1, 2, 3, 4, 5]
    assert gcloud.resources() == [] and [row["name"][-2:] for row in gcloud.ledger()] == ["-1", "-2"]


@pytest.mark.long
@pytest.mark.parametrize("worker", [2, 0])
def test_a_worker_that_cannot_be_reached_in_mid_run_is_named_and_costs_the_slice_only(
    gcloud: Gcloud,  # noqa: F811
    stood_in: TpuBench,  # noqa: F811
    worker: int,
) -> None:
    steps = 72  # of a quarter of a second: longer than the hosts wait for one that is silent
    node = training(gcloud, stood_in, steps, 20.0)
    gcloud.unreachable(node, worker)
    out, err = stood_in.started[0].communicate(timeout=900)
    assert stood_in.started[0].returncode == 0, (out, err)
    first, second = endings(stood_in)
    lost = f"host {node}-w-{worker} was lost: its connection to the other hosts closed, or was silent for 15 s"
    assert (first, second[0]) == (("NODE_LOST", lost), "FINISHED")
    assert sorted(set(stood_in.steps())) == list(range(1, steps + 1))
    assert gcloud.resources() == [] and [row["name"] for row in gcloud.ledger()] == [node, f"{node[:-1]}2"]


@pytest.mark.long
def test_a_slice_that_restarts_for_maintenance_is_replaced_once_it_is_back(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    node = training(gcloud, stood_in, 40, 10.0)
    gcloud.maintain(node, unhealthy_s=1.0, away_s=15.0)
    waiting = "Maintenance: the cloud restarts the machines; if they stay away for long, others are requested"
    wait_for(lambda: stood_in.standing()["detail"] == waiting)
    out, err = stood_in.started[0].communicate(timeout=900)
    assert stood_in.started[0].returncode == 0, (out, err)
    first, second = endings(stood_in)
    assert first == ("NODE_LOST", f"host {node}-w-0 was rebooted during the attempt") and second[0] == "FINISHED"
    assert f"waiting ({waiting})" in out + err
    assert sorted(set(stood_in.steps())) == list(range(1, 41)) and gcloud.resources() == []


@pytest.mark.long
def test_a_run_whose_slice_is_repaired_in_seconds_goes_on_upon_it(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    node = training(gcloud, stood_in, 40, 10.0)
    gcloud.maintain(node, state="REPAIRING", unhealthy_s=1.0, away_s=4.0)
    out, err = stood_in.started[0].communicate(timeout=900)
    assert stood_in.started[0].returncode == 0, (out, err)
    assert [ending for ending, _ in endings(stood_in)] == ["FINISHED"] and stood_in.steps() == list(range(1, 41))
    assert [row["name"] for row in gcloud.ledger()] == [node] and gcloud.resources() == []


@pytest.mark.long
def test_a_slice_that_stays_away_for_maintenance_is_given_up_in_one_line(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    node = training(gcloud, stood_in, 40, 10.0, REPAIR_S="3")
    gcloud.maintain(node)
    out, err = stood_in.started[0].communicate(timeout=900)
    assert stood_in.started[0].returncode == 0, (out, err)
    first, second = endings(stood_in)
    assert first == ("NODE_LOST", "Maintenance: the cloud restarts the machines, for more than 0.05 min")
    assert second[0] == "FINISHED" and sorted(set(stood_in.steps())) == list(range(1, 41))
    assert gcloud.resources() == [] and [row["name"] for row in gcloud.ledger()] == [node, f"{node[:-1]}2"]


def silence(gcloud: Gcloud, node: str) -> None:  # noqa: F811
    """No packet reaches a worker of the slice, which the cloud goes on calling READY."""
    for worker in range(4):
        gcloud.unreachable(node, worker)


@pytest.mark.long
def test_a_slice_whose_workers_fall_silent_is_named_with_its_price_and_replaced(
    gcloud: Gcloud,  # noqa: F811
    stood_in: TpuBench,  # noqa: F811
) -> None:
    steps = 72
    # Long enough that a look falls into it on a machine on which each takes ten seconds.
    node = training(gcloud, stood_in, steps, 20.0, SILENCE_S="80", SHOWN_AFTER_S="5")
    silence(gcloud, node)

    def shows_the_silence() -> bool:
        code, out, err = stood_in.call("list", "--json", SILENCE_S="80", SHOWN_AFTER_S="5")
        assert code == 0, err
        detail = str(json.loads(out)[0]["detail"])
        return "(since " in detail and "USD per hour)" in detail

    wait_for(shows_the_silence)
    out, err = stood_in.started[0].communicate(timeout=900)
    assert stood_in.started[0].returncode == 0, (out, err)
    assert "Unreachable: " in out and ", 16 v6e chips for up to 43.20 USD per hour); at " in out, out
    first, second = endings(stood_in)
    assert first[0] == "NODE_LOST" and first[1].startswith("Silent: no host has answered for "), first
    assert second[0] == "FINISHED" and sorted(set(stood_in.steps())) == list(range(1, steps + 1))
    assert gcloud.resources() == [] and [row["name"] for row in gcloud.ledger()] == [node, f"{node[:-1]}2"]


@pytest.mark.long
def test_a_stop_ends_although_no_worker_hears_it(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    node = training(gcloud, stood_in, 400, 200.0)
    silence(gcloud, node)
    wait_for(lambda: "Unreachable: " in str(stood_in.standing()["detail"]))
    code, out, err = stood_in.call("stop", "r", SILENT_STOP_S="20")
    assert code == 0 and gcloud.resources() == [], (out, err)
    assert stood_in.standing()["ending"] == "STOPPED"
    stood_in.started[0].communicate(timeout=900)
