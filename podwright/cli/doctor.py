"""`podwright doctor`: has the machines of a target tell what they are, and says what stands in the way."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podwright.cli import options, show
from podwright.cli.exit_codes import of_verdict
from podwright.cli.options import Json, Runs
from podwright.errors import UserError
from podwright.rundir import RUNS

if TYPE_CHECKING:
    from podwright.plan.findings import Finding
    from podwright.recipe.kinds import Recipe
    from podwright.targets import ResolvedTarget

RecipeName = Annotated[
    str,
    typer.Argument(metavar="[RECIPE]", help="the recipe that will run there: its packages and files are checked too"),
]
Overrides = Annotated[list[str] | None, options.overrides("such as data.source=corpus")]
On = Annotated[str, typer.Option("--on", metavar="TARGET", help="this machine (local), or one of your targets")]


def doctor(
    recipe: RecipeName = "",
    overrides: Overrides = None,
    on: On = "local",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Check every machine of a target.

    Checked are versions, GPUs, memory, disk, clocks, host names, files and storage. Machines that exist only while a run has them
    are not: the cloud and the cluster are checked instead, as by `target check`.

    Exit code 3: a run would fail there; 4: inconclusive, something could not be checked.
    """
    from podwright import targets
    from podwright.cli import destination
    from podwright.plan import kinds
    from podwright.plan.checks import machines as judge
    from podwright.plan.findings import Finding, verdict_of
    from podwright.recipe import kinds as recipe_kinds
    from podwright.recipe import load
    from podwright.targets.base import MachinesBusy

    chosen = load.load(recipe, overrides or []) if recipe else None
    place = targets.resolve(on)
    place = place.for_slice(destination.slice_of(place, chosen)) if chosen else place
    target = place.open()
    folder = place.runs or runs
    arguments = ["--folder", str(folder.absolute())]
    named = kinds.of(chosen).files(chosen) if chosen else []
    brought = [file for file in named if place.traits.ships_files and not file.startswith(("/", "~"))]
    for file in named:
        if file not in brought:
            arguments += ["--file", file if file.startswith("~") else str(Path(file).absolute())]
    used = chosen is None or recipe_kinds.find(chosen.kind).uses_storage
    if used and place.traits.storage:
        arguments += ["--storage", place.traits.storage]
    unchecked = destination.unchecked_hosts(place)
    planned = [*_planned(place, chosen), *destination.access(place), *(destination.storage(place) if used else ())]
    findings = judge.absent(brought)
    machines = []
    if not unchecked and any(f.check == "target" and f.level == "error" for f in planned):
        what = f"the machines of {on} were not looked at: the target has a fault"
        unchecked = [Finding("machines", "inconclusive", what, "correct the fault first", "target-fault")]
    if not unchecked:
        needed = kinds.of(chosen).needed(chosen) if chosen else ()
        try:
            machines = target.probe_hosts(arguments)
        except MachinesBusy as e:
            findings.append(Finding("machines", "inconclusive", e.what, e.fix, "machines-busy"))
        except UserError as e:  # machines that do not answer are what is wrong there, not what was typed
            findings.append(Finding("machines", "error", e.what, e.fix, "machines-unreachable"))
        else:
            findings += judge.findings(machines, needed, place.gpus_per_node) or [
                Finding(
                    "machines",
                    "inconclusive",
                    f"no machine of {on} has said what it is",
                    "try again",
                    "machines-silent",
                )
            ]
    findings += [*planned, *unchecked]
    verdict = verdict_of(findings)
    listed = [asdict(f) for f in findings]
    document = {"target": on, "verdict": verdict, "ok": verdict.ok, "findings": listed, "machines": machines}
    show.document(document) if as_json else show.checked(on, findings, verdict)
    raise typer.Exit(of_verdict(verdict))


def _planned(place: ResolvedTarget, recipe: Recipe | None) -> list[Finding]:
    """What the plan of the recipe says, but for packages, which the machines themselves are asked for, and the storage, which is tried; without a recipe, what the target says."""
    from podwright.cli import destination
    from podwright.plan.make import make

    if recipe is None:
        return destination.remarks(place)
    planned = make(recipe, destination.of(place, recipe))
    return [finding for finding in planned.findings if finding.check not in ("packages", "storage")]
