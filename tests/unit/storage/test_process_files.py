"""What processes leave in a storage when they end."""

import os
import time

import pytest

from podwright.rundir import RunDir, write_json
from podwright.storage import open_storage, process_files
from podwright.train import run_storage
from podwright.train.run_storage import AttemptStart, RunStorage


@pytest.fixture
def run(tmp_path):
    """The run directory of a host with process 1 of attempt 2."""
    run = RunDir(tmp_path / "host" / "run")
    write_json(run.exit(2, 1), {"ending": "CRASHED"})
    run.log(2, 1).write_text("one\ntwo\n")
    return run


def test_another_process_than_the_first_leaves_its_files(run, tmp_path, url):
    storage = RunStorage(run, url)
    AttemptStart(2, url, storage=storage).finish(1)
    there = RunDir(tmp_path / "launcher")
    there.attempt(2).mkdir(parents=True)
    there.log(2, 1).write_text("one\ntwo\nthree\n")  # it has come from the host already, and is longer
    process_files.bring(there, open_storage(url), 1)
    assert not there.exit(2, 1).exists()
    process_files.bring(there, open_storage(url))
    assert there.exit(2, 1).read_bytes() == run.exit(2, 1).read_bytes() and "three" in there.log(2, 1).read_text()


def test_what_is_here_as_long_already_keeps_its_age(run, tmp_path, url):
    """By the age of exit.json it is known whether processes of an attempt that has ended are still about to leave."""
    process_files.leave(run, open_storage(url), 2, 1)
    there = RunDir(tmp_path / "launcher")
    process_files.bring(there, open_storage(url))
    os.utime(there.exit(2, 1), (1000.0, 1000.0))
    process_files.bring(there, open_storage(url))
    assert there.exit(2, 1).stat().st_mtime == 1000.0


def test_of_a_long_file_its_end_is_left_and_of_a_table_its_first_line_too(run, url):
    rows = [f"{number},0.5\n" for number in range(process_files.LARGEST // 8)]
    run.log(2, 1).write_text("".join(rows))
    run.devices(2, 1).write_text("time_s,utilization\n" + "".join(rows))
    process_files.leave(run, open_storage(url), 2, 1)
    log, table = (open_storage(url).read(f"attempts/2/{name}").data for name in ("log-1.txt", "devices-1.csv"))
    assert len(log) < process_files.LARGEST and log.endswith(rows[-1].encode())
    assert log.splitlines()[0] + b"\n" in map(str.encode, rows) and table == b"time_s,utilization\n" + log


def test_a_process_that_ends_waits_seconds_for_a_storage_that_fails(run, bucket, monkeypatch):
    monkeypatch.setattr(run_storage, "LEAVE_S", 1.0)
    storage = RunStorage(run, f"{bucket.url}/r")
    storage.claim(2, "", False)
    bucket.faults.status = 503
    begin = time.monotonic()
    storage.leave(2, 1)
    assert time.monotonic() - begin < 30.0
    bucket.faults.status = 0
