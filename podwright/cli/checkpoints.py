"""The verb that lists the checkpoints of a run, and copies one of them here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json, RunName, Runs
from podwright.errors import UserError, typed_path
from podwright.rundir import RUNS


def checkpoints(
    name: RunName,
    step: Annotated[
        int | None,
        typer.Option("--fetch", metavar="STEP", min=0, help="copy the checkpoint of this step to this machine"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=typed_path,
            metavar="DIR",
            help="with --fetch: copy it to this new directory; default: RUN-step-STEP",
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """List the checkpoints of a run, in its directory or in the bucket or folder where it is kept."""
    from podwright.run import checkpoints, listing

    run = listing.find(runs, name)
    url = checkpoints.url_of(run)
    if step is None:
        if out:
            raise UserError(
                f"--out {out} works only with --fetch",
                "type --fetch STEP too, or leave --out out",
                "option-needs-other",
            )
        rows = [
            {"step": each.step, "time": each.time, "size_bytes": each.size_bytes, "num_files": len(each.objects)}
            for each in checkpoints.listed(run)
        ]
        document = {"name": run.name, "url": url, "checkpoints": rows}
        show.document(document) if as_json else show.checkpoints(run.name, url, rows)
        return
    directory = out or Path(f"{run.name}-step-{step}")
    print(f"copying the checkpoint of step {step} from {url}", file=sys.stderr)
    size_bytes = checkpoints.fetch(run, step, directory).size_bytes
    if as_json:
        copied = {"name": run.name, "url": url, "step": step, "size_bytes": size_bytes, "directory": str(directory)}
        show.document(copied)
    else:
        show.text(f"checkpoint of step {step} ({size_bytes / (1 << 20):,.1f} MiB) copied to {directory}\n")
