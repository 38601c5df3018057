"""Find runs, and give the status of each as a record. Changes no run, except that it brings what is new in its storage."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from podwright import targets
from podwright.errors import UserError, expanded, nearest
from podwright.recipe.advice import of_run
from podwright.run import cost, journal, mirror, silence
from podwright.run.allocations import AllocationRecord
from podwright.run.attended import is_attended
from podwright.run.decide import Observed, machines_away, retries
from podwright.run.finish import bring_steps
from podwright.run.journal import RunState
from podwright.run.states import ENDINGS, AllocationPhase, Phase, advice
from podwright.run.waiting import DELETING, RELEASING, reason
from podwright.rundir import Ending, Record, RunDir, read_jsonl, recipe_of
from podwright.targets.base import Handle, MissingProgram, Polled, PollsTogether, Process
from podwright.targets.machines import GONE, Allocation, AllocationState
from podwright.targets.polling import Poller
from podwright.watch import damage, logs
from podwright.watch.diagnose import outcome, with_end
from podwright.watch.metrics import Progress, samples_of

_COLUMNS = [
    "name",
    "recipe",
    "target",
    "state",
    "ending",
    "status",
    "detail",
    "fix",
    "stage",
    "step",
    "max_steps",
    "attempt",
    "created",
    "allocation",
    "usage",
    "run_dir",
    "report",
    "damaged",
    "unattended",
    "cleanup",
]


@dataclass
class Answers:
    """What a target and its cloud have told of a run in this look."""

    polled: Polled | None = None
    cloud: Allocation | None = None


def find(runs: Path, name: str, or_log: bool = False) -> RunDir:
    """The run called `name` in `runs`; the path of a run directory is taken too, and the URL of a run that is kept in a storage,
    which is brought to `runs` first. `or_log`: a log file would have done too."""
    if "://" in name or mirror.is_storage(Path(name)):
        return mirror.fetch(name, runs)
    for path in (runs / name, expanded(name)):
        if (path / "journal.jsonl").exists():
            return RunDir(path)
        if all((path / part).is_file() for part in ("recipe.json", "plan.json")):
            what = f"{path / 'journal.jsonl'} is missing: the state of the run is lost"
            fix = "restore the file from a copy, or start the run again under another name"
            raise UserError(what, fix, "damaged-file")
    known = [run.name for run in run_dirs(runs)]
    guess = nearest(name, known)
    what = (
        f"there is no file {name!r}, and no run of that name in {runs}"
        if or_log
        else f"there is no run {name!r} in {runs}"
    )
    fix = f"did you mean {guess}?" if guess else "`podwright list` shows all, --runs DIR looks elsewhere"
    raise UserError(what, fix, "no-such-run")


def log(run: RunDir, follow: bool, process: int = 0) -> Iterator[str]:
    """The log of a process of the newest attempt in pieces; with `follow`, until it has ended. Of a run that is only observed, what
    the process left in the storage when it ended."""
    state = journal.read(run)
    if not state.handle:
        raise UserError(
            f"run {run.name} has no log: nothing was started yet",
            f"`podwright resume {run.typed}` starts it",
            "no-log-yet",
        )
    if only_observed(run):
        return _or_why(run, iter([run.log_since(state.attempt, 0, process)[0]]))
    return _or_why(run, logs.read(targets.of_handle(state.handle), state.handle, follow, process))


def _or_why(run: RunDir, pieces: Iterator[str]) -> Iterator[str]:
    """UserError where nothing was logged, and why."""
    empty = True
    for text in pieces:
        empty = empty and not text
        yield text
    if empty:
        state = journal.read(run)
        phase, ending, detail, fix = _standing_of(run, state)
        verb, standing = ("diagnose", f"ended {ending}") if ending else ("watch", f"is {phase}")
        what = f"attempt {state.attempt} of run {run.name} has logged nothing: it {standing}"
        raise UserError(
            f"{what} ({detail})" if detail else what, fix or f"type podwright {verb} {run.typed}", "no-log-yet"
        )


def run_dirs(runs: Path) -> list[RunDir]:
    if not runs.is_dir():
        if os.path.lexists(runs):
            raise UserError(
                f"--runs {runs} is not a directory", "type --runs with the directory of your runs", "not-a-folder"
            )
        return []
    return [
        RunDir(path.parent) for path in sorted(runs.glob("*/journal.jsonl")) if not path.parent.name.startswith(".")
    ]


def rows(runs: Path) -> list[dict[str, Any]]:
    """Every run of `runs`, oldest first. UserError for a file; a directory that is not there has none yet."""
    folders = run_dirs(runs)
    known = _asked_together(folders)
    return sorted((_row_or_fault(run, known) for run in folders), key=lambda r: (r["created"], r["name"]))


def living(runs: Path, target: str) -> RunDir | None:
    """A run of `target` in `runs` that has not ended; None where all have. It asks the machines of that target alone."""
    for run in run_dirs(runs):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            if journal.read(run).target == target and _row_or_fault(run, None)["state"] != str(Phase.ENDED):
                return run
    return None


def _row_or_fault(run: RunDir, known: Mapping[tuple[Path, int], Polled] | None) -> dict[str, Any]:
    """One damaged directory does not hide the other runs."""
    try:
        return row(run, known)
    except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        return {
            **dict.fromkeys(_COLUMNS),
            "damaged": [],
            "unattended": "",
            "cleanup": "",
            "name": run.name,
            "state": "unreadable",
            "detail": str(e),
            "created": 0.0,
            "run_dir": str(run.path),
        }


def row(
    run: RunDir, known: Mapping[tuple[Path, int], Polled] | None = None, recipe: Record | None = None
) -> dict[str, Any]:
    """`known`: by directory and attempt, what targets have told already. `recipe`: where it is not to be read again."""
    state = journal.read(run)
    if not state.reported:
        mirror.look(run)  # what stands in the way does not matter here: the rest is shown
        state = journal.read(run)
    recipe = recipe or recipe_of(run)
    answers = Answers((known or {}).get((run.path, state.attempt)))
    standing = _standing(run, state, answers)  # first: asking brings what is new from hosts that share no disk
    bring_steps(run, recipe["kind"])
    progress, samples = Progress(run, recipe), samples_of(run)
    progress.update()
    samples.new()
    events = [*map(journal.dated, read_jsonl(run.journal)), *_unseen(state, answers.cloud)]
    return {
        "name": run.name,
        "recipe": state.recipe,
        "target": state.target,
        **standing,
        "stage": progress.stage,
        "step": progress.step_of(progress.main),
        "max_steps": progress.total(progress.main),
        "attempt": state.attempt,
        "created": state.created,
        "allocation": _allocation(state.allocation),
        "usage": cost.as_json(cost.usage(events, journal.now())),
        "run_dir": str(run.path),
        "report": str(page) if (page := run.report / "report.html").exists() else None,
        "damaged": damage.of_run(run, progress, samples, standing["ending"] is not None),
        "unattended": _unattended(run, state),
        "cleanup": _cleanup(state),
    }


def _unseen(state: RunState, cloud: Allocation | None) -> Iterator[Record]:
    """Events of machines that cost since no launcher follows the run, as the next one will write them."""
    record = state.allocation
    if record is None or cloud is None:
        return
    event = {"allocation": record.number, "time": journal.now()}
    if cloud.charged not in (None, record.charged):
        yield event | {"event": "allocation charged", **asdict(cloud.charged)}
    if cloud.state is AllocationState.READY and record.phase is AllocationPhase.REQUESTED:
        yield event | {"event": "allocation ready", "since": cloud.since}


def _cleanup(state: RunState) -> str:
    """What of a run that has ended is not deleted yet, and why, as `Reason: what it means`."""
    text = reason(state, Observed(Process.ENDED), "", journal.now()) if state.phase is Phase.ENDED else ""
    return text if text.startswith((RELEASING, DELETING)) else ""


def _unattended(run: RunDir, state: RunState) -> str:
    """What to type where a run needs a launcher, and none follows it; else ""."""
    record = state.allocation
    machines = record is not None and record.phase is not AllocationPhase.GONE
    needed, verb = True, "resume"
    if state.phase is Phase.RUNNING:
        needed = machines  # somebody has to delete them once it has ended
    elif state.phase is Phase.STOPPING:
        verb = "stop"
    elif state.phase is Phase.ENDED and not retries(state):
        needed = machines or not state.report_final or not (state.released or machines_away(state))
        verb = "stop"
    if not needed or only_observed(run) or is_attended(run):
        return ""
    return f"no launcher follows run {run.name}; type podwright {verb} {run.typed}"


def _allocation(record: AllocationRecord | None) -> dict[str, Any] | None:
    """The newest allocation by the journal; None where machines need no request."""
    if record is None:
        return None
    where = {"name": record.request.name, "zone": record.request.zone, "number": record.number}
    return {**where, "state": str(record.phase), "since": record.since, "reason": record.reason}


def _machines(run: RunDir, state: RunState, polled: Polled, answers: Answers) -> str:
    """Why a run waits for the machines that it has requested, as the cloud tells now, or for an attempt on them."""
    cloud, silence_s, record = GONE, math.inf, state.allocation
    if record and record.may_exist:
        poller = Poller(targets.of_handle(record.target))
        cloud = poller.describe(record.request, record.ready_since)
        silence_s = poller.target.traits.silence_s
        answers.cloud = cloud
    silent_s = max(1.0, silence.known_s(run, state.attempt)) if polled.silent else 0.0
    seen = Observed(polled.process, cloud, silent_s=silent_s, unheard_s=0.0 if polled.barred else silent_s)
    return reason(state, seen, polled.waiting, journal.now(), silence_s=silence_s, typed=run.typed)


def _standing(run: RunDir, state: RunState, answers: Answers) -> dict[str, Any]:
    """State and ending. A run that is only observed is as its journal says: its machines are another launcher's affair."""
    phase, ending, detail, fix = _standing_of(run, state, answers)
    return {
        "state": str(phase),
        "ending": str(ending) if ending else None,
        "status": ENDINGS[ending].status if ending else str(phase),
        "detail": detail,
        "fix": advice(ending, fix, run.typed, of_run(run)) if ending else fix,
    }


