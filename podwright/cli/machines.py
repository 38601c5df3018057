"""The verbs about machines in the cloud: what exists there, and the removal of what no run needs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podwright.cli import show
from podwright.cli.exit_codes import ExitCode, of_check
from podwright.cli.options import Json, Runs
from podwright.errors import UserError, counted
from podwright.rundir import RUNS, Record

if TYPE_CHECKING:
    from podwright.run.cleaning import CloudSlice


def clean(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[TARGET]", help="only what is on this target; default: all targets in a cloud or cluster"
        ),
    ] = "",
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="names in the list: remove these, also if another user or machine created them"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="remove what is listed; without it nothing is removed")] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """List what runs have created in a cloud or a cluster, and remove what no run needs.

    What another user or machine created is removed only if its NAME is typed. Exit code 1: there is something to remove, or left, or
    machines that cost are kept because it is unknown whether their run needs them. Exit code 2: something could not be listed.
    """
    from podwright.run import cleaning, removal

    known = cleaning.inventory(target, runs)
    listing_faults = [*known.faults, *(each.fault for each in known.unlisted)]
    for fault in listing_faults:
        show.error(fault, as_json=False)
    chosen = _named(known.slices, names) if names else [each for each in known.slices if each.removable]
    rows = [each.document() for each in known.slices]
    left: dict[cleaning.Key, str] = {}
    barred: list[UserError] = []
    undecided = [] if names else [each for each in known.slices if each.undecided]
    if not as_json and (rows or not listing_faults):
        _table(rows)
    if yes and chosen:
        left = removal.remove(chosen, lambda line: print(line, file=sys.stderr), barred=barred)
    removed = [each.name for each in chosen if yes and each.key not in left]
    remaining = [
        {"name": each.name, "zone": each.owned.request.zone, "why": left[each.key]}
        for each in chosen
        if each.key in left
    ]
    if as_json:
        faults = [str(fault) for fault in known.faults]
        removable = [each.name for each in chosen]
        unlisted = [each.document() for each in known.unlisted]
        show.document(
            {
                "machines": rows,
                "removable": removable,
                "removed": removed,
                "left": remaining,
                "faults": faults,
                "unlisted": unlisted,
            }
        )
    elif yes and (chosen or not (listing_faults or undecided)):
        _outcome(removed, remaining)
    elif chosen:
        words = " ".join(["podwright clean", *([target] if target else []), *(names or [])])
        print(f"{counted(len(chosen), 'item')} to remove: type {words} --yes")
    if not as_json:
        _kept(undecided)
    if left or (chosen and not yes):
        raise typer.Exit(ExitCode.USAGE if barred else ExitCode.FAILED)
    incomplete = listing_faults or any(each.owned.remark for each in known.slices)  # a row says what was not listed
    raise typer.Exit(ExitCode.USAGE if incomplete else of_check(not undecided))


def _kept(undecided: Sequence[CloudSlice]) -> None:
    for each in undecided:
        what = f"{each.name} in {each.owned.request.zone} costs, and is kept: it is unknown whether its run needs it"
        print(f"{what}; if it does not, type podwright clean {each.target} {each.name} --yes", file=sys.stderr)


def _named(slices: Sequence[CloudSlice], names: Sequence[str]) -> list[CloudSlice]:
    """UserError for what does not exist, or is needed by a run."""
    from podwright.run.cleaning import Need

    for name in names:
        of_name = [each for each in slices if each.name == name]
        if not of_name:
            there = ", ".join(each.name for each in slices)
            raise UserError(
                f"the cloud lists no {name} that podwright created",
                f"there is {there}" if there else "leave it out",
                "no-such-machines",
            )
        for needed in of_name:
            if needed.need in (Need.LIVING, Need.ELSEWHERE) and needed.run:
                what = f"{name} is in use: {needed.detail}"
                raise UserError(what, f"type podwright stop {needed.run.typed}", "in-use")
    return [each for each in slices if each.name in names]


def _table(rows: Sequence[Record], *, marked: bool = True) -> None:
    """`marked`: with whether each is to be removed."""
    if not rows:
        print("nothing of podwright's in the cloud")
        return
    table = [("NAME", "ZONE", "STATE", "AGE", "EXPIRES", "COST", "RUN", "")]
    for r in rows:
        remark = "; ".join(word for word in (r["remark"], r["detail"]) if word)
        if marked:
            remark = f"remove: {remark}" if r["removable"] else f"keep: {remark}"
        where = (r["name"], r["zone"], r["cloud_state"])
        until = (_age(r["age_s"]), _expiry(r["expires"]), _usd(r["cost"], r["cost_at_most"]))
        table.append((*where, *until, r["run"] or "", remark))
    show.columns(table)


def _outcome(removed: Sequence[str], left: Sequence[Record]) -> None:
    if removed:
        print(f"removed {', '.join(removed)}: the cloud no longer lists {'it' if len(removed) == 1 else 'them'}")
    for row in left:
        print(f"{row['name']} in {row['zone']} is left: {row['why']}", file=sys.stderr)
    if not removed and not left:
        print("nothing to remove")


def live(name: str, runs: Path, as_json: bool) -> None:
    """Print what the cloud has now for target `name`. UserError where it creates no machines."""
    from podwright.run import cleaning

    rows = [each.document() for each in cleaning.of_target(name, runs)]
    if as_json:
        show.document({"target": name, "machines": rows})
    else:
        _table(rows, marked=False)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _expiry(at: float | None) -> str:
    if at is None:
        return ""
    left = at - time.time()
    return f"in {_age(left)}" if left > 0 else "once idle"


def _usd(cost: float | None, at_most: bool) -> str:
    """Of the machines that exist now."""
    if cost is None:
        return ""
    return f"{'at most ' if at_most and cost else ''}{cost:.2f} USD"
