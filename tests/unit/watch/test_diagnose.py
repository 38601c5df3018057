"""How an attempt without a last word is taken to have ended."""

import json
from pathlib import Path

import pytest

from podwright.run import journal
from podwright.rundir import Ending, RunDir, append_jsonl
from podwright.targets.base import Polled, Process
from podwright.watch.diagnose import outcome
from tests import scarce

# As tensorstore says it through orbax.
DISK_FULL = (
    'RESOURCE_EXHAUSTED: Error writing "w/0.0" in OCDBT database at local file "/r/checkpoints/1.orbax-checkpoint-tmp/": '
    "Failed to write 2673028 bytes to file 4: No space left on device [os_error_code='28']"
)


def attempt(folder: Path, log: str, exit_text: str | None = None) -> RunDir:
    run = RunDir(folder)
    run.attempt(1).mkdir(parents=True)
    run.log(1).write_text(log)
    if exit_text is not None:
        run.exit(1).write_text(exit_text)
    return run


def test_the_log_of_another_process_tells_too(tmp_path: Path) -> None:
    run = attempt(tmp_path, "step 1")
    run.log(1, 1).write_text("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes\n")
    assert outcome(run, 1, Polled(Process.ENDED, 137), False).ending is Ending.OUT_OF_MEMORY


def test_what_the_trainer_wrote_last_counts(tmp_path: Path) -> None:
    text = json.dumps({"ending": "NOT_FINITE", "detail": "loss is nan", "fix": "smaller lr", "step": 7})
    found = outcome(attempt(tmp_path, "Killed", text), 1, Polled(Process.ENDED, -9), False)
    assert (found.ending, found.detail, found.fix, found.step) == (Ending.NOT_FINITE, "loss is nan", "smaller lr", 7)


@pytest.mark.parametrize(
    ("log", "returncode", "stop_wanted", "ending", "says"),
    [
        ("step 1\n", -9, False, Ending.UNKNOWN, "killed by SIGKILL: by a person, or by the kernel when memory ran out"),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n", 1, False, Ending.OUT_OF_MEMORY, "RESOURCE_EXHAUSTED"),
        (f"ValueError: {DISK_FULL}\n", 1, False, Ending.CRASHED, "a disk is full, or your share of it: "),
        (f"step 1\n{DISK_FULL}\n", -9, False, Ending.CRASHED, "No space left on device"),
        (
            "OSError: [Errno 122] Disk quota exceeded: 'x'\n",
            1,
            False,
            Ending.CRASHED,
            "share of it: OSError: [Errno 122]",
        ),
        ("step 1\nterminate called: std::bad_alloc\n", -6, False, Ending.OUT_OF_MEMORY, "bad_alloc"),
        (
            "Traceback (most recent call last):\nKeyError: 'x'\n\n",
            1,
            False,
            Ending.CRASHED,
            "KeyError: 'x' (exit code 1)",
        ),
        ("Traceback (most recent call last):\nKeyError: 'x'\n", None, False, Ending.CRASHED, "KeyError: 'x'"),
        (
            "F1 Terminating process because the JAX distributed service detected fatal errors.\n  @ 0x7f (unknown)\n",
            -6,
            False,
            Ending.CRASHED,
            "another process of the run has ended",
        ),
        (
            "KeyError: 'x'\nsrun: launch/slurm: _step_signal: Terminating StepId=10.0\n",
            1,
            False,
            Ending.CRASHED,
            "KeyError: 'x' (exit code 1)",
        ),
        ("step 1\n", -11, False, Ending.CRASHED, "step 1 (killed by SIGSEGV)"),
        ("step 1\n", None, False, Ending.UNKNOWN, "its log ends with: step 1"),
        ("", None, False, Ending.UNKNOWN, "left no sign"),
        ("step 1\n", -15, True, Ending.STOPPED, "stopped before the trainer could save (killed by SIGTERM)"),
        ("step 1\n", -9, True, Ending.STOPPED, "stopped before the trainer could save"),
        ("step 1\n", -15, False, Ending.CRASHED, "SIGTERM"),
    ],
)
def test_else_how_it_died_and_its_log(
    tmp_path: Path, log: str, returncode: int | None, stop_wanted: bool, ending: Ending, says: str
) -> None:
    found = outcome(attempt(tmp_path, log), 1, Polled(Process.ENDED, returncode), stop_wanted)
    assert found.ending is ending
    assert says in found.detail


