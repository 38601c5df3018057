"""A launcher that is gone for good: in each provisioning model the slice ends by itself after its limit, or `target check` has said that only
`clean` ends it. The timer is that of startup.sh, on the hosts of the lab, with a life of seconds."""

import time
from pathlib import Path

import pytest

from lab import cloud
from lab.gcloud.control import Gcloud
from podwright.rundir import Ending
from podwright.targets.machines import AllocationState
from podwright.targets.settings.tpu_vm import TpuVmSettings
from tests.e2e.conftest import wait_for
from tests.e2e.test_tpu_vm import A, TpuBench, gcloud, lab, provisioner, stood_in, until  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
FLEX_ZONE = "us-east5-a"
LIFE_S = 20.0  # a busy machine takes many seconds from a host's start to that of its trainer, which keeps it alive
BY_TIMER = {
    "spot": {"provisioning": "spot"},
    "on-demand": {"provisioning": "on-demand"},
    "reserved": {"provisioning": "reserved"},
    "spot-node": {"provisioning": "spot", "queued": False},
    "on-demand-node": {"provisioning": "on-demand", "queued": False},
    "reserved-node": {"provisioning": "reserved", "queued": False},
}


def nodes(gcloud: Gcloud) -> list[str]:  # noqa: F811
    return [row["name"] for row in gcloud.resources() if row["kind"] == "node"]


def lose_launcher(bench: TpuBench, steps: int, life_s: float) -> None:
    """Start a run and kill its launcher once it trains."""
    launcher = bench.start_run(steps, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.05", LIFE_S=str(life_s))
    wait_for(lambda: len(bench.steps()) > 2)
    launcher.kill()
    launcher.communicate()


@pytest.mark.parametrize("model", ["on-demand", "reserved-node"])
def test_a_slice_that_no_run_uses_deletes_itself(
    gcloud: Gcloud,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    model: str,
) -> None:
    monkeypatch.setattr(TpuVmSettings, "life_s", property(lambda _: 4.0))
    own = provisioner(accelerator_type="v6e-4", **BY_TIMER[model])
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    until(own, request, AllocationState.READY)
    wait_for(lambda: gcloud.resources() == [])
    (row,) = gcloud.ledger()
    assert row["gone_at"] - row["ready_at"] >= 2.0, "the timer starts with the machine, before the cloud calls it ready"


def test_the_life_of_a_flex_start_slice_does_not_include_its_wait_for_capacity(
    gcloud: Gcloud,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life_s = 15.0
    monkeypatch.setattr(TpuVmSettings, "life_s", property(lambda _: life_s))
    gcloud.capacity(FLEX_ZONE, 0)
    gcloud.capacity(FLEX_ZONE, 4, after_s=life_s)
    own = provisioner(accelerator_type="v6e-4", provisioning="flex-start", zones=[FLEX_ZONE])
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    since = until(own, request, AllocationState.READY).since
    gcloud.preempt(request.name)
    until(own, request, AllocationState.LOST)
    assert own.describe(request, since).ending is Ending.PREEMPTED
    assert own.describe(request, time.time() - life_s).ending is Ending.TIMED_OUT


@pytest.mark.long
@pytest.mark.parametrize("model", BY_TIMER)
def test_the_timer_ends_a_slice_without_launcher_once_its_run_has_ended(
    gcloud: Gcloud,  # noqa: F811
    stood_in: TpuBench,  # noqa: F811
    model: str,
) -> None:
    stood_in.settings(**BY_TIMER[model])
    lose_launcher(stood_in, 800, LIFE_S)
    time.sleep(LIFE_S + 2)
    assert nodes(gcloud), "the trainer lives, and its keeper says so"
    wait_for(lambda: gcloud.resources() == [])
    assert all(row["gone_at"] for row in gcloud.ledger())


@pytest.mark.long
def test_the_cloud_ends_a_flex_start_slice_whatever_runs_on_it(gcloud: Gcloud, stood_in: TpuBench) -> None:  # noqa: F811
    stood_in.settings(provisioning="flex-start", zones=[FLEX_ZONE])
    lose_launcher(stood_in, 4000, 20.0)
    wait_for(lambda: nodes(gcloud) == [])
    (row,) = gcloud.ledger()
    assert row["gone_at"] - row["ready_at"] == pytest.approx(20.0, abs=3.0)
    (husk,) = gcloud.resources()
    assert husk["state"] in ("SUSPENDING", "SUSPENDED"), "it costs nothing, and holds quota"
    out = stood_in.call("target", "check", "tpu")[1]
    assert "--max-run-duration" in out and "holds quota until podwright clean tpu" in out, out
    assert stood_in.call("clean", "tpu", "--yes")[0] == 0
    assert gcloud.resources() == []


@pytest.mark.long
@pytest.mark.parametrize("model", ["on-demand", "on-demand-node"])
def test_where_the_slice_may_not_delete_itself_the_check_has_said_that_only_clean_does(
    gcloud: Gcloud,  # noqa: F811
    stood_in: TpuBench,  # noqa: F811
    model: str,
) -> None:
    gcloud.deny("instance:tpu.nodes.delete", "instance:tpu.queuedResources.delete")
    stood_in.settings(**BY_TIMER[model])
    said = stood_in.call("target", "check", "tpu")[1]
    assert "only podwright clean tpu ends a slice whose launcher is gone" in said, said
    lose_launcher(stood_in, 40, 4.0)
    wait_for(lambda: any(row["rc"] == 403 and row["argv"][:2] == ["rest", "DELETE"] for row in gcloud.calls()))
    assert nodes(gcloud)

    def cleaned() -> bool:
        """On a busy machine a sign of life may come late, and the timer asks while the trainer still works."""
        code, out, err = stood_in.call("clean", "tpu", "--yes")
        assert code == 0, out + err
        return "trains without a launcher" not in out

    wait_for(cleaned)
    assert gcloud.resources() == []
