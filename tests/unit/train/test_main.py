"""What a fault of the trainer is called, and what it says to type."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.api_core.exceptions import TooManyRequests

from podwright.errors import UserError
from podwright.recipe.advice import saved_step
from podwright.recipe.kinds import KINDS
from podwright.recipe.load import fields as load_fields
from podwright.recipe.load import load
from podwright.recipe.location import Location
from podwright.run.states import advice
from podwright.rundir import Ending, RunDir, read_json, write_json
from podwright.storage.base import Cause, StorageFailure
from podwright.train import attempt, entry, mesh, verbs
from podwright.train.attempt import explain
from podwright.train.grpo.entry import GrpoEntry
from podwright.train.multimodal.processes import launch
from podwright.train.run_storage import AttemptStart, RunStorage
from podwright.train.verbs import VERBS
from tests.unit.train.test_start import write_config

# As tensorstore says it through orbax.
DISK_FULL = (
    'RESOURCE_EXHAUSTED: Error writing "w/0.0" in OCDBT database at local file "/r/checkpoints/1.orbax-checkpoint-tmp/": '
    "Failed to write 2673028 bytes to file 4: No space left on device [os_error_code='28']"
)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(DISK_FULL),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/r/metrics.jsonl"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
    ],
)
def test_a_full_disk_is_no_lack_of_memory(tmp_path, error):
    ending, detail, fix = explain(error, RunDir(tmp_path / "r"))
    place = getattr(error, "filename", None) or tmp_path / "r"
    words = os.strerror(getattr(error, "errno", errno.ENOSPC))
    assert ending is Ending.CRASHED and detail == f"{place}: {words}"
    assert fix.startswith("free some space there") and "then type: podwright resume " in fix


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ECONNREFUSED, errno.EADDRINUSE, errno.EMFILE])
def test_a_fault_of_no_file_is_not_told_as_one_of_the_run_directory(tmp_path, number):
    run = RunDir(tmp_path / "r")
    _, detail, fix = explain(OSError(number, os.strerror(number)), run)
    assert str(run.path) not in detail and os.strerror(number) in detail and "check that path" not in fix


def test_a_lack_of_memory_says_what_to_lower(tmp_path):
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.")
    write_json(RunDir(tmp_path).recipe, {"kind": "grpo"})
    ending, detail, fix = explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "68719476736" in detail
    assert "larger training.gradient_accumulation_steps" in fix and "rollout.total_generation_steps" in fix


@pytest.mark.parametrize(
    "words",
    [
        "Out of memory while trying to allocate 68719476736 bytes.",
        "Attempting to reserve 30.31G. Only 29.35G free.",
        "Error allocating device buffer: Attempting to allocate 1.00G. That was not possible. There are 512.00M free.",
        "Ran out of memory on HBM, the total memory required for HLO temporaries (96.00G) exceeds available HBM (31.25G).",
        "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 60.41G of 31.25G hbm. Exceeded hbm capacity by 29.16G.",
        "Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
    ],
)
def test_what_a_full_device_says(tmp_path, words):
    assert explain(RuntimeError(f"RESOURCE_EXHAUSTED: {words}"), RunDir(tmp_path))[0] is Ending.OUT_OF_MEMORY


def test_the_memory_of_a_core_is_not_that_of_the_device(tmp_path):
    first = "E1001: CompileTimeScopedVmemOom: Ran out of memory in memory space vmem while allocating on stack for %x."
    limit = "Scoped allocation with size 37.30M and limit 32.00M exceeded scoped vmem limit by 5.30M."
    ending, _, fix = explain(RuntimeError(f"RESOURCE_EXHAUSTED: {first} {limit}"), RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "block size" in fix


def test_a_checkpoint_that_was_never_whole_is_none_that_a_resume_begins_with():
    events = [{"event": "checkpoint", "step": 10}, {"event": "checkpoint", "step": 20}]
    assert saved_step(events) == 20 and saved_step([]) is None
    assert saved_step([*events, {"event": "resumed", "step": 10}]) == 10


def test_a_package_that_starts_the_processes_is_missed_by_the_attempt(tmp_path, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    write_json(RunDir(tmp_path).recipe, {"kind": "multimodal"})
    monkeypatch.setattr(type(entry.of("multimodal")), "num_processes", missing)
    assert attempt._num_processes(RunDir(tmp_path)) == 1


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (TooManyRequests("RESOURCE_EXHAUSTED: The rate of change requests to the object"), Ending.STORAGE_UNREACHABLE),
        (
            ValueError('RESOURCE_EXHAUSTED: Error writing "gs://b/x": HTTP response code: 429'),
            Ending.STORAGE_UNREACHABLE,
        ),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptible' has been exceeded. Limit: 0"),
            Ending.CRASHED,
        ),
        (RuntimeError('RESOURCE_EXHAUSTED: There is no more capacity in the zone "us-east5-a"'), Ending.CRASHED),
    ],
)
def test_a_quota_or_a_rate_is_no_lack_of_memory(tmp_path, error, ending):
    found, detail, fix = explain(error, RunDir(tmp_path / "r"))
    assert found is ending and detail.startswith("a service refuses requests: a quota or a rate limit is used up (")
    assert fix == f"wait a minute, then type: podwright resume {tmp_path / 'r'}"


def test_a_gpu_without_room_says_what_to_lower(tmp_path):
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 15.77 GiB")
    write_json(RunDir(tmp_path).recipe, {"kind": "multimodal"})
    ending, detail, fix = explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "2.32 GiB" in detail
    assert "smaller per_device_batch_size" in fix and "model.gradient_checkpointing=true" in fix


@pytest.mark.parametrize(
    "kind", sorted(name for name, kind in KINDS.items() if kind.command)
)  # MaxText trains by itself
@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA out of memory"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory"), MemoryError()]
)
def test_a_lack_of_memory_names_keys_that_the_recipe_has(tmp_path: Path, kind: str, error: Exception) -> None:
    write_json(RunDir(tmp_path).recipe, {"kind": kind})
    fix = explain(error, RunDir(tmp_path))[2]
    named = set(re.findall(r"[a-z]+\.[a-z_]+|[a-z]+_[a-z_]+", fix))
    assert named and named <= set(load_fields(KINDS[kind].schema))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda: "\ud800".encode(), id="half a character"),
        pytest.param(lambda: np.int64(10**20), id="a number of 20 digits"),
        pytest.param(lambda: b"\xff".decode(), id="no UTF-8"),
    ],
)
def test_a_crash_of_the_input_is_not_to_be_resumed(tmp_path: Path, value: Callable[[], object]) -> None:
    with pytest.raises(Exception) as caught:
        value()
    ending, detail, fix = explain(caught.value, RunDir(tmp_path / "r"))
    assert ending is Ending.BAD_INPUT and detail and "resume" not in advice(ending, fix, "r")
    assert "resume" not in advice(Ending.BAD_INPUT, "", "r")


def test_a_fault_of_code_or_data_is_to_be_fixed_first(tmp_path: Path) -> None:
    ending, _, fix = explain(KeyError("answer"), RunDir(tmp_path / "r"))
    assert ending is Ending.CRASHED and fix.startswith("fix what `podwright logs ") and "resume" not in fix


def test_a_process_that_nobody_came_to_has_stalled(tmp_path: Path) -> None:
    said = (Path(__file__).parents[2] / "logs" / "gloo-timeout.log").read_text().splitlines()[-1]
    ending, detail, fix = explain(RuntimeError(said.partition("RuntimeError: ")[2]), RunDir(tmp_path / "r"))
    assert ending == Ending.STALLED and "did not reach a collective (RuntimeError: [/__w/" in detail
    assert fix == f"compare the logs of all, then type: podwright resume {tmp_path / 'r'}"


@pytest.mark.parametrize(
    "said",
    [
        *[
            line.partition("RuntimeError: ")[2]
            for line in (Path(__file__).parents[2] / "logs" / "peer-gone.log").read_text().splitlines()
            if "RuntimeError: " in line
        ],
        "UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection reset by peer [10.0.0.4]:1",
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:510] writev [10.0.0.4]:1: Broken pipe",
        "NCCL error: remote process exited or there was a network error",
    ],
)
def test_the_end_of_another_process_is_no_fault_of_this_one(tmp_path: Path, said: str) -> None:
    assert attempt._is_by_peer(RuntimeError(said))
    ending, detail, _ = explain(RuntimeError(said), RunDir(tmp_path))
    assert ending is Ending.CRASHED and detail.startswith("another process of the run is gone (RuntimeError: ")
    assert "gloo/transport" not in detail and "GLHF" not in detail


def test_too_few_addresses_name_the_limit_and_what_raises_it(tmp_path: Path) -> None:
    tell = (
        "import resource, sys; from pathlib import Path; from podwright.rundir import RunDir; from podwright.train.attempt import explain\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "try: bytes(8 << 30)\n"
        "except MemoryError as e: print(*explain(e, RunDir(Path(sys.argv[1]))), sep='|')"
    )
    said = subprocess.check_output([sys.executable, "-c", tell, str(tmp_path / "r")], text=True)
    ending, detail, fix = said.strip().split("|")
    assert ending == "OUT_OF_MEMORY" and detail == "MemoryError:  (ulimit -v allows 4.00 GiB of addresses)"
    assert fix.startswith("type ulimit -v unlimited where the run is started") and "podwright resume" in fix


def test_an_evaluation_of_a_directory_without_questions_says_what_to_type(tmp_path: Path) -> None:
    write_config(tmp_path)
    with pytest.raises(UserError, match=r"^eval of a directory needs questions; add --data SRC"):
        GrpoEntry().evaluate(tmp_path, "", 0, [])


def _drawn(folder: Path, pairs: bool = False, train: int = 2, test: int = 1) -> dict[str, Any]:
    options = {"folder": str(folder), "num_train": train, "num_test": test, "seed": 0, "pairs": pairs}
    return VERBS["data-draw"]([json.dumps(options)])


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("own", [("train.jsonl",), ("train.jsonl", "val.jsonl"), ("notes.txt",)])
def test_cats_are_not_drawn_over_what_is_there(tmp_path: Path, own: tuple[str, ...], pairs: bool) -> None:
    for name in own:
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        UserError, match=r"is there already and not empty; name a directory that does not exist yet or is empty"
    ):
        _drawn(tmp_path, pairs)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(own, "mine")
    with pytest.raises(UserError, match=f"{own[0]} is a file, and a directory is written; name"):
        _drawn(tmp_path / own[0], pairs)


def test_as_many_cats_are_drawn_as_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("new", "empty"):
        assert _drawn(tmp_path / folder, test=0) == {"out": str(tmp_path / folder), "train": 2, "val": 0}
        assert sorted(p.name for p in (tmp_path / folder).glob("*.jsonl")) == ["train.jsonl"]


def test_a_store_that_refuses_the_training_data_is_no_bad_input(tmp_path, bucket, monkeypatch):
    run = RunDir(tmp_path / "r")
    bucket.faults.status = 403
    monkeypatch.setattr(attempt, "_run", lambda *_: Location.of(f"{bucket.url}/tokens.bin").read())
    record, fault, own = attempt._guarded(run, AttemptStart(1), lambda: False)
    assert (record["ending"], fault, own) == ("STORAGE_UNREACHABLE", True, True)
    assert "tokens.bin cannot be read" in record["detail"] and "then type: podwright resume" in record["fix"]
    monkeypatch.setattr(attempt, "_run", lambda *_: Location.of("gopher://x/tokens.bin").read())
    assert attempt._guarded(run, AttemptStart(1), lambda: False)[0]["ending"] == "BAD_INPUT"


@pytest.mark.parametrize("fault", [None, ValueError("no such file or directory")])
def test_a_folder_that_is_gone_while_training_is_a_storage_that_cannot_be_reached(tmp_path, monkeypatch, fault):
    run, kept = RunDir(tmp_path / "r"), tmp_path / "kept" / "r-00000001"
    run.path.mkdir()
    kept.parent.mkdir()
    start = AttemptStart(1, str(kept), storage=RunStorage(run, str(kept)))
    start.storage.claim(1, "", False)

    def train(*_: Any) -> None:
        kept.parent.rename(tmp_path / "away")
        if fault:
            raise fault
        start.storage.publish()

    monkeypatch.setattr(attempt, "_run", train)
    record, _, own = attempt._guarded(run, start, lambda: False)
    assert (record["ending"], record["detail"], own) == ("STORAGE_UNREACHABLE", f"the claim of {kept} is gone", True)
    assert record["fix"] == f"mount or restore the folder, then type: podwright resume {run.typed}"
    assert not kept.parent.exists()


def test_a_bucket_of_training_data_is_read_with_patience(tmp_path, monkeypatch):
    import fsspec

    run = RunDir(tmp_path / "r")
    recipe = load("qwen3-0.6b-pretrain", ["data.source=gs://b/tokens"])
    write_json(run.recipe, recipe.model_dump(mode="json"))
    monkeypatch.setattr(attempt.entry, "of", lambda _: SimpleNamespace(train=lambda *_: None))
    attempt._run(run, AttemptStart(1), lambda: False)
    assert fsspec.get_filesystem_class("gs").__name__ == "PatientFileSystem"


@pytest.mark.parametrize(
    "fault",
    [
        StorageFailure("storage gs://b/r failed", "wait", Cause.QUOTA),
        UserError("data=x is no file", "check", "no-such-file"),
    ],
)
def test_the_fault_of_another_process_ends_the_run_as_in_that_process(fault):
    other = mesh._decoded(mesh._encoded(fault), 3)
    assert type(other) is type(fault) and other.what == f"{fault.what} (in process 3)" and other.fix == fault.fix
    assert getattr(other, "cause", None) == getattr(fault, "cause", None)


@pytest.mark.parametrize("verb", ["export", "eval", "train"])
def test_a_recipe_of_a_run_with_a_renamed_key_is_damaged(tmp_path: Path, verb: str) -> None:
    raw = load("qwen3-tiny-arithmetic-grpo").model_dump(mode="json")
    raw["batchsize"] = raw.pop("batch_size")
    run = RunDir(tmp_path / "r")
    write_json(run.recipe, raw)
    with pytest.raises(UserError) as refused:
        if verb == "export":
            GrpoEntry().export(run.path, tmp_path / "out", False)
        elif verb == "eval":
            GrpoEntry().evaluate(run.path, "questions.jsonl", 0, [])
        else:
            attempt._run(run, AttemptStart(1), lambda: False)  # type: ignore[arg-type]
    assert refused.value.what.startswith(f"{run.recipe} is damaged or of another version: batch"), refused.value
    assert refused.value.fix == "restore it from a copy, or use the version that wrote it"


@pytest.mark.parametrize(
    ("failed", "ending", "status"),
    [(None, "FINISHED", 0), (None, "STOPPED", 3), ((1, -9), "OUT_OF_MEMORY", 1), ((1, -9), None, 1)],
)
def test_processes_of_this_machine_end_as_they_wrote_and_the_one_that_failed_first_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: tuple[int, int] | None, ending: str | None, status: int
) -> None:
    run = RunDir(tmp_path / "r")
    run.attempt(2).mkdir(parents=True)
    write_json(run.recipe, load("phase2-tiny").model_dump(mode="json"))
    if ending:
        write_json(run.exit(2), {"ending": ending})

    def several(number: int, arguments: list[str], environment: Mapping[str, str]) -> tuple[int, int] | None:
        started.append((number, arguments))
        return failed

    started = list[tuple[int, list[str]]]()
    monkeypatch.setattr(launch, "several", several)
    monkeypatch.setattr(sys, "argv", ["train", str(run.path), "--attempt", "2"])
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    monkeypatch.delenv("RANK", raising=False)
    assert attempt.main() == status and started == [(2, [str(run.path), "--attempt", "2"])]
    fault = read_json(run.fault(2))
    assert (fault.get("process"), fault.get("code")) == (failed or (None, None))


def test_a_second_request_to_stop_is_one_in_a_hurry() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    try:
        stop = attempt.StopRequest()
        assert not stop() and not stop.hurried()
        signal.raise_signal(signal.SIGTERM)
        assert stop() and not stop.hurried()
        signal.raise_signal(signal.SIGINT)
        assert stop() and stop.hurried()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


AT_ONCE = """
import hashlib, sys
from pathlib import Path
from podwright.rundir import RunDir, append_jsonl
from podwright.train import attempt
from podwright.train.run_storage import AttemptStart

