"""Two real processes of which one sleeps in a step for ever, or longer than the other in each; the patience with steps; who is named."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest

from lab.bucket import EmulatedBucket
from podwright.counted_steps import read_steps
from podwright.rundir import Ending, RunDir, read_jsonl, write_json
from podwright.storage import open_storage, process_files, records
from podwright.train.emit import Emitter
from podwright.train.step_times import StepTimes, slower
from podwright.train.watchdog import Patience, Watchdog, standing, summarize
from tests.unit.train import jax_together, native_hang, together

ROOT = Path(__file__).resolve().parents[3]


def started(run: RunDir, case: str, size: int = 2, module: str = together.__name__) -> list[subprocess.Popen[str]]:
    run.attempt(1).mkdir(parents=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    fixed = {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(size),
    }
    argv = [sys.executable, "-m", module, str(run.path), case]
    return [
        subprocess.Popen(
            argv,
            env=os.environ | fixed | {"RANK": str(n), "LOCAL_RANK": str(n), "JAX_PROCESS_ID": str(n)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(size)
    ]


def test_a_run_that_hangs_leaves_every_stack_and_says_who_is_elsewhere(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    processes = started(run, "hangs")
    said = [p.communicate(timeout=180)[0] for p in processes]
    assert [p.returncode for p in processes] == [1, 1]
    for rank, function in ((0, "in summed"), (1, "in forever")):
        stacks = run.stacks(1, rank).read_text()
        assert stacks.count("after step 5; process") == 2 and function in stacks and "watchdog.py" in stacks
    end, other = (json.loads(run.exit(1, rank).read_text()) for rank in (0, 1))
    assert (end["ending"], end["step"], other["ending"]) == (Ending.STALLED, 5, Ending.STALLED)
    host = socket.gethostname()
    assert f": rank 1 (host {host}) is at podwright/train/multimodal/course.py:" in end["detail"]
    assert (
        "unit/train/together.py:" in end["detail"]
        and "in forever; rank 0 at podwright/train/multimodal/processes/world.py:" in end["detail"]
    )
    assert "stacks-*.txt, then type: podwright resume" in end["fix"] and said[0].startswith(
        "STALLED: no step has ended for "
    )
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert len(notices) == 2 and "rank 1 (host" in notices[0] and "attempts/1/stacks-*.txt has the stacks" in notices[0]


@pytest.mark.long
def test_a_process_that_the_others_wait_for_is_named_once(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    processes = started(run, "lags")
    assert [(p.communicate(timeout=90), p.returncode)[1] for p in processes] == [0, 0]
    (said,) = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    found = re.match(
        rf"rank 1 \(host {socket.gethostname()}\) takes ([\d.]+) times as long as the others for its part of a step \(0\.03",
        said,
    )
    assert found and 2 < float(found[1]) < 3.5, said
    steps = read_steps(run, "multimodal")
    assert len(steps) == 90 and "own_s" not in steps[0]


def test_a_process_of_jax_that_the_others_wait_for_is_named_once(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    processes = started(run, "lags", module=jax_together.__name__)
    assert [(p.communicate(timeout=120), p.returncode)[1] for p in processes] == [0, 0]
    (notice,) = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert notice.startswith(f"rank 1 (host {socket.gethostname()}) takes "), notice
    assert all("cpu," in run.devices(1, rank).read_text() for rank in range(2))
    assert not run.stacks(1, 0).exists()


def wait_for_steps(run: RunDir, processes: list[subprocess.Popen[str]], number: int) -> None:
    while len(list(read_jsonl(run.metrics))) < number:
        assert all(p.poll() is None for p in processes)
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("module", "stopped"),
    [
        pytest.param(together.__name__, 1, marks=pytest.mark.long),
        (jax_together.__name__, 1),
        pytest.param(jax_together.__name__, 0, marks=pytest.mark.long),
    ],
)
def test_a_stopped_process_ends_the_run_and_has_its_stacks_written(tmp_path: Path, module: str, stopped: int) -> None:
    run = RunDir(tmp_path / "run")
    processes = started(run, "stopped", module=module)
    wait_for_steps(run, processes, 10)
    processes[stopped].send_signal(signal.SIGSTOP)
    try:
        assert processes[1 - stopped].wait(60) == 1
    finally:
        processes[stopped].kill()
    for process in processes:
        process.communicate()
    end = json.loads(run.exit(1, 1 - stopped).read_text())
    assert end["ending"] == Ending.STALLED and re.search(f"rank {stopped} .*(did not run|gives no sign)", end["detail"])
    stacks = [run.stacks(1, rank).read_text() for rank in range(2)]
    assert re.search(r"gave no sign for \d+ s \(T \(stopped\)\); where it was when it was continued:", stacks[stopped])
    assert all("together.py" in text and "most recent call first" in text for text in stacks)


@pytest.mark.long
def test_the_ending_of_a_run_that_hangs_and_its_stacks_are_in_its_storage(
    tmp_path: Path, bucket: EmulatedBucket
) -> None:
    run = RunDir(tmp_path / "run")
    write_json(run.storage, {"url": f"{bucket.url}/run-00000001"})
    processes = started(run, "stopped", module=jax_together.__name__)
    wait_for_steps(run, processes, 10)
    processes[1].send_signal(signal.SIGSTOP)
    try:
        assert processes[0].wait(60) == 1
    finally:
        processes[1].kill()
    for process in processes:
        process.communicate()
    elsewhere = RunDir(tmp_path / "elsewhere")
    records.bring(elsewhere, open_storage(run.storage_url))
    process_files.bring(elsewhere, open_storage(run.storage_url), 1)
    assert elsewhere.exit(1).read_bytes() == run.exit(1).read_bytes()
    assert elsewhere.stacks(1, 0).read_bytes() == run.stacks(1, 0).read_bytes()
    assert list(read_jsonl(elsewhere.events)) == list(read_jsonl(run.events))
    assert json.loads(elsewhere.exit(1).read_text())["ending"] == Ending.STALLED


def test_a_process_that_is_stopped_and_continued_in_time_goes_on(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    processes = started(run, "stopped", module=jax_together.__name__)
    wait_for_steps(run, processes, 10)
    processes[1].send_signal(signal.SIGSTOP)
    time.sleep(1.5 * jax_together.SHORT.least_s)
    processes[1].send_signal(signal.SIGCONT)
    assert [(p.communicate(timeout=120), p.returncode)[1] for p in processes] == [0, 0]
    (notice,) = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert notice.startswith("no step has ended for 4 s: rank 1 gives no sign; rank 0 ")


@pytest.mark.long
def test_a_step_that_compiles_for_long_is_reported_and_goes_on(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    (process,) = started(run, "compiles", size=1, module=jax_together.__name__)
    process.communicate(timeout=120)
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert process.returncode == 0 and len(notices) > 1 and "jax/_src/compiler.py:" in notices[0]


@pytest.mark.parametrize(
    ("own", "slow"),
    [
        ([1.0, 1.0, 1.0, 1.0], {}),
        ([1.0, 1.2, 1.0, 1.0], {}),
        ([1.0, 1.0, 1.0, 1.6], {3: 1.6}),
        ([1.0, 2.0], {1: 2.0}),
        ([0.01, 0.04, 0.01], {}),  # of steps of a second
        ([1.0, 1.0, 2.0, 2.5], {2: 2.0, 3: 2.5}),
    ],
)  # fmt: skip
def test_who_is_slower(own: list[float], slow: dict[int, float]) -> None:
    assert slower(own, 1.0) == pytest.approx(slow)


def test_a_process_is_slow_after_three_windows_in_a_row() -> None:
    seen = iter([2.0, 2.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    watched = StepTimes(2, lambda mine: [mine, ["n2", mine[1] * next(seen), mine[2]]])
    said = [watched.stepped(0.1, 0.2) for _ in range(7 * 20)]
    assert [n // 20 for n, notices in enumerate(said) if notices] == [5] and "rank 1 (host n2) takes 2.0 times" in said[
        119
    ][0]


def test_patience_follows_the_pace_of_the_steps() -> None:
    patience = Patience()
    assert [patience.with_steps([s] * 9) for s in (0.1, 5.0, 20.0, 200.0)] == [60.0, 100.0, 240.0, 600.0]
    assert patience.with_steps([0.1, 0.1]) == patience.first_s, "the first steps compile"


def test_a_function_that_jax_annotates_for_profiles_has_a_pace() -> None:
    """As those are that run a compiled step: their frames are in jax's profiler, and no trace is written."""
    found = jax.profiler.annotate_function(lambda: standing(sys._getframe()), name="step")()
    assert not found["unpaced"] and not found["meets"]