def test_what_a_trainer_wrote_into_its_records_is_no_silence_either(tmp_path: Path) -> None:
    run = attempt(tmp_path, "")
    stopped = "stopped before the trainer could save"
    assert "logged anything" in outcome(run, 1, Polled(Process.ENDED, -9), True).detail
    append_jsonl(run.events, {"event": "phase", "phase": "loading", "time": 1.0, "attempt": 2})
    assert "logged anything" in outcome(run, 1, Polled(Process.ENDED, -9), True).detail
    append_jsonl(run.events, {"event": "phase", "phase": "grpo", "time": 1.0, "attempt": 1})
    assert outcome(run, 1, Polled(Process.ENDED, -9), True).detail == f"{stopped} (killed by SIGKILL)"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ending": "SOMETHING", "detail": ""}', '{"detail": ""}'])
def test_a_last_word_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert outcome(attempt(tmp_path, "step 1", text), 1, Polled(Process.ENDED, -9), False).ending is Ending.UNKNOWN


def test_the_fault_of_another_process_counts_when_the_first_left_no_word(tmp_path: Path) -> None:
    run = attempt(tmp_path, "F1 Terminating process because the JAX distributed service detected fatal errors.\n")
    run.exit(1, 2).write_text(
        json.dumps({"ending": "OUT_OF_MEMORY", "detail": "no room", "fix": "smaller", "step": None})
    )
    found = outcome(run, 1, Polled(Process.ENDED, -6), False)
    assert (found.ending, found.detail, found.fix) == (Ending.OUT_OF_MEMORY, "no room (in process 2)", "smaller")
    run.exit(1, 2).write_text("[]")
    assert outcome(run, 1, Polled(Process.ENDED, -6), False).ending is Ending.CRASHED
    run.exit(1).write_text(json.dumps({"ending": "FINISHED", "detail": ""}))
    assert outcome(run, 1, Polled(Process.ENDED, 0), False).ending is Ending.FINISHED


@pytest.mark.skipif(bool(scarce.missing()), reason=scarce.missing() or "there are some")
def test_a_run_on_a_full_disk_says_so_where_nothing_could_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    with scarce.small(folder, "4m"):
        run = attempt(folder / "r", "step 1\nConnection closed by peer [127.0.0.1]\n")
        assert "the disk" not in outcome(run, 1, Polled(Process.ENDED, 1), False).detail
        with pytest.raises(OSError, match="No space left"):
            (folder / "rest").write_bytes(bytes(8 << 20))
        for polled in (Polled(Process.ENDED, 1), Polled(Process.ENDED, -9), Polled(Process.ENDED, None)):
            ended = outcome(run, 1, polled, False)
            assert ended.ending is Ending.CRASHED
            assert ended.detail.startswith(f"the disk of the run is full: {run.path} (0.0 MiB of 0.0 GiB free)")
            assert (
                f"free some space there (checkpoints of old runs), then type podwright resume {run.typed}" == ended.fix
            )
        with pytest.raises(OSError, match=r"No space left on device: .*journal.jsonl"):
            journal.append(run, "ended", detail="x" * 10_000)


def test_no_log_at_all(tmp_path: Path) -> None:
    assert outcome(RunDir(tmp_path), 1, Polled(Process.ENDED, None), False).ending is Ending.UNKNOWN


def test_an_inferred_ending_counts_where_neither_the_trainer_nor_the_log_tells(tmp_path: Path) -> None:
    gone = Polled(Process.ENDED, ending=Ending.STOPPED, detail="JobSet pw-r was deleted", inferred=True)
    silent = outcome(attempt(tmp_path / "a", "step 1\n"), 1, gone, False)
    assert (silent.ending, silent.detail) == (Ending.STOPPED, "JobSet pw-r was deleted")
    written = json.dumps({"ending": "CRASHED", "detail": "ValueError: x", "step": 3})
    assert outcome(attempt(tmp_path / "b", "", written), 1, gone, False).detail == "ValueError: x"
    log = attempt(tmp_path / "c", "Traceback (most recent call last):\nValueError: y\n")
    assert outcome(log, 1, gone, False).ending is Ending.CRASHED
