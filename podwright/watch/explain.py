"""`podwright diagnose`: which known failures the logs of a run, or any log, tell of, the likeliest cause first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from podwright.errors import UserError
from podwright.recipe.advice import GENERAL, RecipeAdvice, of_run
from podwright.rundir import Ending, Record, RunDir, read_jsonl, recipe_of
from podwright.watch.rules import RULES, Rule

_LINE = 2_000  # characters of a line that are looked at
_SHOWN = 300


def lines(text: Iterable[str], only_causes: bool = False, keys: RecipeAdvice = GENERAL) -> list[Record]:
    """One match for each rule that a line meets, with the first such line as evidence: causes before what follows from them (or alone),
    each in the order in which they were said. `keys`: what a remedy names of the recipe."""
    matches: dict[str, tuple[Rule, str]] = {}
    for line in text:
        rule = next((r for r in RULES if r.pattern.search(line[:_LINE])), None)
        if rule is not None and rule.name not in matches and not (only_causes and rule.follows):
            matches[rule.name] = (rule, line.strip()[:_SHOWN])
    ranked = sorted(matches.values(), key=lambda match: match[0].follows)
    return [
        {
            "rule": rule.name,
            "ending": str(rule.ending),
            "cause": rule.cause,
            "remedy": keys.filled(rule.remedy),
            "evidence": evidence,
        }
        for rule, evidence in ranked
    ]


def file(path: Path, keys: RecipeAdvice = GENERAL) -> list[Record]:
    """Of a log on disk, however large and whatever bytes it holds."""
    try:
        with path.open(errors="replace") as f:
            return lines(f, keys=keys)
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror})", "give a log file, or the name of a run") from e


def run(run: RunDir) -> list[Record]:
    """Of all that the last attempt wrote down, each match with the file that it stands in."""
    attempts = sorted(int(p.name) for p in (run.path / "attempts").glob("*") if p.name.isdigit())
    if not attempts and any(e.get("event") == "submitting" for e in read_jsonl(run.journal)):
        what = f"the logs of run {run.name} are gone: {run.path / 'attempts'} has no attempt"
        raise UserError(what, "restore attempts/ from a copy of the run")
    if not attempts:
        raise UserError(f"{run.name} has not started yet: there is no log", f"type podwright watch {run.typed}")
    newest, keys = run.attempt(attempts[-1]), of_run(run.recipe)
    matches = [
        match | {"file": str(path)} for path in sorted(newest.rglob("*")) if _is_log(path) for match in file(path, keys)
    ]
    if not matches:
        matches = _last_word(run, attempts[-1])
        if not matches and run.recipe.exists():
            recipe_of(run)  # a damaged one is a fault of its own
        return matches
    follows = {rule.name: rule.follows for rule in RULES}
    return [typed(match, run) for match in sorted(matches, key=lambda match: follows[match["rule"]])]


def _last_word(run: RunDir, attempt: int) -> list[Record]:
    """What the trainer itself wrote of its end, where that was no good one."""
    path = run.exit(attempt)
    try:
        own: Record = (json.loads(path.read_text()) if path.exists() else run.fault_elsewhere(attempt)) or {}
        ending, cause = Ending(own["ending"]), str(own["detail"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    if ending == Ending.FINISHED:
        return []
    remedy = own.get("fix") or f"read the end of its log: podwright logs {run.typed}"
    record = {"rule": "last-word", "ending": str(ending), "cause": cause, "remedy": remedy}
    return [record | {"evidence": f"{ending}: {cause}", "file": str(path)}]


def typed(match: Record, run: RunDir) -> Record:
    """With what to type for this run."""
    return match | {"remedy": re.sub(r"\bRUN\b", run.typed, match["remedy"])}


def _is_log(path: Path) -> bool:
    return path.is_file() and path.suffix in (".txt", ".log", ".out", ".err")