def _standing_of(run: RunDir, state: RunState, answers: Answers | None = None) -> tuple[str, Ending | None, str, str]:
    """Phase, ending, detail and fix; by the journal alone where nothing may be done about the run from here. A run whose target cannot be
    asked now (this machine lacks a program) has not changed by that."""
    if only_observed(run):
        return _by_the_journal(state)
    try:
        return _now(run, state, answers or Answers())
    except MissingProgram as e:
        return _by_the_journal(state) if state.phase is Phase.ENDED else ("waiting", None, f"NoProgram: {e}", e.fix)


def only_observed(run: RunDir) -> bool:
    """Whether nothing may be done about the run from here; so too where its damaged storage.json does not tell."""
    try:
        return mirror.observes(run)
    except UserError:
        return True


def _by_the_journal(state: RunState) -> tuple[str, Ending | None, str, str]:
    """Phase, ending, detail and fix. What an attempt ended with is not the ending of a run that goes on."""
    if state.phase is not Phase.ENDED:
        return state.phase, None, "", ""
    return state.phase, state.ending, state.detail, state.fix


def _may_run(state: RunState) -> bool:
    """Whether the journal knows of an attempt and not of its end."""
    return state.phase in (Phase.RUNNING, Phase.STOPPING) and state.attempt > state.ended_attempt


