"""Cloud TPU VMs on the simulated cloud: the product's own gcloud calls and its own ssh, from nothing to a report and back to nothing."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cloud, sshd, tpu_python
from lab.gcloud.control import Gcloud
from podwright.run import cost
from podwright.shell import Shell
from podwright.targets.machines import Allocation, AllocationState, Request
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import ssh_key
from podwright.targets.tpu_vm.provisioner import SliceProvisioner
from tests.e2e.conftest import LAUNCH, Bench, wait_for

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
    return SliceProvisioner(Shell(), TpuVmSettings.model_validate(SETTINGS | given), "vm")


def until(own: SliceProvisioner, request: Request, *states: AllocationState) -> Allocation:
    limit = time.monotonic() + 900
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
        self._entry = SETTINGS | {"env": ["STANDIN_STEP_S"], "setup": [CPUS]} | settings
        self.settings()

    def settings(self, **changed: object) -> None:
        """Of the target, besides those it was made with."""
        (self.folder / "targets.yaml").write_text(json.dumps({"tpu": self._entry | changed}))

    def events(self, prefix: str = "") -> list[str]:
        return [r["event"] for r in self.records("journal.jsonl") if r["event"].startswith(prefix)]


def test_a_run_goes_from_no_machines_over_a_preemption_to_a_report_and_no_machines(
    gcloud: Gcloud, lab: cloud.Lab, tmp_path: Path
) -> None:
    python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
    gcloud.fail_provisioning(f'There is no more capacity in the zone "{A}"; you can try in another zone', code=8)
    bench = TpuBench(tmp_path, python=str(python))
    # Four workers try the storage at once: on a busy machine that takes longer than tests of hanging workers wait.
    launcher = bench.start_run(40, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25", CHECK_LIMIT_S="60")
    try:
        wait_for(lambda: len(bench.steps()) > 5)
        (first,) = [row for row in gcloud.resources() if row["kind"] == "node"]
        assert first["zone"] == B
        gcloud.fail_provisioning(f'There is no more capacity in the zone "{A}"', code=8)
        gcloud.preempt(first["name"])
        out, err = launcher.communicate(timeout=900)
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
    zones = [row["zone"] for row in gcloud.ledger()]
    assert len(zones) == 2 and zones[0] == B, "a refusal of the first zone is forgotten after a while"


@pytest.fixture
def stood_in(lab: cloud.Lab, gcloud: Gcloud, tmp_path: Path) -> Iterator[TpuBench]:
    """Its hosts have simulated TPUs and the stand-in trainer."""
    bench = TpuBench(tmp_path, python=str(tpu_python.write(lab.root, LAUNCH.with_name("standin.py"))), setup=[])
    yield bench
    bench.close()


def endings(bench: TpuBench) -> list[tuple[str, str]]:
    return [(r["ending"], r["detail"]) for r in bench.records("journal.jsonl") if r["event"] == "ended"]


@pytest.mark.long
def test_a_fault_of_one_worker_is_named_and_costs_the_slice_only(
    gcloud: Gcloud, lab: cloud.Lab, stood_in: TpuBench
) -> None:
    gcloud.busy_device("pw-*-2", 2)
    (lab.root / "hang-3").touch()
    gcloud.late_key("pw-*-3", 1, 2.0)
    gcloud.order_endpoints([3, 1, 0, 2])
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code == 0, (out, err)
    details = [detail for _, detail in endings(stood_in)]
    assert [ending for ending, _ in endings(stood_in)] == ["NO_CAPACITY", "NO_CAPACITY", "FINISHED"]
    assert "-w-0 hangs in the check: joining the others" in details[0]
    assert details[1].startswith("the TPU of pw-r-") and "w-3 is in use by another process" in details[1]
    assert stood_in.steps() == [1, 2, 3, 4, 5] and gcloud.resources() == []
    assert [row["name"][-2:] for row in gcloud.ledger()] == ["-1", "-2", "-3"]


@pytest.mark.long
def test_a_notice_of_preemption_has_the_run_saved_before_the_machines_go(gcloud: Gcloud, stood_in: TpuBench) -> None:
    launcher = stood_in.start_run(12, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.5")
    wait_for(lambda: len(stood_in.steps()) > 2)
    (node,) = (row["name"] for row in gcloud.resources() if row["kind"] == "node")
    gcloud.preempt(node, notice_s=20.0)
    out, err = launcher.communicate(timeout=900)
    assert launcher.returncode == 0, (out, err)
    (first, second) = endings(stood_in)
    assert first == ("PREEMPTED", "the cloud gave notice that it takes the machines") and second[0] == "FINISHED"
    assert stood_in.steps() == list(range(1, 13)), "no step was done twice"
    assert gcloud.resources() == []


@pytest.mark.long
def test_replies_that_are_cut_off_refused_or_late_neither_lose_a_slice_nor_create_two(
    gcloud: Gcloud, stood_in: TpuBench
) -> None:
    for kind in (
        {"kind": "cut"},
        {"kind": "killed"},
        {"kind": "timeout"},
        {"status": 503},
        {"status": 429},
        {"status": 500, "before": False},
    ):
        for verb in (
            "queued-resources describe",
            "tpu-vm describe",
            "tpu-vm get-guest-attributes",
            "queued-resources delete",
        ):
            gcloud.fault(verb, **kind)
    gcloud.fault("queued-resources create", kind="cut", keep=0)
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code == 0, (out, err)
    assert [ending for ending, _ in endings(stood_in)] == ["FINISHED"] and gcloud.resources() == []
    assert len(gcloud.ledger()) == 1, "one slice, whatever was answered"


@pytest.mark.long
def test_a_slice_that_exists_is_used_and_left_as_it_was(gcloud: Gcloud, stood_in: TpuBench) -> None:
    key = ssh_key.public_key(Shell())
    create = [
        "compute",
        "tpus",
        "tpu-vm",
        "create",
        "mine",
        "--project=my-project",
        f"--zone={A}",
        "--accelerator-type=v6e-16",
    ]
    create += ["--version=v2-alpha-tpuv6e", f"--metadata=ssh-keys=podwright:{key}", "--labels=team=nlp"]
    assert gcloud.call(*create).returncode == 0
    before = gcloud.resources()
    stood_in.settings(node="mine", zones=[A])
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code == 0, (out, err)
    assert gcloud.resources() == before and endings(stood_in)[0][0] == "FINISHED"
    changing = [row["argv"] for row in gcloud.calls() if {"create", "delete", "update"} & set(row["argv"])]
    assert len(changing) == 1, "the test's own creation"
    stood_in.settings(node="mine", zones=[A], runtime_version="my-image")
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu", "--name", "other")
    assert code != 0 and "node mine has the image v2-alpha-tpuv6e, and my-image is needed; set runtime_version=" in out
    assert "Deleting" not in out + err, "what is not ours is not deleted"
    assert gcloud.resources() == before


@pytest.mark.long
def test_machines_without_external_addresses_are_reached_through_iap(gcloud: Gcloud, stood_in: TpuBench) -> None:
    stood_in.settings(internal_ips=True)
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu")
    assert code == 0, (out, err)
    assert [ending for ending, _ in endings(stood_in)] == ["FINISHED"] and gcloud.resources() == []
    assert any("start-iap-tunnel" in row["argv"] for row in gcloud.calls())


@pytest.mark.long
def test_a_slice_is_paid_for_from_when_it_is_ready_however_late_its_workers_answer(
    gcloud: Gcloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podwright.targets.tpu_vm.provisioner.LAG_S", 3.0)
    gcloud.times(creating=5.0)
    gcloud.late_key("*", 2, 4.0)
    own = provisioner()
    request = own.describe_request(Path("/runs/r"), 1.0, 1, ())
    own.create(request)
    since = until(own, request, AllocationState.READY).since
    (row,) = gcloud.ledger()
    assert since is not None and row["ready_at"] - 4.0 < since <= row["ready_at"]
    own.delete(request)
    until(own, request, AllocationState.GONE)


@pytest.mark.long
def test_chip_hours_are_those_that_the_cloud_charges_and_a_poll_at_each_end(gcloud: Gcloud, stood_in: TpuBench) -> None:
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu", POLL_S="0.5", LAG_S="6.0")
    assert code == 0, (out, err)
    assert " USD (price: on demand, " in out, "at spot without a price of the target: an upper bound"
    journal = stood_in.records("journal.jsonl")
    usage = cost.usage(journal, time.time())
    assert usage and not usage.open
    (row,), events = gcloud.ledger(), {event["event"]: event for event in journal}
    ready, gone = events["allocation ready"], events["allocation gone"]
    late_s = (usage.chip_hours - gcloud.chip_hours()) * 3600 / 16
    assert late_s == pytest.approx(gone["since"] - row["gone_at"] + row["ready_at"] - ready["since"], abs=0.01)
    looks = [call["time"] for call in gcloud.calls() if {"list", "describe"} & set(call["argv"])]
    before, after = [t for t in looks if t < row["ready_at"]], [t for t in looks if t > row["gone_at"]]
    assert max(before[:-4], default=0.0) < ready["since"] <= row["ready_at"], "by the last looks before it was ready"
    assert row["gone_at"] <= gone["since"] < after[2], "by the first look that began after its end"
    assert gone["time"] - gone["since"] >= 6.0, "LAG_S later, which does not count"


@pytest.mark.long
def test_a_request_that_outlives_its_launcher_is_waited_for_before_the_slice_counts_as_gone(
    gcloud: Gcloud, stood_in: TpuBench
) -> None:
    gcloud.fault("queued-resources create", delay_s=8.0)
    launcher = stood_in.start_run(5, "mesh.fsdp=16", "--on", "tpu")
    wait_for(lambda: any("create" in row["argv"] for row in gcloud.calls()))
    launcher.kill()
    launcher.wait()
    code, out, err = stood_in.call("stop", "r")
    assert code == 0, (out, err)
    (call,) = (row for row in gcloud.calls() if "create" in row["argv"])
    assert call["rc"] == 0, "it has ended, and was not killed"
    assert gcloud.resources() == []


def test_the_check_of_workers_has_the_variables_that_the_trainer_gets(gcloud: Gcloud, stood_in: TpuBench) -> None:
    stood_in.settings(env=["LAB_FAULT"])
    code, out, err = stood_in.run(5, "mesh.fsdp=16", "--on", "tpu", LAB_FAULT="no login for the bucket")
    ((ending, detail),) = endings(stood_in)
    assert code != 0 and ending == "BAD_INPUT" and detail.endswith("-w-0: no login for the bucket"), (out, err)
    assert gcloud.resources() == []


@pytest.mark.long
def test_a_node_that_is_created_directly_goes_to_the_next_zone_and_is_deleted_once_it_was_preempted(
    gcloud: Gcloud, stood_in: TpuBench
) -> None:
    gcloud.capacity(A, 0)
    gcloud.times(stockout=1.0)
    stood_in.settings(queued=False)
    launcher = stood_in.start_run(20, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25")
    wait_for(lambda: len(stood_in.steps()) > 2)
    (node,) = (row["name"] for row in gcloud.resources() if row["state"] == "READY")
    gcloud.preempt(node)
    out, err = launcher.communicate(timeout=900)
    assert launcher.returncode == 0, (out, err)
    assert [ending for ending, _ in endings(stood_in)] == ["PREEMPTED", "FINISHED"] and gcloud.resources() == []
    assert sorted(set(stood_in.steps())) == list(range(1, 21))
    refused = [r for r in stood_in.records("journal.jsonl") if r["event"] == "allocation refused"]
    assert refused and all(r["scope"] == A for r in refused)


@pytest.mark.long
def test_a_second_machine_gives_the_workers_its_key(gcloud: Gcloud, stood_in: TpuBench) -> None:
    first = stood_in.start_run(60, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.25")
    wait_for(lambda: len(stood_in.steps()) > 2)
    first.kill()
    first.wait()
    elsewhere = stood_in.folder / "elsewhere" / "targets.yaml"
    elsewhere.parent.mkdir()
    shutil.copy(stood_in.folder / "targets.yaml", elsewhere)  # the key lies beside it, and stays where it is
    code, out, err = stood_in.call("resume", "r", PODWRIGHT_TARGETS=str(elsewhere))
    assert code == 0, (out, err)
    assert any("update" in row["argv"] for row in gcloud.calls()), "ssh refused the key"
    assert endings(stood_in)[-1][0] == "FINISHED" and sorted(set(stood_in.steps())) == list(range(1, 61))
    assert len(gcloud.ledger()) == 1 and gcloud.resources() == [], "the slice was kept"
