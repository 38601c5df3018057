"""Which failure of many logs comes first, and logs that are no plain file of text."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.cli import app
from podwright.errors import UserError
from podwright.rundir import RunDir, write_json
from podwright.targets.base import Polled, Process
from podwright.watch import explain
from podwright.watch.diagnose import outcome
from tests.diagnosed import diagnosed

FULL = "OSError: [Errno 28] No space left on device\n"
MISSING = "ModuleNotFoundError: No module named 'orbax'\n"
PEER = "RuntimeError: Connection closed by peer [10.0.0.4]\n"
KILLED = "Signal 9 (SIGKILL) received by PID 7\n"


def attempted(folder: Path, *logs: str) -> RunDir:
    run = RunDir(folder / "cats")
    run.attempt(1).mkdir(parents=True)
    for process, text in enumerate(logs):
        run.log(1, process).write_text(text)
    return run


def first(run: RunDir) -> tuple[str, str]:
    match = explain.run(run)[0]
    return match["rule"], Path(match["file"]).name


def test_the_earliest_cause_of_all_logs_comes_first(tmp_path: Path) -> None:
    late, early = "2026-11-21 10:00:09 " + FULL, "2026-11-21 10:00:08 " + MISSING
    assert first(attempted(tmp_path / "a", late, early)) == ("no-module", "log-1.txt")
    assert first(attempted(tmp_path / "b", early, late)) == ("no-module", "log.txt")
    assert first(attempted(tmp_path / "c", late, "2026-11-21 10:00:10 " + MISSING)) == ("disk-full", "log.txt")


def test_a_consequence_never_precedes_a_cause_of_another_log(tmp_path: Path) -> None:
    run = attempted(tmp_path, "2026-11-21 10:00:00 " + PEER, "2026-11-21 10:00:01 " + KILLED, FULL)
    assert [match["rule"] for match in explain.run(run)] == ["disk-full", "peer-gone", "worker-killed"]


def test_without_times_the_process_that_ended_first_comes_first(tmp_path: Path) -> None:
    run = attempted(tmp_path, FULL, MISSING)
    assert first(run) == ("disk-full", "log.txt")
    write_json(run.exit(1, 1), {"time": 100.0})
    assert first(run) == ("no-module", "log-1.txt")
    write_json(run.exit(1), {"time": 99.5})
    assert first(run) == ("disk-full", "log.txt")
    write_json(run.exit(1), {"time": "soon"})
    assert first(run) == ("no-module", "log-1.txt")
    run.exit(1).write_text("[]")
    assert first(run) == ("no-module", "log-1.txt")


def test_a_time_in_a_line_counts_before_the_end_of_its_process(tmp_path: Path) -> None:
    run = attempted(tmp_path, "1970-01-01 00:03:00 " + FULL, MISSING)
    write_json(run.exit(1), {"time": 10.0})
    write_json(run.exit(1, 1), {"time": 179.0})
    assert first(run) == ("no-module", "log-1.txt")
    write_json(run.exit(1, 1), {"time": 181.0})
    assert first(run) == ("disk-full", "log.txt")


def test_without_any_time_the_process_that_is_known_to_have_failed_first_comes_first(tmp_path: Path) -> None:
    run = attempted(tmp_path, FULL, MISSING)
    write_json(run.fault(1), {"process": 1, "host": "n1", "code": 1})
    assert first(run) == ("no-module", "log-1.txt")
    write_json(run.fault(1), {"process": 0, "host": "n1", "code": 1})
    assert first(run) == ("disk-full", "log.txt")


def test_workers_are_ordered_by_number(tmp_path: Path) -> None:
    logs = [""] * 11
    logs[2], logs[10] = MISSING, FULL
    assert first(attempted(tmp_path, *logs)) == ("no-module", "log-2.txt")


def test_a_rule_that_many_logs_match_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = attempted(tmp_path, FULL, PEER, PEER + FULL, PEER)
    (run.path / "journal.jsonl").write_text("")
    assert [(m["rule"], m["logs"]) for m in explain.run(run)] == [("disk-full", 2), ("peer-gone", 3)]
    assert app.main(["diagnose", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "log.txt and 1 other log)" in out and "log-1.txt and 2 other logs)" in out
    (run.attempt(1) / "log-2.txt").write_text("")
    app.main(["diagnose", str(run.path)])
    assert "log.txt)" in capsys.readouterr().out


def test_the_ending_of_an_attempt_is_the_cause_of_any_process(tmp_path: Path) -> None:
    run = attempted(tmp_path, PEER, "2026-11-21 10:00:09 " + FULL, "2026-11-21 10:00:08 " + MISSING)
    ended = outcome(run, 1, Polled(Process.ENDED, 1), False)
    assert ended.ending == "BAD_INPUT" and "'orbax'" in ended.detail
    ended = outcome(attempted(tmp_path / "b", PEER), 1, Polled(Process.ENDED, 1, who="process 0 on n1"), False)
    assert ended.ending == "CRASHED" and "another process of the run" not in ended.detail


def test_a_directory_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "10.log").write_text(FULL)
    (tmp_path / "w" / "9.log").write_text(PEER)
    (tmp_path / "worker-3").write_text(MISSING)
    (tmp_path / "old.log.1").write_text("CUDA out of memory\n")
    (tmp_path / "data.json").write_text("MemoryError\n")
    (tmp_path / ".hidden").write_text("MemoryError\n")
    assert app.main(["diagnose", str(tmp_path), "--json"]) == 0
    matches = json.loads(capsys.readouterr().out)["matches"]
    assert {m["rule"] for m in matches} == {"disk-full", "peer-gone", "no-module", "cuda-out-of-memory"}
    assert matches[-1]["rule"] == "peer-gone" and matches[-1]["file"] == str(tmp_path / "w" / "9.log")
    run = attempted(tmp_path / "runs", FULL)
    run.journal.write_text("")
    assert app.main(["diagnose", str(run.path.parent)]) == 2, "which of the runs is not said"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is a directory without logs"):
        explain.folder(tmp_path / "empty")


def zstd(content: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(content))


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a.log.gz", gzip.compress),
        ("a b.log", gzip.compress),
        ("a.log", lzma.compress),
        ("a.log", bz2.compress),
        ("a.log", zstd),
        ("a.log", lambda content: content.decode().encode("utf-16")),
        ("a.log", lambda content: b"\xfe\xff" + content.decode().encode("utf-16-be")),
    ],
)
def test_a_log_that_is_compressed_or_of_utf_16_is_read_as_its_text(
    tmp_path: Path, name: str, written: Callable[[bytes], bytes]
) -> None:
    text = ("step 1\n" * 300_000 + FULL).encode()
    path, plain = tmp_path / "logs" / name, tmp_path / "plain.log"
    path.parent.mkdir()
    path.write_bytes(written(text))
    plain.write_bytes(text)
    assert explain.file(path) == explain.file(plain) != []
    assert [r["rule"] for r in explain.folder(path.parent)] == [r["rule"] for r in explain.file(plain)]


def test_a_log_whose_packer_needs_a_package_that_is_not_installed_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.log").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(UserError, match=r"a\.log is compressed \(zstd\); type pip install zstandard"):
        explain.file(tmp_path / "a.log")


def test_a_compressed_log_is_read_as_far_as_it_is_whole_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path, content = tmp_path / "a.log.gz", gzip.compress((FULL + "x" * 100).encode())
    path.write_bytes(content[:-8])
    assert explain.file(path)
    path.write_bytes(content[:10] + b"\xff" * 100)
    with pytest.raises(UserError, match=f"^{path} is damaged: .*; give another copy of it$"):
        explain.file(path)


def test_a_disk_that_fails_under_a_compressed_log_is_no_damage_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: gzip.GzipFile, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a.log.gz").write_bytes(gzip.compress(FULL.encode()))
    monkeypatch.setattr(gzip.GzipFile, "read1", fail)
    with pytest.raises(OSError, match="Input/output error"):
        explain.file(tmp_path / "a.log.gz")


def test_a_log_that_grows_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path, stop = tmp_path / "log.txt", threading.Event()
    path.write_text("x\n" * 100_000 + FULL)

    def write() -> None:
        with path.open("a") as f:
            while not stop.is_set():
                f.write("x" * 1_000 + "\n")
                f.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert [match["rule"] for match in explain.file(path)] == ["disk-full"]
    finally:
        stop.set()
        writer.join()


def test_a_pipe_is_read_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("step 1\n" * 50_000 + FULL,))
    writer.start()
    assert app.main(["diagnose", str(tmp_path / "pipe"), "--json"]) == 0
    writer.join()
    assert json.loads(capsys.readouterr().out)["matches"][0]["rule"] == "disk-full"


def test_standard_input_may_hold_any_bytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = b"\xff\0" + b"x" * 3_000_000 + FULL.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert app.main(["diagnose", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["matches"][0]["rule"] == "disk-full"


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No such file .*no.log"):
        explain.file(tmp_path / "no.log")


def test_a_run_without_logs_says_whether_they_are_gone_or_not_written_yet(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "cats")
    run.path.mkdir()
    run.journal.write_text('{"event": "created"}\n')
    with pytest.raises(UserError, match="has no log"):
        explain.run(run)
    run.journal.write_text('{"event": "created"}\n{"event": "submitting"}\n')
    with pytest.raises(UserError, match="has no log"):
        explain.run(run)


def test_of_a_run_only_logs_are_searched(tmp_path: Path) -> None:
    run = attempted(tmp_path, PEER)
    (run.attempt(1) / "notes").write_text(FULL)
    (run.attempt(1) / "old.log.1").write_text(FULL)
    assert [match["rule"] for match in explain.run(run)] == ["peer-gone"]


def test_a_last_word_is_of_one_log(tmp_path: Path) -> None:
    run = attempted(tmp_path, "step 1\n")
    write_json(run.exit(1), {"ending": "BAD_INPUT", "detail": "no lines", "fix": "give lines"})
    (match,) = explain.run(run)
    assert (match["rule"], match["logs"], match["file"]) == ("last-word", 1, str(run.exit(1)))


OF_MAXTEXT = (
    "completed step: 3, seconds: 5.667, TFLOP/s/device: 400.0, Tokens/s/device: 900.0, total_weights: 65536, loss: 9.1",
    "Config param model_name: llama3.1-70b",
    'File "/deps/src/MaxText/train.py", line 500, in main',
    'File "/deps/src/maxtext/trainers/pre_train/train.py", line 500, in main',
    "python3 -m MaxText.train MaxText/configs/base.yml",
)
HBM_FULL = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm\n"


@pytest.mark.parametrize("line", OF_MAXTEXT)
def test_a_log_of_maxtext_gets_advice_with_the_keys_of_its_recipes(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.log").write_text(f"{line}\n{HBM_FULL}")
    (found,), (in_folder,) = explain.file(tmp_path / "a.log"), explain.folder(tmp_path)
    assert "arguments.per_device_batch_size" in found["remedy"] and found["remedy"] == in_folder["remedy"]
    assert "arguments." not in diagnosed([HBM_FULL])[0]["remedy"]


def test_of_several_logs_each_gets_advice_for_its_own_program(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{OF_MAXTEXT[0]}\nStopIteration\n")
    (tmp_path / "b.log").write_text(f"in /opt/maxtext/notes/train.py\n{HBM_FULL}")
    remedies = {match["rule"]: match["remedy"] for match in explain.folder(tmp_path)}
    assert "arguments.steps" in remedies["out-of-data"] and "arguments." not in remedies["hbm-out-of-memory"]


def test_whose_log_it_is_shows_in_its_first_bytes(tmp_path: Path) -> None:
    padding = "x\n" * (5 << 19)
    (tmp_path / "a.log").write_text(f"{padding}{OF_MAXTEXT[0]}\n{HBM_FULL}")
    assert "arguments." not in explain.file(tmp_path / "a.log")[0]["remedy"]


@pytest.mark.parametrize(
    "line",
    [
        "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "srun: fatal: --cpus-per-task, --tres-per-task=cpu:#, and --cpus-per-gpu are mutually exclusive",
    ],
)
def test_options_of_slurm_that_exclude_each_other_are_explained(tmp_path: Path, line: str) -> None:
    (tmp_path / "log").write_text(f"starting stage 2\n{line}\n")
    (match,) = explain.file(tmp_path / "log")
    assert match["rule"] == "slurm-options-exclude" and line.split(": ")[2].rstrip(".") in match["cause"]
    assert "unset SLURM_MEM_PER_CPU" in match["remedy"]