def stand(rank: int, where: str, meets: bool = False, absent_s: float = 0.0) -> dict[str, object]:
    return {"rank": rank, "host": f"n{rank}", "where": where, "meets": meets, "absent_s": absent_s}


@pytest.mark.parametrize(
    ("stands", "size", "said"),
    [
        ([stand(3, "a")], 1, "rank 3 at a"),
        ([stand(0, "a", True), stand(1, "b")], 2, "rank 1 (host n1) is at b; rank 0 at a"),
        ([stand(0, "a"), stand(1, "b")], 2, "rank 0 (host n0) is at a; rank 1 at b"),
        ([stand(0, "a"), stand(1, "a"), stand(2, "b")], 3, "rank 2 (host n2) is at b; ranks 0, 1 at a"),
        ([stand(0, "a", True), stand(2, "a", True)], 3, "rank 1 gives no sign; ranks 0, 2 at a"),
        ([stand(0, "a")], 2, "rank 1 gives no sign; rank 0 at a"),
        ([stand(0, "a"), stand(1, "a", True, 61)], 2, "rank 1 (host n1) did not run for 61 s and is at a; rank 0 at a"),
    ],
)  # fmt: skip
def test_who_is_elsewhere(stands: list[dict[str, object]], size: int, said: str) -> None:
    assert summarize(stands, size, 61.2) == f"no step has ended for 61 s: {said}"


