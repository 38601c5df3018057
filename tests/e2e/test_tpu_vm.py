"""Cloud TPU VMs on the simulated cloud: the product's own gcloud calls and its own ssh, from nothing to a report and back to nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.shell import Shell
from podwright.targets.base import Allocation, AllocationState, Request
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm.provisioner import SliceProvisioner
from tests import sshd
from tests.e2e.conftest import LAUNCH, Bench, wait_for
from tests.lab import cloud
from tests.lab.gcloud.control import Gcloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
A, B, C = ZONES = ("us-east5-b", "us-east1-d", "europe-west4-a")
SIGNS = Path("/var/lib/podwright")
CPUS = "export JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4"
SETTINGS = {"kind": "tpu-vm", "project": "my-project", "zones": ZONES, "accelerator_type": "v6e-16"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[cloud.Lab]:
    SIGNS.mkdir(exist_ok=True)
    with cloud.Lab(tmp_path, SIGNS) as lab:
        yield lab


@pytest.fixture
def gcloud(lab: cloud.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcloud]:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    with Gcloud(lab) as gcloud:
        for name, value in gcloud.environment.items():
            monkeypatch.setenv(name, value)
        yield gcloud


def provisioner(**given: object) -> SliceProvisioner:
    return SliceProvisioner(Shell(), TpuVmSettings.model_validate(SETTINGS | given))


def until(own: SliceProvisioner, request: Request, *states: AllocationState) -> Allocation:
    limit = time.monotonic() + 60
    while (allocation := own.describe(request)).state not in states:
        assert time.monotonic() < limit, allocation
        time.sleep(0.05)
    return allocation


def test_a_slice_is_created_known_by_its_workers_numbers_and_deleted(gcloud: Gcloud) -> None:
    gcloud.order_endpoints([2, 0, 3, 1])
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    assert own.describe(request).state is AllocationState.GONE
    assert own.create(request).state is AllocationState.WAITING
    hosts = until(own, request, AllocationState.READY).hosts
    assert [host.name for host in hosts] == [f"{request.name}-w-{k}" for k in (1, 3, 0, 2)], "by agent-worker-number"
    assert [host.address for host in hosts] == [row["internal"] for row in gcloud.hosts(request.name)]
    (owned,) = own.list_owned()
    assert (owned.request.name, owned.request.zone, owned.state) == (request.name, A, AllocationState.READY)
    own.delete(request)
    own.delete(request)
    until(own, request, AllocationState.GONE)
    assert own.list_owned() == [] and gcloud.resources() == []


class TpuBench(Bench):
    """A bench whose target `tpu` is slices of the simulated cloud."""

    launch = Path(cloud.__file__).with_name("launch_tpu.py")

    def __init__(self, folder: Path, **settings: object):
        super().__init__(folder)
        entry = SETTINGS | {"env": ["STANDIN_STEP_S"], "setup": [CPUS]} | settings
        (folder / "targets.yaml").write_text(json.dumps({"tpu": entry}))

    def events(self, prefix: str = "") -> list[str]:
        return [r["event"] for r in self.records("journal.jsonl") if r["event"].startswith(prefix)]


def test_a_run_goes_from_no_machines_over_a_preemption_to_a_report_and_no_machines(
    gcloud: Gcloud, lab: cloud.Lab, tmp_path: Path
) -> None:
    python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
    gcloud.fail_provisioning(f'There is no more capacity in the zone "{A}"; you can try in another zone', code=8)
    bench = TpuBench(tmp_path, python=str(python))
    launcher = bench.start_run(40, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25")
    try:
        wait_for(lambda: len(bench.steps()) > 5, 90)
        (first,) = [row for row in gcloud.resources() if row["kind"] == "node"]
        assert first["zone"] == B
        gcloud.fail_provisioning(f'There is no more capacity in the zone "{A}"', code=8)
        gcloud.preempt(first["name"])
        out, err = launcher.communicate(timeout=300)
    finally:
        bench.close()
    assert launcher.returncode == 0, (out, err)
    ended = [r["ending"] for r in bench.records("journal.jsonl") if r["event"] == "ended"]
    assert ended == ["PREEMPTED", "FINISHED"] and sorted(set(bench.steps())) == list(range(1, 41))
    result = json.loads(bench.path("report/result.json").read_text())
    rows = {row["what"]: row for row in result["predicted"]}
    for what, counted in (("chip-hours", "chip_hours"), ("cost", "cost")):
        assert rows[what]["predicted"] > 0 and rows[what]["measured"] == result["usage"][counted] > 0
    assert gcloud.resources() == []
    assert [row["zone"] for row in gcloud.ledger()] == [B, C]
