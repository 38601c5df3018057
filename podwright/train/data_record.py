"""Whether a run that goes on has the data that it began with: rows may be appended, no other may change, and what is held out stays held out.

Every attempt writes down how many rows it has read, and a digest of those that it trains on and of those that it holds out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from podwright.errors import UserError, counted
from podwright.rundir import Record, RunDir, read_events


class DataRows(NamedTuple):
    """A part of the data, in its order."""

    size: int
    digest: Callable[[int], str]
    """of the first so many rows"""
    marks: Callable[[int], set[bytes]]
    """of each row behind the first so many, by its content; none where that is too much to read"""

    def record(self) -> Record:
        return {"rows": self.size, "digest": self.digest(self.size)}

    def begins_with(self, before: Record) -> bool:
        size = int(before["rows"])
        return size <= self.size and self.digest(size) == before["digest"]


class Written(NamedTuple):
    """What earlier attempts of a run have written down; empty before the first."""

    read: Mapping[str, int]
    """rows of each file or part of the source at the first attempt: among these what is held out is chosen"""
    last: Record


def rows(contents: Iterable[str]) -> DataRows:
    """Of rows by all that they hold."""
    marks = [hashlib.sha256(content.encode(errors="surrogatepass")).digest() for content in contents]
    return DataRows(
        len(marks),
        lambda size: hashlib.sha256(b"".join(marks[:size])).hexdigest()[:32],
        lambda first: set(marks[first:]),
    )


def written(run: RunDir) -> Written:
    records = [e["rows"] for e in read_events(run.events, "environment") if e.get("rows")]
    return Written(records[0]["read"], records[-1]) if records else Written({}, {})


def require_held_out(run: RunDir, source: str, held_out: DataRows) -> None:
    """UserError where the run has held out other rows than an evaluation is to ask: it may have been trained on these."""
    last = written(run).last
    if last and held_out.record() != last["held_out"]:
        what = f"data.source={source} does not hold out what it did for run {run.name}, which may have been trained on these rows"
        fix = "bring it back as it was, with data.num_test of the run (--limit N asks fewer), or name other data with --data"
        raise UserError(what, fix, "held-out-changed")


def check(
    run: RunDir, source: str, before: Written, read: Mapping[str, int], training: DataRows, held_out: DataRows
) -> tuple[Record, list[str]]:
    """What to write down of this attempt, and what to say. UserError where rows were changed, removed or reordered, or where rows that are
    held out were appended."""
    last = before.last
    if last and not (training.begins_with(last["training"]) and held_out.record() == last["held_out"]):
        what = f"data.source={source} is not what run {run.name} began with: some of its rows have changed"
        fix = f"bring it back as it was and resume (rows may be appended at its end), or train anew: type {run.train_again}"
        raise UserError(what, fix, "data-changed")
    record = {"read": dict(before.read or read), "training": training.record(), "held_out": held_out.record()}
    appended = training.size - last["training"]["rows"] if last else 0
    if appended:
        repeated = training.marks(last["training"]["rows"]) & held_out.marks(0)
        if repeated:
            what = f"of the rows appended to data.source={source}, {len(repeated):,} are held out: they would be trained on"
            raise UserError(what, f"remove them and resume, or train anew: type {run.train_again}", "held-out-appended")
    notice = f"data.source={source} has {counted(appended, 'more row')} than before: training goes on with all, what is held out stays"
    return record, [notice] if appended else []
