"""The steps of a MaxText run as records of metrics.jsonl, read from the logs of its attempts as they grow.

A record has the number of the step that MaxText has, from 0. Where reading goes on is kept in a file beside the log; what that cannot
tell, because a launcher was killed between two writes, metrics.jsonl itself tells: no step of an attempt is written twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podwright.failures import timestamps
from podwright.rundir import Record, RunDir, append_jsonl, is_metric, read_jsonl, write_json
from podwright.watch.maxtext_lines import plain, step_line
from podwright.watch.step_table import HIDDEN

STAGE = "maxtext"
_BLOCK = 1 << 22


def follow(run: RunDir) -> None:
    """Bring the new steps of every attempt to metrics.jsonl, unless another process does it at the moment."""
    numbers = sorted(int(path.name) for path in run.path.glob("attempts/*") if path.name.isdigit())
    for number in numbers:
        state = run.attempt(number) / "metrics.json"
        if (log := run.log(number)).exists() and log.stat().st_size > _read(state).get("log", 0):
            with _locked(run.attempt(number) / "metrics.lock") as ours:
                if ours:
                    _follow(run, number, log, state)


def _follow(run: RunDir, attempt: int, log: Path, state: Path) -> None:
    position: int = _read(state).get("log", 0)
    known = _known(run, attempt, _read(state))
    for block in _complete_lines(log, position):
        for line in block.split(b"\n"):
            record = _record(line, attempt) if b"step: " in line else None
            if record and (record["step"] not in known or known[record["step"]] != record["loss"]):
                append_jsonl(run.metrics, record)
                known[record["step"]] = record["loss"]
        position += len(block)
        last = max(known, default=-1)
        write_json(state, {"log": position, "metrics": _size(run.metrics), "last": last, "loss": known.get(last)})


def _known(run: RunDir, attempt: int, state: Record) -> dict[int, Any]:
    """The loss of each step of the attempt that is written: of the last one alone, where nobody has written since."""
    if state.get("metrics") == _size(run.metrics):
        return {state["last"]: state["loss"]} if state["last"] >= 0 else {}
    records = (r for r in read_jsonl(run.metrics) if is_metric(r) and r["stage"] == STAGE)
    return {r["step"]: r.get("loss") for r in records if r.get("attempt") == attempt}


def _complete_lines(log: Path, position: int) -> Iterator[bytes]:
    """What the log has from `position` on, in pieces that end with a line."""
    with log.open("rb") as f:
        f.seek(position)
        rest = b""
        while block := f.read(_BLOCK):
            complete, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                yield complete + newline


def _record(line: bytes, attempt: int) -> Record | None:
    """Of a line that reports a step; None of another one."""
    line = plain(line)
    try:
        row = step_line(line.rstrip(b"\r"))
    except ValueError:
        return None
    stamp = timestamps.STAMP.search(line)
    time = timestamps.seconds(stamp) if stamp else None
    if row is None or time is None or row[1] & HIDDEN:
        return None
    step, _, seconds, tflops, tokens, _, loss = row
    figures = {"step_s": seconds, "tflops_per_device": tflops, "tokens_per_s_per_device": tokens}
    known = {name: value for name, value in figures.items() if math.isfinite(value)}
    whose = {"stage": STAGE, "step": step, "time": time, "attempt": attempt}
    return whose | known | {"loss": loss if math.isfinite(loss) else None}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(path: Path) -> Record:
    try:
        state = json.loads(path.read_text())
        return state if isinstance(state["log"], int) and isinstance(state["last"], int) else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