run, trained = RunDir(Path(sys.argv[1])), sys.argv[2] == "trained"
append_jsonl(run.events, {"event": "checkpoint", "time": 1.0, "step": 4})
attempt.AT_ONCE_S = 0.3
start = AttemptStart(2, trained=lambda: trained)
stop = attempt.StopRequest()
stop.then(lambda: attempt._leave(run, start))
print("ready", flush=True)
begun = __import__("time").monotonic()
while __import__("time").monotonic() - begun < 3:  # as a compiler: one instruction of Python
    hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000_000 if not trained else 200_000)
sys.exit(7 if stop() else 8)
"""


@pytest.mark.parametrize("state", ["new", "trained"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_stop_ends_a_compilation_in_which_nothing_is_lost(tmp_path: Path, state: str, number: int) -> None:
    """Once a step has ended there is something to save, and the loop does it."""
    run = RunDir(tmp_path)
    argv = [sys.executable, "-c", AT_ONCE, str(tmp_path), state]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        code = process.wait(60)
    if state == "trained":
        assert code == 7 and not run.exit(2).exists()
    else:
        record = json.loads(run.exit(2).read_text())
        assert code == 3 and (record["ending"], record["step"]) == ("STOPPED", 4)
        assert record["detail"] == "stopped before a step of this attempt had ended"


@pytest.mark.parametrize("fault", [UserError("no data", "give some", "no-rows"), RuntimeError("broken"), None])
def test_a_stop_that_comes_after_the_end_writes_no_ending_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    def run(*_: Any) -> Any:
        if fault:
            raise fault
        return SimpleNamespace(ending=Ending.FINISHED, step=1, detail="", fix="")

    monkeypatch.setattr(attempt, "_run", run)
    start = AttemptStart(1)
    assert not start.trained()
    attempt._guarded(RunDir(tmp_path), start, attempt.StopRequest.__new__(attempt.StopRequest))
    assert start.trained()
    attempt._leave(RunDir(tmp_path), start)
    assert not RunDir(tmp_path).exit(1).exists()


def test_a_trainer_may_open_as_many_files_as_the_hard_limit_allows() -> None:
    """Many shells begin with 1,024, which a checkpoint of a large model exceeds."""
    code = (
        "import resource as r\n"
        "from podwright.train import attempt, facts\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 4096))\n"
        "expected = facts._open_files()\n"
        "attempt._allow_open_files()\n"
        "print(expected, *r.getrlimit(r.RLIMIT_NOFILE))\n"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "4096 4096 4096\n"


def test_what_is_printed_while_a_verb_answers_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def verb(argv: list[str]) -> dict[str, Any]:
        print("checkpoint 4: FileNotFoundError")
        if argv:
            raise UserError("a is not b", "type b", "bad-value")
        return {"step": 3}

    for argv, status, answer in (([], 0, {"step": 3}), (["a"], 2, {"error": "a is not b", "fix": "type b"})):
        assert verbs.answer(verb, argv) == status
        out, err = capsys.readouterr()
        assert answer.items() <= json.loads(out).items() and err == "checkpoint 4: FileNotFoundError\n"
