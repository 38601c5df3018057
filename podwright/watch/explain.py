"""`podwright diagnose`: which known failures the logs of a run, or any logs, tell of, the likeliest cause first."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from podwright.counted_steps import read_steps
from podwright.errors import UserError
from podwright.failures.match import Role
from podwright.failures.scan import LogMatch, scan
from podwright.recipe import even_groups
from podwright.recipe.advice import GENERAL, RecipeAdvice, of_kind, of_run
from podwright.rundir import Ending, Record, RunDir, read_json, recipe_of
from podwright.watch import log_files

_OF_MAXTEXT = (
    b"completed step: ",
    b"Config param ",
    b"/MaxText/train",
    b"/maxtext/trainers/",
    b"MaxText.train",
    b"maxtext.trainers",
)
_SUFFIXES = {".txt", ".log", ".out", ".err"}


@dataclass(frozen=True)
class LogSource:
    """A log, and what is known of the process that wrote it."""

    path: Path
    number: int = 0
    ended_s: float | None = None
    """when its process wrote down its end, in seconds since 1970"""
    failed_first: bool = False
    keys: RecipeAdvice = GENERAL
    """what a remedy names of the recipe"""


Sourced = tuple[LogSource, LogMatch]


def _scanned(blocks: Iterable[bytes]) -> tuple[RecipeAdvice, list[LogMatch]]:
    """The matches of a log, and whose it is by its first block: MaxText takes other keys than Podwright's own trainers."""
    rest = iter(blocks)
    head = next(rest, b"")
    keys = of_kind("maxtext") if any(word in head for word in _OF_MAXTEXT) else GENERAL
    return keys, scan(itertools.chain([head], rest))


def stream(blocks: Iterable[bytes], keys: RecipeAdvice | None = None) -> list[Record]:
    """One record for each row of the table of failures that a line of a log matches, with the first such line as evidence: causes before what follows
    from them. The blocks may have any size. `keys`: what a remedy names of the recipe; None: by whose log it is."""
    own_keys, matches = _scanned(blocks)
    source = LogSource(Path(), keys=keys or own_keys)
    records = ranked((source, match) for match in matches)
    for record in records:
        del record["file"], record["logs"]
    return records


def file(path: Path) -> list[Record]:
    """`stream` of a log on disk, however large, compressed or not, and whatever bytes it holds."""
    return stream(log_files.blocks(path))


def folder(path: Path) -> list[Record]:
    """Of all logs below a directory, each record with the `file` of its evidence, and with the number of `logs` that match its rule.
    UserError where there are none, and for one that cannot be read."""
    paths = sorted((p for p in path.rglob("*") if _is_log(p, strict=False)), key=_natural)
    if not paths:
        raise UserError(
            f"{path} is a directory without logs", "name a directory with logs in it, a log file, or a run", "no-logs"
        )
    sourced: list[Sourced] = []
    for number, log in enumerate(paths):
        keys, matches = _scanned(log_files.blocks(log))
        sourced += [(LogSource(log, number, keys=keys), match) for match in matches]
    return ranked(sourced)


def run(run: RunDir) -> list[Record]:
    """Of all that the last attempt wrote down, as `folder` does."""
    attempts = run.attempts
    if not attempts:
        raise UserError(f"run {run.name} has no log", f"type podwright watch {run.typed}", "no-log-yet")
    files = sorted(run.attempt(attempts[-1]).rglob("*"), key=_natural)
    paths = (path for path in files if _is_log(path))
    matches = []
    for source in sources(run, attempts[-1], paths):
        matches += [(source, match) for match in scan(log_files.blocks(source.path))]
    if not matches:
        last_word = _last_word(run, attempts[-1])
        if not last_word and run.recipe.exists():
            recipe_of(run)  # a damaged one is a fault of its own
        return last_word + _nothing_learned(run)
    return [typed(record, run) for record in ranked(matches)] + _nothing_learned(run)


