"""Options that several verbs take, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="a shipped recipe's name, or a YAML file")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="such as training.max_steps=10")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="the name of a run, or its directory")]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", envvar="PODWRIGHT_RUNS", help="where runs are kept")]
On = Annotated[
    str, typer.Option("--on", metavar="TARGET", help="local, cpu-N for N CPU devices here, or a target of yours")
]
OnSlice = Annotated[
    str,
    typer.Option("--on", metavar="TARGET|SLICE", help="a target, or a slice such as v6e-16, tpu7x-4x4x8, 8xH100-80GB"),
]
Compile = Annotated[
    str, typer.Option("--compile", metavar="[=full]", help="compile every program for it; =full generates code too")
]
Only = Annotated[str, typer.Option("--only", metavar="CHECK,...", help="only these checks, such as mesh,memory")]
Fit = Annotated[
    bool, typer.Option("--fit", help="search meshes, micro-batches and remat; the compiler tries the best few")
]
Cache = Annotated[
    Path, typer.Option("--cache", metavar="DIR", envvar="PODWRIGHT_CACHE", help="where compilers' verdicts are kept")
]
Jax = Annotated[
    str,
    typer.Option(
        "--jax", metavar="VERSION", help="compile with this jax and its libtpu; installed once, beside --cache"
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", metavar="X", help="money per chip-hour: say what the run costs (with --compile)"),
]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="draw what each program needs of the memory")]
Smoke = Annotated[int, typer.Option("--smoke", metavar="3|10", help="only so many steps, on little data")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="N,...", help="a run for each of these seeds, such as 0,1,2 or 0-4")
]
Profile = Annotated[
    str, typer.Option("--profile", metavar="N[-M]", help="have jax's profiler trace these steps, such as 10-12")
]
Retries = Annotated[
    int, typer.Option("--retries", metavar="N", min=0, help="crashes after which the run goes on by itself")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]

CACHE = Path("~/.cache/podwright")
