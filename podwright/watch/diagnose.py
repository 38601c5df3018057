"""How an attempt ended: by what the trainer wrote last, else by how its process died and what the log says."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from podwright.recipe import kinds
from podwright.recipe.advice import kind_of, of_run
from podwright.rundir import Ending, RunDir, full_disk, read_events, read_json
from podwright.targets.base import Polled, Process

_TAIL_BYTES = 16_384
_LEAVING_S = 10.0  # that a trainer may take to leave once it has written how it ended
_LEFT = "not all of its processes have"
_SCHEDULER = ("srun: ", "slurmstepd")  # it only tells that it ends what is left


@dataclass(frozen=True)
class AttemptOutcome:
    ending: Ending
    detail: str
    fix: str = ""
    step: int | None = None


def outcome(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome:
    """The trainer's own last word counts, unless it only tells what the machines did to it."""
    written = _written(run, attempt, polled, stop_wanted) or _by_the_log(run, attempt, polled, stop_wanted)
    if polled.ending is None or polled.inferred:
        return written or _dead(run, attempt, polled, stop_wanted)
    if written is None:
        return AttemptOutcome(polled.ending, polled.detail, polled.fix)
    follows = _follows(written.ending, stop_wanted)
    return replace(written, ending=polled.ending, detail=polled.detail, fix=polled.fix) if follows else written


def with_end(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> Polled:
    """What its target says of an attempt; of one whose trainer has ended although it still seems to run, with how, and what is waited for."""
    unreachable = polled.waiting.startswith("Unreachable:")
    if polled.process is not Process.RUNNING or (polled.waiting and not unreachable):
        return polled
    if written := _written(run, attempt, polled, stop_wanted):
        path = run.exit(attempt)
        if path.exists() and 0 <= time.time() - path.stat().st_mtime < _LEAVING_S:
            return polled
        how = f"{written.ending}: {written.detail}"
    elif polled.who:
        how = f"{polled.who}: {_how(polled.returncode)}"
    elif polled.failed_hosts:
        how = f"host {polled.failed_hosts[0]} failed"
    else:
        return polled
    known = f"the trainer has ended ({how})"
    if unreachable:
        return replace(polled, waiting=f"{polled.waiting}; {known}")
    return replace(polled, waiting=f"Ending: {known}; {polled.detail or _LEFT}")


def _by_the_log(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome | None:
    """Of a kind of recipe whose trainer writes no exit.json."""
    kind = kinds.KINDS.get(kind_of(run.recipe))
    if kind is None or not kind.outcome:
        return None
    seen: AttemptOutcome | None = kinds.resolve(kind.outcome)(run, attempt, polled, stop_wanted)
    return seen


def _follows(ending: str, stop_wanted: bool) -> bool:
    """Whether it may be what a trainer makes of the loss of others, or of being told to leave for it."""
    return ending == Ending.CRASHED or (ending == Ending.STOPPED and not stop_wanted)


def _written(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome | None:
    """Of another process that ended first its own word; what the first one then said of it counts for nothing."""
    path = run.exit(attempt)
    record = read_json(path) if path.exists() else run.fault_elsewhere(attempt) or {}
    try:
        if (polled.first or _killed(polled)) and _follows(record.get("ending", Ending.CRASHED), stop_wanted):
            record = read_json(run.exit(attempt, polled.first))
            record["detail"] += f" ({polled.who})"
        return AttemptOutcome(Ending(record["ending"]), record["detail"], record.get("fix", ""), record.get("step"))
    except (ValueError, KeyError, TypeError):
        return None


def _killed(polled: Polled) -> bool:
    """Whether a process that is known was killed by a signal, and not by itself: what is left says what it saw of that."""
    return bool(polled.who) and (polled.returncode or 0) < 0 and polled.returncode != -signal.SIGABRT


def _dead(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome:
    """An attempt whose trainer wrote no exit.json."""
    from podwright.failures.scan import scan
    from podwright.watch import explain  # its table takes longer to load than most verbs do

    returncode = polled.returncode
    tails = _log_tails(run, attempt)
    log = b"\n".join(tails.values()).decode(errors="replace")
    of_trainer = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(_SCHEDULER)]
    last = of_trainer[-1] if of_trainer else ""
    how = f"{polled.who}: {_how(returncode)}" if polled.who else _how(returncode)
    if stop_wanted and returncode in (None, -signal.SIGTERM, -signal.SIGKILL):
        begun = any(tails.values()) or any(e.get("attempt") == attempt for e in read_events(run.events))
        what = f"stopped before the trainer could save ({how})" if begun else "stopped before it had logged anything"
        return AttemptOutcome(Ending.STOPPED, what)
    keys = of_run(run)
    full = full_disk(run.path)
    logs = explain.sources(run, attempt, tails)
    matches = [(source, match) for source in logs for match in scan([tails[source.path]])]
    for match in explain.ranked(matches, bool(polled.who or full))[:1]:
        explained = explain.typed(match, run)
        detail = f"{explained['cause']}: {explained['evidence']} ({how})"
        if full and explained["rule"] == "disk-full":
            detail += f"; the disk of the run is full: {full}"
        return AttemptOutcome(Ending(explained["ending"]), detail, explained["remedy"])
    if full and returncode != 0:
        fix = f"free some space there (checkpoints of old runs), then type podwright resume {run.typed}"
        return AttemptOutcome(Ending.CRASHED, f"the disk of the run is full: {full} ({how})", fix)
    if returncode == -signal.SIGKILL:
        return AttemptOutcome(
            Ending.UNKNOWN,
            f"{how}: by a person, or by the kernel when memory ran out",
            f"if `dmesg` says oom-kill, {keys.host_memory}",
        )
    if polled.ending and "Traceback" not in log:
        return AttemptOutcome(polled.ending, polled.detail, polled.fix)
    if returncode is None and "Traceback" not in log:
        return AttemptOutcome(
            Ending.UNKNOWN,
            f"the trainer ended without a word; its log ends with: {last}" if last else "the trainer left no sign",
        )
    return AttemptOutcome(Ending.CRASHED, f"{last or 'no output'} ({how})")


def _how(returncode: int | None) -> str:
    if returncode is None:
        return "exit code not known"
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _log_tails(run: RunDir, attempt: int) -> dict[Path, bytes]:
    """Of every process, the first one last."""
    first = run.log(attempt)
    return {path: _tail(path) for path in (*sorted(first.parent.glob("log-*.txt")), first) if path.exists()}


def _tail(path: Path) -> bytes:
    with path.open("rb") as f:
        f.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return f.read()