def sources(run: RunDir, attempt: int, paths: Iterable[Path]) -> list[LogSource]:
    """The logs of an attempt, with what is known of how their processes ended."""
    failed = read_json(run.fault(attempt)).get("process")
    keys = of_run(run)
    known: list[LogSource] = []
    for path in paths:
        named = re.fullmatch(r"log(?:-(\d+))?\.txt", path.name)
        number = int(named[1] or 0) if named else len(known)
        ended = read_json(run.exit(attempt, number)).get("time") if named else None
        known.append(
            LogSource(
                path,
                number,
                float(ended) if isinstance(ended, int | float) else None,
                named is not None and failed == number,
                keys,
            )
        )
    return known


def ranked(matches: Iterable[Sourced], only_causes: bool = False) -> list[Record]:
    """A record for each rule, what explains most first: causes before symptoms before consequences, over all logs; of each of these the
    earliest. A line without a time is as late as the end of its process. Where no time is known, the process that failed first counts
    first. `only_causes`: without consequences."""
    records: dict[str, Record] = {}
    for source, match in sorted(matches, key=lambda sourced: _order(*sourced)):
        if not (only_causes and match.failure.row.role is Role.CONSEQUENCE):
            record = records.setdefault(match.failure.row.name, _record(source, match))
            record["logs"] += 1
    return list(records.values())


def _order(source: LogSource, match: LogMatch) -> tuple[float, ...]:
    known = [seconds for seconds in (match.time, source.ended_s, math.inf) if seconds is not None]
    return (match.failure.row.role, known[0], not source.failed_first, source.number, match.offset)


def _record(source: LogSource, match: LogMatch) -> Record:
    failure, keys = match.failure, source.keys
    record: Record = {
        "rule": failure.row.name,
        "ending": str(failure.row.ending),
        "cause": failure.cause(asdict(keys)),
        "remedy": failure.remedy(asdict(keys)),
        "evidence": match.evidence,
        "file": str(source.path),
        "logs": 0,
    }
    if keys.zh:
        fields = asdict(keys.zh)
        record["zh"] = {key: failure.filled(text, fields) for key, text in failure.row.zh.items()}
    return record


def _last_word(run: RunDir, attempt: int) -> list[Record]:
    """What the trainer itself wrote of its end, where that was no good one."""
    path = run.exit(attempt)
    own = read_json(path) if path.exists() else run.fault_elsewhere(attempt) or {}
    try:
        ending, cause = Ending(own["ending"]), str(own["detail"])
    except (ValueError, KeyError):
        return []
    if ending == Ending.FINISHED:
        return []
    remedy = own.get("fix") or f"read the end of its log: podwright logs {run.typed}"
    record = {"rule": "last-word", "ending": str(ending), "cause": cause, "remedy": remedy}
    return [record | {"evidence": f"{ending}: {cause}", "file": str(path), "logs": 1}]


def _nothing_learned(run: RunDir) -> list[Record]:
    """Of a run of GRPO most of whose groups had a gradient of 0, however it ended."""
    even = even_groups.count(read_steps(run, "grpo"))
    if not even:
        return []
    record = {"rule": "even-groups", "ending": str(Ending.FINISHED), "cause": even.why, "remedy": even.fix}
    return [record | {"evidence": even_groups.sentence(even), "file": str(run.metrics), "logs": 1}]


def typed(match: Record, run: RunDir) -> Record:
    """With what to type for this run."""
    return match | {"remedy": re.sub(r"\bRUN\b", lambda _: run.typed, match["remedy"])}


def _is_log(path: Path, strict: bool = True) -> bool:
    """By its name; not `strict`: rotated and compressed logs, and files without a suffix, too."""
    known = {path.suffix} & _SUFFIXES if strict else {*path.suffixes} & _SUFFIXES or not path.suffix
    return bool(known) and not path.name.startswith(".") and path.is_file()


def _natural(path: Path) -> list[tuple[str, int]]:
    """To sort by: worker 2 before worker 10."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", str(path))]
