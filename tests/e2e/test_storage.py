"""States of several processes without a common disk: in an emulated bucket, and at the first host; claims and failures on the way."""

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from lab.bucket import EmulatedBucket
from podwright.rundir import RunDir
from podwright.train.run_storage import RunStorage
from tests.e2e.conftest import wait_for
from tests.e2e.trainer import ROOT, environment, joined

SCRIPT = ROOT / "tests" / "unit" / "train" / "save_and_restore.py"


def start(tmp_path, url, attempt=1, hosts=2, **more):
    """A process a host, each with a run directory of its own."""
    processes = []
    for number, names in enumerate(joined(hosts)):
        run = tmp_path / f"host-{attempt}-{number}" / "run"
        run.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, str(SCRIPT), str(run), url, str(attempt), str(run / "result.json")]
        env = environment(2) | {"PYTHONPATH": str(ROOT)} | (names if hosts > 1 else {}) | more
        with (run / "log.txt").open("w") as log:
            processes.append(subprocess.Popen(argv, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT))
    return processes


def results(tmp_path, processes, attempt=1):
    for process in processes:
        process.wait(900)
    folders = [tmp_path / f"host-{attempt}-{number}" / "run" for number in range(len(processes))]
    missing = [folder for folder in folders if not (folder / "result.json").exists()]
    assert not missing, (missing[0] / "log.txt").read_text()[-4000:]
    return [json.loads((folder / "result.json").read_text()) for folder in folders]


@pytest.fixture
def bucket():
    with EmulatedBucket() as made:
        yield made


def test_hosts_that_share_no_disk_save_and_restore_through_the_first_one(tmp_path):
    found = results(tmp_path, start(tmp_path, ""))
    assert [(r["gathered"], r["step"], r["cursor"], r["equal"], r["start"]) for r in found] == [
        (True, 3, {"step": 3}, True, True)
    ] * 2
    first, second = (RunDir(tmp_path / f"host-1-{number}" / "run") for number in range(2))
    assert RunStorage(first).steps() == [2, 3] and not second.checkpoints.exists()
    # what the first host has is a checkpoint like any other
    alone = tmp_path / "host-1-0"
    shutil.copytree(alone / "run" / "checkpoints", tmp_path / "host-2-0" / "run" / "checkpoints")
    (other,) = results(tmp_path, start(tmp_path, "", attempt=2, hosts=1), attempt=2)
    assert (other["gathered"], other["latest"], other["step"], other["equal"]) == (False, 3, 6, True)


@pytest.mark.long
def test_hosts_save_and_restore_in_a_bucket_under_conditions_with_rights_on_objects_alone(tmp_path, bucket):
    url = f"{bucket.url}/runs/r-00000001"
    bucket.faults.status, bucket.faults.count = 503, 6
    found = results(tmp_path, start(tmp_path, url, **bucket.environment))
    assert [(r["gathered"], r["step"], r["cursor"], r["equal"], r["start"]) for r in found] == [
        (False, 3, {"step": 3}, True, True)
    ] * 2
    steps = {name.split("/")[3] for name in bucket.names("runs/r-00000001/checkpoints/")}
    assert steps == {"2", "3"}
    manifests = [r for r in bucket.log if r.method == "POST" and r.object_name.endswith("manifest.ocdbt")]
    assert manifests and all("ifGenerationMatch" in r.query for r in manifests)
    assert not [p for p in tmp_path.rglob("checkpoints")]
    (resumed,) = results(tmp_path, start(tmp_path, url, attempt=2, hosts=1, **bucket.environment), attempt=2)
    assert (resumed["latest"], resumed["step"], resumed["equal"]) == (3, 6, True)


def stopped_in_a_save(process, bucket, folder):
    """Stop `process` (SIGSTOP) at the first object that it writes of a checkpoint in `folder`, and wait until it is."""
    written = []

    def seen(request):
        if not written and request.method == "POST" and request.object_name.startswith(folder):
            written.append(request.object_name)
            os.kill(process.pid, signal.SIGSTOP)
        return False

    bucket.faults.only = seen
    wait_for(lambda: process.poll() is not None or psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert written and process.poll() is None


@pytest.mark.long
def test_an_attempt_that_was_stopped_in_a_save_and_is_continued_after_a_takeover_commits_nothing(tmp_path, bucket):
    place = "runs/r-00000001"
    url = f"{bucket.url}/{place}"
    (old,) = start(tmp_path, url, hosts=1, **bucket.environment)
    stopped_in_a_save(old, bucket, f"{place}/checkpoints/1/")
    (new,) = results(tmp_path, start(tmp_path, url, attempt=2, hosts=1, **bucket.environment), attempt=2)
    assert (new["latest"], new["step"], new["equal"]) == (None, 3, True)
    before = {name: bucket.content(name) for name in bucket.names()}
    os.kill(old.pid, signal.SIGCONT)
    (late,) = results(tmp_path, [old])
    assert late["refused"] == f"attempt 2 has taken over storage {url}: a write of attempt 1 is refused"
    after = {name: bucket.content(name) for name in bucket.names()}
    assert {name: after.get(name) for name in before} == before, "what the new attempt has written is as it was"
    assert [f"{place}/checkpoints/{step}/commit_success.txt" in after for step in (1, 2, 3)] == [False, True, True]
