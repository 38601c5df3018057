"""`podwright doctor`: has the machines of a target tell what they are, and says what stands in the way."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json

RecipeName = Annotated[
    str, typer.Argument(metavar="[RECIPE]", help="what is to run there: its packages and files are looked for too")
]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="such as data.source=corpus")]
On = Annotated[str, typer.Option("--on", metavar="TARGET", help="local, or a target of yours")]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", envvar="PODWRIGHT_RUNS", help="where runs will be kept")]


def doctor(
    recipe: RecipeName = "",
    overrides: Overrides = None,
    on: On = "local",
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Look at every machine of a target: versions, GPUs, memory, disk, clocks, names, files. Exit code 1: something stands in the way."""
    from podwright import targets
    from podwright.plan.checks import machines as judge
    from podwright.plan.findings import Finding
    from podwright.recipe import load

    chosen = load.load(recipe, overrides or []) if recipe else None
    place = targets.resolve(on)
    target = place.open()
    folder = place.runs or runs
    arguments = ["--folder", str(folder.absolute())]
    named = judge.files(chosen) if chosen else []
    brought = [file for file in named if place.traits.ships_files and not file.startswith(("/", "~"))]
    for file in named:
        if file not in brought:
            arguments += ["--file", file if file.startswith("~") else str(Path(file).absolute())]
    findings = judge.absent(brought)
    findings += [
        Finding("target", remark.level, remark.what, remark.fix)
        for remark in place.check(chosen.kind if chosen else "")
    ]
    machines = []
    if not any(f.check == "target" and f.level == "error" for f in findings):  # else nobody would ever answer
        machines = target.probe_hosts(arguments)
        findings += judge.findings(machines, judge.packages(chosen) if chosen else (), place.gpus_per_node)
    ok = not any(f.level == "error" for f in findings)
    document = {"target": on, "ok": ok, "findings": [asdict(f) for f in findings], "machines": machines}
    show.document(document) if as_json else show.checked(document)
    raise typer.Exit(0 if ok else 1)
