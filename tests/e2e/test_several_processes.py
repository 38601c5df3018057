"""One trainer as two real processes: who rewards what, and what happens when one of them is stopped, fails, dies or goes silent."""

import io
import json
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from podwright.rundir import Ending, RunDir, read_jsonl
from podwright.targets.base import Polled, Process
from podwright.watch.diagnose import outcome
from podwright.watch.view import view
from tests.e2e import full_device, short_patience
from tests.e2e.conftest import wait_for
from tests.e2e.trainer import ROOT, environment, figures, finish_several, joined, logs, prepare, start_several, state

# Slow enough that a signal comes in the middle of the run.
REWARD = """
import os, re, time

def fn(prompts, completions, *, question, **columns):
    if os.environ.get("FAILS_IN") == os.environ["JAX_PROCESS_ID"]:
        raise ValueError("no grade for this")
    if os.environ.get("HANGS_IN") == os.environ["JAX_PROCESS_ID"]:
        re.match(r"(a+)+$", "a" * 40 + "b")
    lags_in = os.environ.get("LAGS_IN")
    time.sleep(0.3 if lags_in is None else 0.1 if lags_in == os.environ["JAX_PROCESS_ID"] else 0.02)
    return [float(len(text) % 7) for text in completions]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("several")
    (made / "slow.py").write_text(REWARD)
    return made


def make(folder, name, *overrides):
    meshed = [
        "mesh.fsdp=2",
        "training.max_steps=6",
        "warm_start=null",
        f"rewards=[{{function: '{folder / 'slow.py'}:fn'}}]",
    ]
    return prepare(folder / name / "run", *meshed, *overrides)


def begin(folder, run, attempt=1, **more):
    """Two processes of one device; what one run has compiled the next one reads."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    return start_several(run, attempt, devices=1, **cache, **more)


def wait_for_steps(run, processes, number):
    end = time.time() + 900
    while len(figures(run).get("grpo", [])) < number:
        assert time.time() < end and all(p.poll() is None for p in processes), logs(run)
        time.sleep(0.02)


def saved(run):
    return sorted(int(path.name) for path in run.checkpoints.iterdir() if path.name.isdigit())


def ended(run, survivor):
    """The survivor leaves by itself, and the launcher can tell why the run ended."""
    assert survivor.wait(900) != 0, logs(run)
    run.log(1).write_text((run.path.parent / "0.txt").read_text())
    found = outcome(run, 1, Polled(Process.ENDED, survivor.returncode), False)
    assert found.ending is Ending.CRASHED and found.detail.startswith("another process of the run "), (found, logs(run))


@pytest.fixture(scope="module")
def whole(folder):
    """Six uninterrupted steps in two processes."""
    run = make(folder, "whole")
    codes, end = finish_several(run, begin(folder, run))
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    return run


@pytest.mark.long
def test_each_completion_is_rewarded_once_and_every_process_knows_the_same(tmp_path):
    script = ROOT / "tests" / "e2e" / "one_of_several.py"
    processes = []
    for number, more in enumerate(joined(2)):
        argv = [sys.executable, str(script), str(tmp_path / f"{number}.json")]
        processes.append(subprocess.Popen(argv, cwd=ROOT, env=environment(3) | {"PYTHONPATH": str(ROOT)} | more))
    assert [p.wait(900) for p in processes] == [0, 0]
    zero, one = (json.loads((tmp_path / f"{number}.json").read_text()) for number in range(2))
    for mine, other in zip(zero, one, strict=True):
        refused = mine["known"].pop("refused")
        assert "no-such-recipe" in refused and other["known"].pop("refused") == f"{refused} (in process 0)"
        assert mine["known"] == other["known"]
        rewarded = [tuple(row) for call in mine["calls"] + other["calls"] for row in call]
        known = mine["known"]
        expected = [(q, value) for q, row in zip(known["questions"], known["rewards"], strict=True) for value in row]
        assert len(set(known["questions"])) == 6 and len({tuple(row) for row in known["rewards"]}) == 6
        assert sorted(rewarded) == sorted(expected)
        assert (
            known["first"] == {"process": 0, "text": "é" * 1000}
            and len(known["samples"]) == 8
            and len(known["flags"]) == 10
        )
    assert [len(found[0]["calls"]) for found in (zero, one)] == [1, 0]  # tensor=6: all rows are the first process's
    assert [len(found[1]["calls"][0]) for found in (zero, one)] == [8, 4]  # data=3: two rows and one


@pytest.mark.long
def test_a_stop_of_one_process_stops_both_and_a_resume_is_exact(folder, whole):
    run = make(folder, "stopped", "checkpoint.every_n_steps=100")
    processes = begin(folder, run)
    wait_for_steps(run, processes, 1)
    processes[1].send_signal(signal.SIGTERM)
    codes, end = finish_several(run, processes)
    assert codes == [3, 3] and end["ending"] == "STOPPED", logs(run)
    assert saved(run) == [end["step"]] and 1 <= end["step"] < 6
    assert [e["step"] for e in read_jsonl(run.events) if e["event"] == "checkpoint"] == [end["step"]]
    codes, end = finish_several(run, begin(folder, run, attempt=2), attempt=2)
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    assert figures(run) == figures(whole)
    assert state(run, 6) == state(whole, 6)