def test_the_pace_is_as_it_was_after_a_fault_while_it_was_another(tmp_path: Path) -> None:
    watchdog = watchdog_of(Emitter(RunDir(tmp_path), 1, mine=True))
    with pytest.raises(ValueError), watchdog.pacing(3), watchdog.resting():
        raise ValueError
    assert not watchdog._resting and not watchdog._recent
    with pytest.raises(ValueError), watchdog.resting():
        watchdog.stepped(1)
        with watchdog.pacing(3):
            raise ValueError
    assert len(watchdog._recent) == 1 and not watchdog._resting


def test_a_notice_that_cannot_be_written_does_not_end_the_watch(tmp_path: Path, capsys: Any) -> None:
    run = RunDir(tmp_path)
    run.attempt(1).mkdir(parents=True)
    run.events.mkdir()  # as on a full disk: it cannot be appended to
    summary, unpaced = watchdog_of(Emitter(run, 1, mine=True))._look(time.monotonic(), 0.0)
    assert "no step has ended for 0 s" in summary and not unpaced
    assert "the notice cannot be written: " in capsys.readouterr().out


def watchdog_of(emit: Emitter) -> Watchdog:
    return Watchdog(emit, (0, 1), (lambda key, word: None, lambda key: None), Patience())


def hanging(run: RunDir, case: str) -> subprocess.Popen[str]:
    """The process after its fifth step."""
    run.attempt(1).mkdir(parents=True)
    argv = [sys.executable, "-m", native_hang.__name__, str(run.path), case]
    process = subprocess.Popen(
        argv, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout and process.stdout.readline() == "step 5 has ended\n"
    return process


def ended(run: RunDir, process: subprocess.Popen[str], timeout_s: float) -> tuple[dict[str, Any], str]:
    """How it ended, and what it printed meanwhile."""
    try:
        printed = process.communicate(timeout=timeout_s)[0]
    finally:
        process.kill()
    assert process.returncode == -signal.SIGKILL
    stacks = run.stacks(1, 0).read_text()
    assert "native_hang.py" in stacks and "in hang" in stacks and "most recent call first" in stacks
    return json.loads(run.exit(1).read_text()), printed


def test_native_code_that_lets_no_python_run_ends_a_run_of_one_process(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    end, printed = ended(run, hanging(run, "hangs"), 30)
    assert end["ending"] == Ending.STALLED and "podwright resume" in end["fix"]
    where = f"rank 0 (host {socket.gethostname()}) is in native code that lets no Python run"
    assert re.fullmatch(rf"no step has ended for \d+ s: {re.escape(where)}", end["detail"]), end
    assert printed == f"STALLED: {end['detail']}; {end['fix']}\n"


@pytest.mark.long
def test_a_stop_ends_a_process_that_runs_no_python_within_a_minute(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    process = hanging(run, "stops")
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    end, _ = ended(run, process, 60)
    assert end["ending"] == Ending.STOPPED and end["detail"].startswith("stopped before the trainer could save: rank 0")


def test_a_run_of_one_process_that_a_person_has_stopped_goes_on(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    process = hanging(run, "goes on")
    process.send_signal(signal.SIGSTOP)
    time.sleep(2 * native_hang.SHORT.least_s + 3 * native_hang.SHORT.grace_s)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=30)
    assert process.returncode == 0 and not run.exit(1).exists()
