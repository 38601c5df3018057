"""The lines of a log are kept once each, whatever is cut, repeated or out of order."""

import random
from pathlib import Path

import pytest

from podwright.targets.gke.log_lines import KeptLog, PrefixedLines, earlier, in_batches

PLACES = {(b"job-0", b"jax-tpu"): 0, (b"job-1", b"jax-tpu"): 1}


def line(seconds: float, text: str = "step") -> bytes:
    whole, fraction = divmod(round(seconds * 1e9), 10**9)
    return f"2026-11-23T07:{whole // 60:02}:{whole % 60:02}.{fraction:09}Z {text}".encode()


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def test_repeated_lines_are_kept_once_and_equal_ones_at_other_times_are_kept(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "attempts/1/log.txt")
    first = [line(1, "a"), line(1.000000001, "a"), line(2, "b")]
    assert log.add(first) == 3
    assert log.add([*first[1:], line(3, "c")]) == 1
    assert lines_of(log.path) == [*first, line(3, "c")]
    assert log.last == line(3)[:30]


def test_another_process_goes_on_by_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    first, second = KeptLog(path), KeptLog(path)
    first.add([line(1), line(2)])
    assert second.add([line(2), line(3)]) == 1
    assert first.add([line(2), line(3), line(4)]) == 1
    assert lines_of(path) == [line(n) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("cut", [1, 20, 36])
def test_a_line_that_a_kill_cut_off_is_requested_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.txt"
    text = line(1, "step 1") + b"\n" + line(2, "step 2") + b"\n"
    path.write_bytes(text[:-cut])
    log = KeptLog(path)
    assert log.last == line(1)[:30]
    assert log.add([line(1, "step 1"), line(2, "step 2")]) == 1
    assert path.read_bytes() == text


def test_stamps_of_two_streams_of_a_container_may_be_out_of_order(tmp_path: Path) -> None:
    log = KeptLog(tmp_path / "log.txt")
    log.add([line(1.5, "stderr")])
    assert log.add([line(1.5, "stderr"), line(1.4999, "stdout")]) == 1


def test_a_long_log_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podwright.targets.gke.log_lines._END_BYTES", 200)
    path = tmp_path / "log.txt"
    every = [line(n) for n in range(1, 60)]
    path.write_bytes(b"\n".join(every) + b"\n")
    assert KeptLog(path).add([*every[-3:], line(60)]) == 1


def test_what_is_brought_in_pieces_is_the_log(tmp_path: Path) -> None:
    """Requests since a full second, cut anywhere, by processes that come and go: no line is lost and none is there twice."""
    rng = random.Random(0)
    every, at = list[bytes](), 0.0
    for n in range(3000):
        at += rng.choice([0.000000001, 0.0001, 0.01, 0.5])
        every.append(line(at + rng.choice([0, 0.00001]), f"line {n % 7}"))
    path, log = tmp_path / "log.txt", KeptLog(tmp_path / "log.txt")
    seen = 0
    while len(lines_of(path) if path.exists() else []) < len(every):
        seen = min(len(every), seen + rng.randrange(200))
        since = earlier(log.last, 1)
        answer = b"".join(text + b"\n" for text in every[:seen] if text[:30] >= since)
        blocks = [answer[: rng.randrange(len(answer) + 1)] if rng.random() < 0.5 else answer]
        for lines, _ in in_batches(blocks):
            log.add(lines)
        if rng.random() < 0.2:
            log = KeptLog(path)
    assert lines_of(path) == every


def prefixed(pod: str, text: bytes) -> bytes:
    return f"[pod/{pod}/jax-tpu] ".encode() + text


def test_lines_are_told_apart_by_pod() -> None:
    lines = [prefixed("job-1", line(1, "a")), prefixed("job-0", line(1, "b")), prefixed("job-7", line(1, "c")), b"what"]
    assert PrefixedLines().sorted(lines, PLACES) == {1: [line(1, "a")], 0: [line(1, "b")]}


@pytest.mark.parametrize("cut", [0, 5, 28, 31, 35])
def test_a_line_that_is_cut_is_left_out_and_the_next_pod_is_read_behind_it(cut: int) -> None:
    for other in ("job-1", "job-9"):
        glued = prefixed("job-0", line(1, "step 1")[:cut]) + prefixed(other, line(2, "b"))
        assert PrefixedLines().sorted([glued], PLACES) == ({1: [line(2, "b")]} if other == "job-1" else {})


def test_a_line_with_an_error_of_kubectl_at_its_end_counts_when_it_is_there_again() -> None:
    reader = PrefixedLines()
    cut, own = (
        prefixed("job-1", line(1, "ste") + b"error: unexpected EOF"),
        prefixed("job-0", line(2, "error: x: i/o timeout")),
    )
    assert reader.sorted([cut, own], PLACES) == {}
    assert "i/o timeout" in reader.failure() and not reader.failure()
    assert reader.sorted([prefixed("job-1", line(1, "step")), own], PLACES) == {
        1: [line(1, "step")],
        0: [line(2, "error: x: i/o timeout")],
    }
    assert not reader.failure()


def test_a_container_without_a_log_is_no_failure() -> None:
    reader = PrefixedLines()
    reader.sorted([b'error: container "jax-tpu" in pod "job-1" is waiting to start: ContainerCreating'], PLACES)
    assert not reader.failure()
    reader.sorted([b'error: Get "https://10.0.0.1/api": dial tcp: connection refused'], PLACES)
    assert "connection refused" in reader.failure()
