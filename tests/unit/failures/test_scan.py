"""One pass over a log of any size: lines that tell of failures, whatever lies around them."""

import time
import tracemalloc
from calendar import timegm

import pytest

from podwright.failures import scan as module
from podwright.failures.scan import scan

OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."
FULL = b"OSError: [Errno 28] No space left on device"
STEP = b"step 12/1000 loss 0.31\n"


def rules(*blocks: bytes) -> list[str]:
    return [match.failure.row.name for match in scan(blocks)]


def test_lines_are_matched_across_blocks_of_any_size() -> None:
    text = STEP * 5 + OOM + b"\n" + STEP * 3 + FULL + b"\n" + STEP.replace(b"step", b"at")
    for size in (1, 7, 64, 10_000):
        matches = scan([text[i : i + size] for i in range(0, len(text), size)])
        assert [m.failure.row.name for m in matches] == ["disk-full"]  # memory was freed: steps went on
        assert text[matches[0].offset :].startswith(FULL) and matches[0].evidence == FULL.decode()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\0", b"\0\0"])
def test_lines_end_with_newlines_carriage_returns_and_nul_bytes(end: bytes) -> None:
    text = end.join([b" 1%| | 1/100 [00:10<01:13, 12.0it/s]", FULL, b"what follows"])
    (match,) = scan([text])
    assert match.evidence == FULL.decode() and match.offset == text.index(FULL)


@pytest.mark.parametrize("padding", [0, 1, 1_999, 2_000, 2_001, module.BLOCK, 3 * module.BLOCK - 20, 5 * module.BLOCK])
def test_a_line_without_an_end_is_searched_in_parts(padding: int) -> None:
    text = b"x" * padding + FULL + b"y" * padding
    blocks = [text[i : i + module.BLOCK] for i in range(0, len(text), module.BLOCK)]
    (match,) = scan(blocks)
    assert match.failure.row.name == "disk-full" and len(match.evidence) <= 300
    assert padding < 2_001 or match.evidence.startswith("…")


def test_the_edges_of_a_part_are_no_edges_of_a_line() -> None:
    """`^` and `$` of a pattern mean a line's."""
    long = b"x" * 3_000
    assert rules(b"NOT_FINITE: loss") == ["not-finite"] and rules(long + b"NOT_FINITE: loss") == []
    for width in range(1_900, 2_100):
        assert rules(b"x" * width + b"NOT_FINITE: loss") == []
    assert rules(b"task: Out Of Memory") == ["slurm-memory"]
    for width in range(1_900, 2_100):
        assert rules(b"task: Out Of Memory" + b" " + b"x" * width) == []


def test_bytes_that_are_no_text_hide_nothing() -> None:
    assert rules(b"\xff\xfe\xc3" + FULL + b"\xc3\n") == ["disk-full"]


def test_of_each_rule_the_first_line_is_evidence() -> None:
    (match,) = scan([FULL + b" 1\n" + FULL + b" 2\n"])
    assert match.evidence.endswith("1") and match.offset == 0


def test_a_line_belongs_to_the_first_rule_that_knows_it() -> None:
    text = b"user@gpu-1: Permission denied (publickey,password).\nOSError: Permission denied: '/data'\n"
    assert rules(text) == ["ssh-key", "no-permission"]
    assert rules(b"a: Permission denied (publickey).\nb: Permission denied (publickey).\n") == ["ssh-key"]


def test_progress_after_a_failure_that_may_pass_clears_it() -> None:
    assert rules(OOM + b"\n") == ["cuda-out-of-memory"]
    assert rules(OOM + b"\n" + STEP) == []
    assert rules(OOM + b"\n" + STEP + OOM + b" again\n") == ["cuda-out-of-memory"]
    assert rules(STEP + OOM + b"\n") == ["cuda-out-of-memory"]
    assert rules(FULL + b"\n" + STEP) == ["disk-full"]
    assert rules(FULL + b"\n" + OOM + b"\n" + STEP) == ["disk-full"]