@pytest.mark.long
def test_a_reward_that_fails_in_one_process_ends_both_and_is_told(folder, whole):
    run = make(folder, "fails")
    codes, end = finish_several(run, begin(folder, run, FAILS_IN="1"))
    assert codes[0] == 1 and codes[1] != 0
    assert end["ending"] == "BAD_INPUT" and "ValueError: no grade for this" in end["detail"], logs(run)
    assert "sample 0" in end["detail"] and end["detail"].endswith("(in process 1)") and "Traceback" not in logs(run)


@pytest.mark.long
def test_any_other_fault_of_one_process_ends_both_and_is_told(folder, whole):
    run = make(folder, "breaks")
    codes, end = finish_several(run, begin(folder, run, module=full_device.__name__))
    assert codes == [1, 1] and end["ending"] == "OUT_OF_MEMORY", logs(run)
    assert end["detail"].endswith("out of memory while trying to allocate (in process 1)")


@pytest.mark.long
def test_a_reward_that_hangs_in_one_process_ends_both_with_its_completion_in_the_records(folder, whole):
    run = make(folder, "hangs", "rewards_timeout=5")
    codes, end = finish_several(run, begin(folder, run, HANGS_IN="1"))
    assert codes == [1, 1] and (end["ending"], end["step"]) == ("REWARD_TIMEOUT", 0), logs(run)
    (record,) = [e for e in read_jsonl(run.events) if e["event"] == "reward_timeout"]
    assert record["reward"] == "fn" and f"completion {record['completion'][:60]!r}" in end["detail"]


@pytest.mark.long
def test_a_killed_process_ends_the_other_and_a_resume_is_exact(folder, whole):
    run = make(folder, "killed")
    processes = begin(folder, run)
    wait_for_steps(run, processes, 3)
    wait_for(lambda: (run.checkpoints / "2").is_dir())
    processes[1].kill()
    ended(run, processes[0])
    (newest, *_) = saved(run)[::-1]
    assert newest in (2, 4)
    codes, end = finish_several(run, begin(folder, run, attempt=2), attempt=2)
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    assert [e["step"] for e in read_jsonl(run.events) if e["event"] == "resumed"] == [newest]
    assert figures(run) == figures(whole)
    assert state(run, 6) == state(whole, 6)


@pytest.mark.long
def test_a_process_that_the_others_wait_for_is_named_in_the_records_and_to_whoever_watches(folder):
    run, out = make(folder, "lags", "training.max_steps=1000", "checkpoint.every_n_steps=1000"), io.StringIO()
    watching = view(run, out)
    processes = begin(folder, run, LAGS_IN="1")

    def named():
        assert all(p.poll() is None for p in processes), logs(run)
        watching.refresh("running", 1)
        return "takes" in out.getvalue()

    wait_for(named)
    processes[0].send_signal(signal.SIGTERM)
    codes, end = finish_several(run, processes)
    assert codes == [3, 3] and end["ending"] == "STOPPED" and end["step"] >= 60, logs(run)
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    (notice,) = [message for message in notices if "all wait for it" in message]
    assert notice.startswith(f"rank 1 (host {socket.gethostname()}) takes "), notice
    assert f"run: notice: {notice}\n" in out.getvalue()


@pytest.mark.long
def test_a_damaged_checkpoint_is_put_aside_by_all(folder, whole):
    run = RunDir(shutil.copytree(whole.path, folder / "damaged" / "run"))
    data = max((f for f in (run.checkpoints / "6").rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    data.write_bytes(data.read_bytes()[:100])
    codes, end = finish_several(run, begin(folder, run, attempt=2), attempt=2)
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    assert [e["step"] for e in read_jsonl(run.events) if e["event"] == "resumed"] == [4]
    assert figures(run) == figures(whole) and state(run, 6) == state(whole, 6)


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 0])
def test_a_stopped_process_ends_the_run_as_stalled_with_the_stacks_of_both(folder, whole, number):
    run = make(folder, f"stopped-{number}", "training.max_steps=200", "checkpoint.every_n_steps=1000")
    processes = begin(folder, run, module=short_patience.__name__)
    other = 1 - number
    try:
        wait_for_steps(run, processes, 5)
        processes[number].send_signal(signal.SIGSTOP)
        assert processes[other].wait(short_patience.LONGEST_S) != 0, logs(run)
    finally:
        processes[number].kill()
        processes[number].wait()
    found = outcome(run, 1, Polled(Process.ENDED, 1, first=other), False)
    assert found.ending is Ending.STALLED and found.detail.startswith("no step has ended for "), (found, logs(run))
    assert f"rank {number} " in found.detail and "attempts/1/stacks-*.txt" in found.fix
    short_patience.assert_stacks_of_both(run, number, "train/grpo/loop.py")
