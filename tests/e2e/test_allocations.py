"""Machines that are created for a run, taken away and created again: on hosts of the lab, which share no disk."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from lab import cloud, sshd
from lab.bucket import EmulatedBucket
from lab.target import LabProvisioner, LabSettings, LabTarget
from podwright.rundir import Ending, RunDir, read_jsonl
from podwright.shell import Shell
from podwright.storage import open_storage
from podwright.storage.claim import Claim, ClaimLost
from podwright.targets.base import Job, Polled, Process
from podwright.targets.machines import Allocation, AllocationState, Request
from podwright.train.checkpoint import KEPT, Checkpoints
from podwright.train.run_storage import RunStorage
from tests.e2e.conftest import LAUNCH, Bench, wait_for
from tests.e2e.trainer import DEMO, TINY, figures, weights

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
OUTAGE_S = 120.0
METADATA = """
import sys, urllib.request
etag = ""
for key in sys.argv[1:]:
    url = f"http://metadata.google.internal/computeMetadata/v1/instance/{key}".replace("ETAG", etag)
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request) as answer:
        etag = answer.headers["ETag"]
        print(answer.read().decode(), flush=True)
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
    limit = time.monotonic() + 900
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
    waiting = time.time()
    allocation = until(provisioner, request, AllocationState.READY)
    assert allocation.since is not None and waiting <= allocation.since <= time.time()
    hosts = allocation.hosts
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
    keys = "attributes/agent-worker-number attributes/worker-network-endpoints preempted preempted?wait_for_change=true&last_etag=ETAG"
    asking = start(1, f"{sys.executable} metadata.py '{keys.replace(' ', chr(39) + ' ' + chr(39))}'; sleep 60")
    assert asking.stdout
    answers = [asking.stdout.readline().strip() for _ in range(3)]
    assert answers == ["1", ",".join(f"unknown:unknown:{host.address}" for host in hosts), "FALSE"]
    lab.preempt(request.name, notice_s=5)
    assert asking.stdout.readline() == "TRUE\n", "the notice comes before the end"
    assert asking.poll() is None
    assert asking.stdout.read() == "" and asking.wait() == 255
    assert until(provisioner, request, AllocationState.LOST).ending is Ending.PREEMPTED