def _asked_together(runs: Sequence[RunDir]) -> dict[tuple[Path, int], Polled]:
    """By directory and attempt, what is known of attempts on targets that tell of several in one answer."""
    attempts: dict[str, list[tuple[tuple[Path, int], Handle]]] = {}
    for run in runs:
        with contextlib.suppress(UserError, OSError):
            state = journal.read(run)
            if state.handle and _may_run(state) and not only_observed(run):
                identity = json.dumps([state.handle.get(key) for key in ("target", "kind", "settings")], sort_keys=True)
                attempts.setdefault(identity, []).append(((run.path, state.attempt), state.handle))
    known: dict[tuple[Path, int], Polled] = {}
    for of_target in attempts.values():
        keys, handles = zip(*of_target, strict=True)
        with contextlib.suppress(UserError, OSError):  # the row of each says so
            if isinstance(target := targets.of_handle(handles[0]), PollsTogether):
                known |= zip(keys, target.poll_all(handles), strict=True)
    return known


def _now(run: RunDir, state: RunState, answers: Answers) -> tuple[str, Ending | None, str, str]:
    """The same, of a trainer that died while nobody followed it, as the next launcher will find it."""
    _, ending, detail, fix = _by_the_journal(state)
    phase: str = state.phase
    record = state.allocation
    if state.phase is Phase.READY and record and record.phase is not AllocationPhase.GONE:
        phase, detail = "waiting", _machines(run, state, Polled(Process.ABSENT), answers)
    elif state.phase is Phase.READY and state.capacity.refusals:
        phase, detail = "waiting", reason(state, Observed(Process.ABSENT), "", journal.now())
    if state.handle and _may_run(state):
        polled = answers.polled or targets.of_handle(state.handle).poll(state.handle)
        polled = with_end(run, state.attempt, polled, state.stop_wanted)
        if polled.silent:
            phase, detail, fix = "waiting", _machines(run, state, polled, answers), polled.fix
        elif polled.waiting:
            phase, detail, fix = "waiting", polled.waiting, polled.fix
        elif polled.process is not Process.RUNNING:
            seen = outcome(run, state.attempt, polled, state.stop_wanted)
            phase, ending, detail, fix = Phase.ENDED, seen.ending, seen.detail, seen.fix
    return phase, ending, detail, fix
