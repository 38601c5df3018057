"""Which record files of a run are damaged: lines that are no records, and records that other files of the run show to be missing.

A line that a kill has cut short is damage too: what it said is lost.
"""

from __future__ import annotations

from podwright.errors import UserError
from podwright.recipe.load import fingerprint_of
from podwright.rundir import DEVICE_COLUMNS, Ending, RunDir, read_json, read_jsonl
from podwright.watch.metrics import Progress, Tail

_RESTORE = "restore it from a copy of the run"


def of_run(run: RunDir, progress: Progress, samples: Tail, ended: bool) -> list[str]:
    """A sentence for each damaged file. `progress` and `samples` have read to the end; `ended`: no line is being written any more."""
    reasons = {tail.path.name: tail.damage(ended) for tail in (progress.metrics, progress.events, samples)}
    finished_at = _finished_at(run, reasons)
    changed = changed_recipe(run)
    if (
        finished_at is not None
        and not changed  # its kind says which steps are those of the run
        and not reasons["metrics.jsonl"]
        and (last := progress.step_of(progress.main)) < finished_at
    ):
        reasons["metrics.jsonl"] = f"its last step is {last}, and the run finished at step {finished_at}"
    reasons |= _unreadable(run, ended)
    tested = {str(e.get("when")) for e in progress.evaluations}
    lacking = [when for when in ("before", "after") if run.flags(when).exists() and when not in tested]
    if finished_at is not None and not reasons["events.jsonl"] and lacking:
        reasons["events.jsonl"] = f"it lacks the evaluation of which evaluations/{lacking[0]}.json has the answers"
    sentences = [
        f"{run.path / name} is damaged ({reason}), so figures of this run may be missing: {_RESTORE}"
        for name, reason in reasons.items()
        if reason
    ]
    if changed:
        sentences.insert(0, f"{changed}, so the report may not describe what was trained: {_RESTORE}")
    try:
        _ = run.kept
    except UserError as e:
        sentences.append(str(e))
    return sentences


def require_recipe(run: RunDir) -> None:
    """UserError where the recipe is not the one that the run began with: one run would be trained by two recipes."""
    if changed := changed_recipe(run):
        raise UserError(changed, f"{_RESTORE}, or start a run of it: type {run.train_again}", "recipe-changed")


def changed_recipe(run: RunDir) -> str:
    """That recipe.json is not as the journal says it was at the start; "" where it is, and where one of both cannot be read."""
    created = next((event for event in read_jsonl(run.journal) if event.get("event") == "created"), {})
    recipe = read_json(run.recipe)
    if not recipe:
        return ""
    now = fingerprint_of(recipe)
    begun = created.get("fingerprint", now)
    return "" if now == begun else f"{run.recipe} was changed since the run began (fingerprint {now}, then {begun})"


def _unreadable(run: RunDir, ended: bool) -> dict[str, str]:
    """Reasons for the files that are read as a unit: answers of evaluations, samples of devices."""
    reasons = {}
    for path in sorted(run.path.glob("evaluations/*.json")):
        if run.read_flags(path.stem) is None:
            reasons[path.relative_to(run.path).as_posix()] = "it is no list of true and false"
    for path in sorted(run.path.glob("attempts/*/devices-*.csv")):
        lines = path.read_bytes().splitlines()
        finished = lines if ended else lines[:-1]  # the last one may be half written
        wrong = sum(line.count(b",") != len(DEVICE_COLUMNS) - 1 for line in finished)
        if lines and lines[0] != ",".join(DEVICE_COLUMNS).encode():
            wrong = max(wrong, 1)
        if wrong:
            reasons[path.relative_to(run.path).as_posix()] = f"lines that cannot be read: {wrong} of {len(lines)}"
    return reasons


def _finished_at(run: RunDir, reasons: dict[str, str]) -> int | None:
    """The step at which an attempt finished the run; None where none has. An exit.json that cannot be read is added to `reasons`."""
    step: int | None = None
    for path in sorted(run.path.glob("attempts/*/exit.json")):
        record = read_json(path)
        if "ending" not in record:
            reasons[path.relative_to(run.path).as_posix()] = "it cannot be read"
        elif record["ending"] == Ending.FINISHED and isinstance(record.get("step"), int):
            step = record["step"]
    return step