def test_a_lab_ends_with_the_test_that_owns_it() -> None:
    code = (
        "import os, signal, sys, time\n"
        "from lab import cloud\n"
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
    limit = time.monotonic() + 900
    while (root / "allocations/left-over").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    while any(f"{root}/" in _text(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        assert time.monotonic() < limit, "a process of the lab is left"
        time.sleep(0.05)


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
        limit = time.monotonic() + 900
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


@pytest.mark.long
def test_a_run_continues_on_new_hosts_when_the_old_ones_are_taken_away(lab: cloud.Lab, tmp_path: Path) -> None:
    lab.configure(num_hosts=2, create_s=0.3, delete_s=0.3)
    python = sshd.stand_in(lab.root / "python", LAUNCH.with_name("standin.py"))
    bench = LabBench(tmp_path, lab, num_hosts=2, python=str(python), env=["STANDIN_STEP_S"])
    launcher = bench.start_run(40, "mesh.fsdp=2", "--on", "lab", STANDIN_STEP_S="0.25")
    try:
        wait_for(lambda: '"step": 5,' in bench.on_first_host("metrics.jsonl"))
        (first,) = lab.allocations()
        lab.preempt(first)
        wait_for(lambda: [name for name in lab.allocations() if name != first] != [])
        out, err = launcher.communicate(timeout=900)
    finally:
        bench.close()
    assert launcher.returncode == 0, (out, err)
    ended = [r["ending"] for r in bench.records("journal.jsonl") if r["event"] == "ended"]
    assert ended == ["PREEMPTED", "FINISHED"] and sorted(set(bench.steps())) == list(range(1, 41))
    assert bench.events("allocation").count("allocation gone") >= 2 and lab.allocations() == []
    assert bench.path("checkpoint").read_text() == "40"


class BucketBench(LabBench):
    """Runs of the tiny GRPO recipe as four processes on four hosts that share no disk, kept in a bucket."""

    def __init__(self, folder: Path, lab: cloud.Lab, bucket: EmulatedBucket):
        compiled = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")  # nothing of the run
        names = ["XLA_FLAGS", "OMP_NUM_THREADS", *compiled, *bucket.environment]
        super().__init__(folder, lab, storage=f"{bucket.url}/runs", env=names)
        self.bucket = bucket

    def train(self, name: str) -> subprocess.Popen[str]:
        changes = ("mesh.fsdp=4", "data.num_test=4", "evaluation.batch_size=4", "training.max_steps=6")
        return self.start("run", DEMO, *TINY, *changes, "--on", "lab", "--name", name, "--force")

    def directory(self, name: str) -> RunDir:
        return RunDir(self.folder / "runs" / name)

    def place(self, name: str, path: str) -> str:
        """Of an object of the run, in the bucket."""
        return f"{self.directory(name).storage_url.removeprefix(f'{self.bucket.url}/')}/{path}"

    def committed(self, name: str, tree: str) -> bool:
        return bool(self.bucket.names(self.place(name, f"{tree}/commit_success.txt")))

    def claim(self, name: str) -> dict[str, Any]:
        holder: dict[str, Any] = json.loads(self.bucket.content(self.place(name, "claim")) or b"{}")
        return holder


def finished(launcher: subprocess.Popen[str]) -> None:
    out, err = launcher.communicate(timeout=900)
    assert launcher.returncode == 0, (out[-3000:], err[-3000:])


@pytest.mark.long
def test_a_run_whose_hosts_are_taken_away_resumes_from_its_bucket_bit_for_bit(
    lab: cloud.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.configure(num_hosts=4, create_s=0.3, delete_s=0.3)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with EmulatedBucket(host=lab.gateway) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bench = BucketBench(tmp_path, lab, bucket)
        try:
            finished(bench.train("calm"))
            launcher = bench.train("lossy")
            lossy = bench.directory("lossy")
            wait_for(lambda: bench.committed("lossy", "start"))
            (first,) = lab.allocations()
            bucket.faults.status = 503
            time.sleep(OUTAGE_S)
            refused = sum(request.status == 503 for request in bucket.log)
            bucket.faults.only = lambda request: "checkpoints/4" in request.object_name  # nothing later is saved
            wait_for(lambda: bench.committed("lossy", "checkpoints/2"))
            holder = bench.claim("lossy")
            lab.preempt(first)
            wait_for(lambda: (cloud.describe(lab.root, first) or {"state": "gone"})["state"] != "ready")
            bucket.faults.status = 0
            assert refused and not bench.committed("lossy", "checkpoints/4")
            wait_for(lambda: bench.claim("lossy")["attempt"] == 2)
            assert_refused(lossy, holder, first)
            finished(launcher)
        finally:
            for name in ("calm", "lossy"):
                bench.call("stop", name)
            bench.close()
        assert lab.allocations() == []
        ended = [r["ending"] for r in read_jsonl(lossy.journal) if r["event"] == "ended"]
        resumed = [r["step"] for r in read_jsonl(lossy.events) if r["event"] == "resumed"]
        assert ended == ["PREEMPTED", "FINISHED"] and resumed == [2]
        calm = bench.directory("calm")
        assert not lossy.checkpoints.exists() and figures(lossy) == figures(calm)
        assert len(figures(lossy)["grpo"]) == 6 and weights(lossy) == weights(calm)


def assert_refused(run: RunDir, holder: dict[str, Any], allocation: str) -> None:
    """A save of attempt 1, which `holder` was the claim of, writes nothing."""
    assert (holder["attempt"], holder["allocation"]) == (1, allocation)
    storage = RunStorage(run, run.storage_url)
    storage._claim = Claim(open_storage(storage.url), 1, allocation, holder["token"])
    with (
        pytest.raises(ClaimLost, match=r"attempt 2 has taken over storage .+: a write of attempt 1 is refused"),
        Checkpoints(storage, KEPT) as checkpoints,
    ):
        checkpoints.save(99, {"weights": jnp.zeros(4)}, {"step": 99})
    assert not open_storage(storage.url).names("checkpoints/99")
