"""Machines that are created for a run, taken away and created again: on hosts of the lab, which share no disk."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.rundir import TRAIN_COMMAND, Ending, RunDir, write_json
from podwright.shell import Shell
from podwright.storage import open_storage
from podwright.storage.claim import Claim, ClaimLost
from podwright.targets.base import Allocation, AllocationState, Handle, Job, Polled, Process, Request
from tests import sshd
from tests.bucket import EmulatedBucket
from tests.e2e.conftest import LAUNCH, Bench, wait_for
from tests.e2e.trainer import figures, prepare, weights
from tests.lab import cloud
from tests.lab.target import LabProvisioner, LabSettings, LabTarget

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
OUTAGE_S = 120.0
METADATA = """
import sys, urllib.request
for key in sys.argv[1:]:
    url = f"http://metadata.google.internal/computeMetadata/v1/instance/{key}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    print(urllib.request.urlopen(request).read().decode(), flush=True)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[cloud.Lab]:
    """Its hosts do not see the folder of the test."""
    with cloud.Lab(tmp_path) as made:
        yield made


@pytest.fixture
def provisioner(lab: cloud.Lab) -> LabProvisioner:
    return LabProvisioner(LabSettings(root=str(lab.root)))


def until(provisioner: LabProvisioner, request: Request, state: AllocationState) -> Allocation:
    limit = time.monotonic() + 30
    while (allocation := provisioner.describe(request)).state is not state:
        assert time.monotonic() < limit, allocation
        time.sleep(0.05)
    return allocation


def test_an_allocation_is_created_once_and_deleted_for_certain(lab: cloud.Lab, provisioner: LabProvisioner) -> None:
    lab.configure(num_hosts=2, create_s=0.2, delete_s=0.2)
    request = provisioner.describe_request(Path("/runs/r"), 1.0, 1, ())
    assert request == provisioner.describe_request(Path("/runs/r"), 1.0, 1, ()) and request.zone == "zone-a"
    assert request.name != provisioner.describe_request(Path("/runs/r"), 1.0, 2, ()).name
    assert provisioner.describe(request).state is AllocationState.GONE and provisioner.list_owned() == []
    assert provisioner.create(request).state is AllocationState.WAITING
    assert provisioner.create(request).state is AllocationState.WAITING, "what exists is adopted"
    assert provisioner.describe(request).state is AllocationState.WAITING
    hosts = until(provisioner, request, AllocationState.READY).hosts
    assert [host.name for host in hosts] == [f"{request.name}-w-0", f"{request.name}-w-1"]
    (owned,) = provisioner.list_owned()
    assert (owned.request.name, owned.run_dir, owned.state) == (request.name, "/runs/r", AllocationState.READY)
    provisioner.delete(request)
    provisioner.delete(request)
    assert provisioner.describe(request).state is AllocationState.DELETING
    until(provisioner, request, AllocationState.GONE)
    provisioner.delete(request)
    assert provisioner.list_owned() == []


def test_a_zone_without_capacity_refuses_and_the_next_one_is_requested(
    lab: cloud.Lab, provisioner: LabProvisioner
) -> None:
    lab.configure(num_hosts=1, no_capacity=["zone-a"])
    request = provisioner.describe_request(Path("/runs/r"), 1.0, 1, ())
    refused = provisioner.create(request)
    assert (refused.state, refused.scope, refused.ending) == (AllocationState.REFUSED, "zone-a", Ending.NO_CAPACITY)
    following = provisioner.describe_request(Path("/runs/r"), 1.0, 2, [refused.scope])
    assert following.zone == "zone-b" and provisioner.create(following).state is AllocationState.WAITING


def test_hosts_share_nothing_and_know_their_place_from_the_metadata_server(
    lab: cloud.Lab, provisioner: LabProvisioner, tmp_path: Path
) -> None:
    lab.configure(num_hosts=2)
    request = provisioner.describe_request(tmp_path / "r", 1.0, 1, ())
    provisioner.create(request)
    hosts = until(provisioner, request, AllocationState.READY).hosts

    def start(number: int, command: str) -> subprocess.Popen[str]:
        argv = ["ssh", "-F", str(cloud.ssh_config(lab.root)), hosts[number].address, command]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    (tmp_path / "secret").touch()
    seen = start(0, f"touch mine; hostname; ls {tmp_path} {lab.root}/disks").communicate()[0].split()
    assert seen == [hosts[0].name, f"{lab.root}/disks:", f"{tmp_path}:"] and (lab.disk(hosts[0].name) / "mine").exists()
    assert "mine" not in start(1, "ls").communicate()[0]
    (lab.disk(hosts[1].name) / "metadata.py").write_text(METADATA)
    keys = "attributes/agent-worker-number attributes/worker-network-endpoints preempted preempted?wait_for_change=true"
    asking = start(1, f"{sys.executable} metadata.py '{keys.replace(' ', chr(39) + ' ' + chr(39))}'; sleep 60")
    assert asking.stdout
    answers = [asking.stdout.readline().strip() for _ in range(3)]
    assert answers == ["1", ",".join(f"unknown:unknown:{host.address}" for host in hosts), "FALSE"]
    lab.preempt(request.name, notice_s=0.5)
    assert asking.stdout.readline() == "TRUE\n", "the notice comes before the end"
    assert asking.stdout.read() == "" and asking.wait() == 255
    allocation = provisioner.describe(request)
    assert (allocation.state, allocation.ending) == (AllocationState.LOST, Ending.PREEMPTED)


