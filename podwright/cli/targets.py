"""The verbs of `podwright target`: the user's own clusters and machines, by name."""

from __future__ import annotations

import contextlib
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.exit_codes import of_verdict
from podwright.cli.options import Json, Runs
from podwright.rundir import RUNS, Record

verbs = typer.Typer(help="Define your clusters and hosts, and check them.", no_args_is_help=True, rich_markup_mode=None)

_SOURCES = "the configuration of gcloud and kubectl"
"""of values that were not typed"""
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the target, as --on takes it")]


@verbs.command()
def add(
    name: Name,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE...",
            help="kind=slurm, ssh, tpu-vm or gke, then settings of that kind, such as partition=gpu nodes=2",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Add a target to your targets file."""
    from podwright.errors import UserError
    from podwright.shell import targets_file
    from podwright.targets import entries

    proposed = [f"{key}={value}" for key, value in entries.proposals(pairs).items()]
    try:
        values = entries.add(name, [*pairs, *proposed]).model_dump(mode="json", exclude_unset=True)
    except UserError as e:
        if not proposed or e.code == "missing-key":
            raise
        raise UserError(f"{e.what} ({', '.join(proposed)} from {_SOURCES})", e.fix, e.code) from e
    written = {"name": name, "file": str(targets_file()), "proposed": proposed, **values}
    if as_json:
        show.document(written)
        return
    if proposed:
        show.text(f"taken from {_SOURCES}: {' '.join(proposed)}\n")
    show.text(f"wrote {name} to {targets_file()}; `podwright target check {name}` checks it\n")


@verbs.command()
def remove(name: Name, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Remove a target from your targets file; comments and the other targets stay.

    Refused while a run of it in the directory of the runs has not ended.
    """
    from podwright.errors import UserError
    from podwright.run import listing
    from podwright.shell import targets_file
    from podwright.targets import entries

    folders = [runs]
    with contextlib.suppress(UserError):  # a wrong entry can be removed too
        own = entries.find(name)
        if own and own.runs and Path(own.runs).is_dir():
            folders.append(Path(own.runs))
    for folder in folders:
        if run := listing.living(folder, name):
            what = f"run {run.typed} on target {name} has not ended ({folder})"
            raise UserError(what, f"type podwright stop {run.typed}, then remove the target", "in-use")
    entries.remove(name)
    removed = {"name": name, "file": str(targets_file())}
    show.document(removed) if as_json else show.text(f"removed {name} from {targets_file()}\n")


@verbs.command("list")
def list_targets(as_json: Json = False) -> None:
    """List your targets."""
    from podwright.errors import UserError
    from podwright.targets import entries

    rows = []
    for name in entries.names():
        try:
            rows.append(
                {"name": name, **entries.require(name).model_dump(mode="json", exclude_defaults=True), "fault": ""}
            )
        except UserError as e:
            rows.append({"name": name, "fault": e.what})
    show.document(rows) if as_json else show.targets(rows)


@verbs.command("show")
def show_target(
    name: Name,
    live: Annotated[
        bool, typer.Option("--live", help="show the machines that the cloud has for it now, instead of its settings")
    ] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Show every setting of a target with its meaning."""
    from podwright.targets import entries, kinds

    if live:
        from podwright.cli import machines

        machines.live(name, runs, as_json)
        return

    own = entries.require(name)
    values = own.model_dump(mode="json")
    meanings = {key: field.description or "" for key, field in kinds.settings_class(own.kind).model_fields.items()}
    show.document(values) if as_json else show.settings(values, meanings)


@verbs.command()
def check(name: Name, as_json: Json = False) -> None:
    """Check whether a target accepts runs, and access its storage from this machine.

    Exit code 3: a run would fail; 4: inconclusive, something could not be checked.
    """
    from podwright import targets
    from podwright.cli import destination
    from podwright.plan.findings import Finding, verdict_of
    from podwright.targets import entries

    entries.require(name)
    place = targets.resolve(name)
    remarks = [*destination.remarks(place), *destination.access(place), *destination.storage(place)]
    unchecked = destination.unchecked_hosts(place)
    if place.traits.storage and not unchecked:
        what = f"the hosts of {name} were not checked for access to storage={place.traits.storage}"
        fix = f"type podwright doctor --on {name}, which checks them"
        unchecked = [Finding("storage", "inconclusive", what, fix, "hosts-not-checked")]
    remarks += unchecked
    verdict = verdict_of(remarks)
    document = {"target": name, "verdict": verdict, "ok": verdict.ok, "findings": [asdict(f) for f in remarks]}
    show.document(document) if as_json else show.checked(name, remarks, verdict)
    raise typer.Exit(of_verdict(verdict))


@verbs.command("exec")
def execute(
    name: Name,
    words: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="a line of shell, or a command with its arguments")
    ],
    host: Annotated[
        int | None, typer.Option("--host", metavar="N", min=0, help="only on host N, counted from 0")
    ] = None,
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="the run whose slice it is; default: the newest run")
    ] = "",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Run a command on the hosts of a target: those of kind=ssh, or the slice that a run has now.

    Each line has its host in front. The exit code is the highest of all hosts, 255 for one that is not reached.
    """
    from podwright.run import execution

    hosts = execution.hosts_of(name, runs, run, host)
    width = max(len(each.name) for each in hosts)
    results: list[Record] = []
    lines: list[str] = []
    for item in execution.execute(hosts, words[0] if len(words) == 1 else shlex.join(words)):
        if isinstance(item, execution.OutputLine):
            lines.append(item.text)
            if not as_json:
                show.text(f"{item.host:<{width}} | {item.text.rstrip(chr(10))}\n")
            continue
        stderr = f"error: {item.trouble}\n" if item.trouble else item.stderr
        results.append({"host": item.host, "code": item.code, "stdout": "".join(lines), "stderr": stderr})
        lines = []
        if not as_json:
            for line in stderr.splitlines():
                print(f"{item.host:<{width}} | {line}", file=sys.stderr)
    if as_json:
        show.document({"target": name, "hosts": results})
    raise typer.Exit(max(result["code"] for result in results))
