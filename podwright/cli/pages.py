"""The verb that opens a page with the figures of a run or of all runs, and a port of a run's first host beside it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from podwright.cli import show
from podwright.cli.options import Json, Runs
from podwright.errors import UserError
from podwright.rundir import RUNS

PORT = 9999
"""on which jax's documentation starts the profiler's server"""


def ui(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="a run, in TensorBoard; default: all runs, in MLflow")
    ] = None,
    forward: Annotated[
        int,
        typer.Option(
            "--forward",
            metavar="[=PORT]",
            min=0,
            show_default=False,
            help="also forward this port of the run's first host, or 9999",
        ),
    ] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Open TensorBoard on a run, or MLflow's page of all runs, until Ctrl-C. With --json, print its command.

    The files of a run are on this machine; a forwarded port is for profiles that are taken live.
    """
    from podwright import track
    from podwright.run import execution, listing
    from podwright.shell import become

    if name is None:
        if forward:
            raise UserError("--forward needs a run", "type podwright ui RUN --forward", "missing-argument")
        argv = track.ui_argv(runs)
        show.document({"argv": argv}) if as_json else become(argv, {"MLFLOW_DISABLE_TELEMETRY": "true"})
        return
    run = listing.find(runs, name)
    argv = track.tensorboard_argv(run)
    tunnel = execution.forward_argv(run, forward) if forward else []
    if as_json:
        show.document({"argv": argv, "forward": tunnel})
    elif tunnel:
        _together(argv, tunnel, forward)
    else:
        become(argv, {})


def _together(argv: Sequence[str], tunnel: Sequence[str], port: int) -> None:
    """Until one of both ends, or Ctrl-C. UserError where the port could not be forwarded."""
    from podwright.shell import Shell

    shell = Shell()
    with contextlib.ExitStack() as stack:
        processes = []
        for command in (tunnel, argv):
            process = shell.attach(command)
            stack.callback(shell.end, process)
            processes.append(process)
        print(f"localhost:{port} is forwarded to that port of the first host; Ctrl-C ends it", flush=True)
        while not any(process.poll() is not None for process in processes):
            time.sleep(0.2)
        if processes[0].poll() is not None:
            fix = f"see ssh's message; if the port is in use here, type --forward={port + 1}"
            raise UserError(f"port {port} of the first host is no longer forwarded", fix, "port-not-forwarded")