def test_a_lab_ends_with_the_test_that_owns_it() -> None:
    code = (
        "import os, signal, sys, time\n"
        "from tests.lab import cloud\n"
        "lab = cloud.Lab().__enter__()\n"
        "lab.configure(num_hosts=1)\n"
        "cloud.create(lab.root, 'left-over', {}, 'zone-a')\n"
        "while cloud.describe(lab.root, 'left-over')['state'] != 'ready': time.sleep(0.05)\n"
        "print(lab.root, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    owner = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cloud.REPOSITORY, check=False
    )
    root = Path(owner.stdout.strip())
    limit = time.monotonic() + 20
    while (root / "allocations/left-over").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if f"{root}/" in _text(p)]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_an_attempt_runs_on_created_hosts_and_ends_when_they_are_taken_away(lab: cloud.Lab, tmp_path: Path) -> None:
    target = LabTarget(Shell(), "lab", LabSettings(root=str(lab.root)))
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    run.recipe.write_text(json.dumps({"kind": "grpo", "training": {"max_steps": 1}}))
    (run.path / "work.sh").write_text('hostname; getent hosts "$(hostname)"; [ "$1" = 1 ] || sleep 600')
    request = target.provisioner.describe_request(run.path, 1.0, 1, ())
    target.provisioner.create(request)
    hosts = until(target.provisioner, request, AllocationState.READY).hosts

    def attempt(number: int) -> Polled:
        command = ("bash", "{run_dir}/work.sh", "{attempt}")
        handle = target.submit(target.render(Job(run.path, number, tmp_path, 1.0, command=command), hosts))
        limit = time.monotonic() + 60
        while (polled := target.poll(handle)).process is not Process.ENDED:
            if number == 2 and not polled.waiting:
                lab.preempt(request.name)
            if polled.waiting.startswith("Unreachable"):
                return polled
            assert time.monotonic() < limit, polled
            time.sleep(0.2)
        assert target.release(handle).done and os.listdir(lab.disk(hosts[0].name) / ".podwright") == []
        return polled

    assert attempt(1).returncode == 0
    logs = [run.log(1, process).read_text() for process in range(4)]
    assert all(f"{host.name}\n{host.address}" in log for host, log in zip(hosts, logs, strict=True)), logs
    assert attempt(2).process is Process.RUNNING, "only the cloud can tell that the hosts are gone"
    assert target.provisioner.describe(request).ending is Ending.PREEMPTED


class LabBench(Bench):
    """A bench whose target `lab` is this lab."""

    launch = Path(cloud.__file__).with_name("launch.py")

    def __init__(self, folder: Path, lab: cloud.Lab, **settings: object):
        super().__init__(folder)
        self.lab = lab
        lines = [f"  {key}: {json.dumps(value)}" for key, value in ({"root": str(lab.root)} | settings).items()]
        (folder / "targets.yaml").write_text("\n".join(["lab:", "  kind: lab", *lines, ""]))

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        return super().start(*argv, PODWRIGHT_TARGETS=str(self.folder / "targets.yaml"), **env)

    def events(self, prefix: str = "") -> list[str]:
        return [r["event"] for r in self.records("journal.jsonl") if r["event"].startswith(prefix)]

    def on_first_host(self, name: str) -> str:
        """A file of the run on the newest allocation's first host."""
        homes = sorted(self.lab.root.glob("disks/*-w-0/.podwright/r-*"), key=lambda path: path.stat().st_mtime)
        return _text(homes[-1] / "work" / "runs" / "r" / name) if homes else ""