@pytest.mark.parametrize(
    "line",
    [
        "completed step: 7, seconds: 3.1, TFLOP/s/device: 310.1, loss: 6.5",
        "{'loss': 0.31, 'epoch': 0.1}",
        " 12%|## | 120/1000 [00:10<01:13, 12.0it/s]",
        "iter 120: loss 3.1, time 120.1ms",
        "I1121 10:15:00.1 1 checkpointer.py:100] Finished async_save. Time taken: 1.2s",
        "Created tpu [node-1].",
        "done.",
    ],
)
def test_what_progress_looks_like(line: str) -> None:
    assert rules(OOM + b"\n" + line.encode() + b"\n") == []


@pytest.mark.parametrize("line", ["at step 12 it failed", "stepping", "not done. Try again", "the loss of step x"])
def test_what_is_no_progress(line: str) -> None:
    assert rules(OOM + b"\n" + line.encode() + b"\n") == ["cuda-out-of-memory"]


@pytest.mark.parametrize(
    "words", ["Retrying: ", "will retry: ", "retry in 5 s: ", "will be retried ", "backing off 3 s "]
)
def test_a_line_that_announces_another_try_is_no_failure(words: str) -> None:
    assert rules(words.encode() + OOM) == []
    assert rules(words.encode() + FULL) == ["disk-full"]


def utc(text: str) -> float:
    return float(timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2026-11-21 10:15:00,250 ERROR ", utc("2026-11-21 10:15:00") + 0.25),
        ("2026-11-21T10:15:00.5Z ", utc("2026-11-21 10:15:00") + 0.5),
        ("[2026-11-21T12:15:00+02:00] ", utc("2026-11-21 10:15:00")),
        ("2026-11-21 05:15:00-0500 ", utc("2026-11-21 10:15:00")),
        ("E0000 00:00:1763720100.125000    4242 client.cc:1] ", 1763720100.125),
        ("2026-13-41 10:15:00 ", None),
        ("99 bottles ", None),
    ],
)
def test_the_time_of_a_line(stamp: str, seconds: float | None) -> None:
    (match,) = scan([stamp.encode() + FULL + b"\n"])
    assert match.time == seconds


@pytest.mark.parametrize("stamp", ["E{:%m%d %H:%M:%S}.500000 4242 a.cc:1] ", "[E{:%m%d %H:%M:%S}.500000 a.cc:1] "])
def test_a_time_without_a_year_is_the_latest_such_day(stamp: str) -> None:
    from datetime import UTC, datetime, timedelta

    for days in (0, 1, 40, 300):
        day = (datetime.now(UTC) - timedelta(days=days)).replace(microsecond=0)
        (match,) = scan([stamp.format(day).encode() + FULL])
        assert match.time == day.timestamp() + 0.5
    day = (datetime.now(UTC) - timedelta(days=2)).replace(microsecond=0)
    (match,) = scan([f"{day:%b %e %H:%M:%S} node-1 kernel: ".encode() + FULL])
    assert match.time == day.timestamp()


def test_a_line_without_a_time_has_that_of_the_line_before_it() -> None:
    before, after = b"2026-11-21 10:15:00 a\n", b"2026-11-21 10:20:00 b\n"
    assert scan([before + b"Traceback\n" + FULL + b"\n" + after])[0].time == utc("2026-11-21 10:15:00")
    assert scan([FULL + b"\n" + after])[0].time == utc("2026-11-21 10:20:00")
    assert scan([before + b"x\n" * 9_000 + FULL + b"\n" + b"x\n" * 9_000 + after])[0].time is None
    assert scan([b"step 1\n" + FULL])[0].time is None


def test_a_time_is_remembered_across_blocks() -> None:
    assert scan([b"2026-11-21 10:15:00 a\n", b"Traceback\n", FULL + b"\n"])[0].time == utc("2026-11-21 10:15:00")


def test_nothing_is_in_an_empty_log() -> None:
    assert scan([]) == [] and scan([b""]) == [] and scan([b"\n\n\0\r"]) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "block", [b"step 1 of many\n" * 70_000, b"x" * module.BLOCK], ids=["lines", "a line without an end"]
)
def test_memory_does_not_grow_with_the_log(block: bytes) -> None:
    tracemalloc.start()
    try:
        assert scan(block for _ in range(30)) == []
        assert tracemalloc.get_traced_memory()[1] < 10 * module.BLOCK
    finally:
        tracemalloc.stop()