def test_a_run_continues_on_new_hosts_when_the_old_ones_are_taken_away(lab: cloud.Lab, tmp_path: Path) -> None:
    lab.configure(num_hosts=2, create_s=0.3, delete_s=0.3)
    python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
    bench = LabBench(tmp_path, lab, num_hosts=2, python=str(python), env=["STANDIN_STEP_S"])
    launcher = bench.start_run(40, "mesh.fsdp=2", "--on", "lab", STANDIN_STEP_S="0.25")
    try:
        wait_for(lambda: '"step": 5,' in bench.on_first_host("metrics.jsonl"), 60)
        (first,) = lab.allocations()
        lab.preempt(first)
        wait_for(lambda: [name for name in lab.allocations() if name != first] != [], 60)
        out, err = launcher.communicate(timeout=240)
    finally:
        bench.close()
    assert launcher.returncode == 0, (out, err)
    ended = [r["ending"] for r in bench.records("journal.jsonl") if r["event"] == "ended"]
    assert ended == ["PREEMPTED", "FINISHED"] and sorted(set(bench.steps())) == list(range(1, 41))
    assert bench.events("allocation").count("allocation gone") >= 2 and lab.allocations() == []
    assert bench.path("checkpoint").read_text() == "40"


class BucketRun:
    """The tiny GRPO recipe as four processes on four hosts that share no disk; its state is kept in a bucket."""

    def __init__(self, folder: Path, name: str, lab: cloud.Lab, bucket: EmulatedBucket):
        self.lab, self.bucket, self.name = lab, bucket, name
        compiled = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")  # nothing of the run
        names = ("XLA_FLAGS", "OMP_NUM_THREADS", *compiled, *bucket.environment)
        self.target = LabTarget(Shell(), "lab", LabSettings(root=str(lab.root), env=names))
        overrides = ("mesh.fsdp=4", "data.num_test=4", "evaluation.batch_size=4", "training.max_steps=6")
        self.run = prepare(folder / "runs" / name, *overrides)
        write_json(self.run.storage, {"url": f"{bucket.url}/{name}"})

    def allocate(self, number: int) -> Request:
        request = self.target.provisioner.describe_request(self.run.path, 1.0, number, ())
        self.target.provisioner.create(request)
        return request

    def start(self, attempt: int, request: Request, *options: str) -> Handle:
        hosts = until(self.target.provisioner, request, AllocationState.READY).hosts
        job = Job(self.run.path, attempt, self.run.path.parent, 1.0, command=(*TRAIN_COMMAND, *options))
        return self.target.submit(self.target.render(job, hosts))

    def finish(self, handle: Handle) -> None:
        limit = time.monotonic() + 600
        while (polled := self.target.poll(handle)).process is not Process.ENDED:
            assert time.monotonic() < limit, polled
            time.sleep(0.5)
        log = self.run.log(handle["attempt"]).read_text()
        assert json.loads(self.run.exit(handle["attempt"]).read_text())["ending"] == "FINISHED", log
        assert self.target.release(handle).done

    def committed(self, step: int) -> bool:
        return bool(self.bucket.names(f"{self.name}/checkpoints/{step}/commit_success.txt"))


@pytest.mark.long
def test_grpo_on_hosts_that_share_no_disk_survives_their_loss_bit_for_bit(
    lab: cloud.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with EmulatedBucket(host=lab.gateway) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        calm, lossy = (BucketRun(tmp_path, name, lab, bucket) for name in ("calm", "lossy"))
        first = calm.allocate(1)
        calm.finish(calm.start(1, first))

        handle = lossy.start(1, first)
        wait_for(lambda: bool(bucket.names("lossy/start/commit_success.txt")), 400)
        bucket.faults.status = 503
        time.sleep(OUTAGE_S)
        bucket.faults.only = lambda request: "checkpoints/4" in request.object_name  # what comes after is never saved
        wait_for(lambda: lossy.committed(2), 400)
        holder = json.loads(bucket.content("lossy/claim") or b"{}")
        assert lossy.target.poll(handle).process is Process.RUNNING
        lab.preempt(first.name)
        until(lossy.target.provisioner, first, AllocationState.LOST)
        lossy.target.provisioner.delete(first)
        until(lossy.target.provisioner, first, AllocationState.GONE)
        bucket.faults.status = 0
        assert not lossy.committed(4)

        second = lossy.allocate(2)
        lossy.finish(lossy.start(2, second, "--allocation", second.name, "--takeover"))
        late = Claim(open_storage(f"{bucket.url}/lossy"), holder["attempt"], holder["allocation"], holder["token"])
        with pytest.raises(ClaimLost, match=r"attempt 2 has taken over storage .+: a write of attempt 1 is refused"):
            late.check()
        resumed = [json.loads(line) for line in lossy.run.events.read_text().splitlines() if '"resumed"' in line]
        assert [event["step"] for event in resumed] == [2]
        assert figures(lossy.run) == figures(calm.run)
        assert weights(lossy.run) == weights(calm.run)
