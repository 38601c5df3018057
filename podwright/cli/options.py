"""Options that several verbs take, each written once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from podwright.errors import typed_path, warn

_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="the name of a shipped recipe, a YAML file, or the name of a launch script in `recipes` of a target",
    ),
]


def overrides(help: str) -> typer.models.ArgumentInfo:
    """Changes of keys. Of two with the same key the later one counts, and stderr says so."""

    def checked(given: list[str] | None) -> list[str] | None:
        if given:
            from podwright.recipe import load

            for sentence in load.without_effect(given):
                warn(sentence)
        return given

    argument: typer.models.ArgumentInfo = typer.Argument(metavar="[KEY=VALUE]...", help=help, callback=checked)
    return argument


def variables(given: list[str] | None) -> tuple[dict[str, str], list[str]]:
    """Values of variables of a recipe by name, and the other words of `given`, which change keys."""
    values = {}
    others = []
    for word in given or []:
        match = _VARIABLE.fullmatch(word)
        if match:
            values[match[1]] = match[2]
        else:
            others.append(word)
    return values, others


Overrides = Annotated[list[str] | None, overrides("change a value of the recipe, such as training.max_steps=10")]
EvalOverrides = Annotated[
    list[str] | None, overrides("change a value for the evaluation, such as evaluation.batch_size=8")
]
RunOverrides = Annotated[
    list[str] | None,
    overrides(
        "change a value of the recipe, such as training.max_steps=10; NAME=VALUE: set a variable ${NAME} of a MaxText recipe"
    ),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="the name of a run, or its directory")]
Runs = Annotated[
    Path,
    typer.Option("--runs", parser=typed_path, metavar="DIR", envvar="PODWRIGHT_RUNS", help="directory of the runs"),
]
On = Annotated[
    str,
    typer.Option(
        "--on", metavar="TARGET", help="local, cpu-N for N CPU devices of this machine, or one of your targets"
    ),
]
OnSlice = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="TARGET|SLICE",
        help="a target, or a slice such as v6e-16, tpu7x-4x4x8, 8xH100-80GB; default: the slice that the recipe names, or local",
    ),
]
Compile = Annotated[
    str,
    typer.Option(
        "--compile", metavar="[=full]", help="compile every program for the target; =full includes code generation"
    ),
]
Only = Annotated[str, typer.Option("--only", metavar="CHECK,...", help="make only these checks, such as mesh,memory")]
Fit = Annotated[
    bool,
    typer.Option(
        "--fit", help="search the mesh, micro-batches and remat that are fastest and fit; the best few are compiled"
    ),
]
Cache = Annotated[
    Path,
    typer.Option(
        "--cache",
        parser=typed_path,
        metavar="DIR",
        envvar="PODWRIGHT_CACHE",
        help="directory of cached compile results",
    ),
]
Jax = Annotated[
    str,
    typer.Option(
        "--jax",
        metavar="VERSION",
        help="compile with this version of jax and its libtpu; it is installed once, next to the --cache directory",
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", metavar="X", min=0, help="USD per chip-hour; the plan prints the cost of the run"),
]
Svg = Annotated[
    Path | None, typer.Option("--svg", parser=typed_path, metavar="FILE", help="draw the memory of each program as SVG")
]
Smoke = Annotated[
    int,
    typer.Option(
        "--smoke", metavar="N", min=0, show_default=False, help="train only N steps, such as 3, on little data"
    ),
]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="N,...", help="one run per seed, such as 0,1,2 or 0-4")]
Profile = Annotated[
    str, typer.Option("--profile", metavar="N[-M]", help="trace these steps with jax's profiler, such as 10-12")
]
Detach = Annotated[bool, typer.Option("--detach", help="start it and return; `podwright watch` follows it")]
Retries = Annotated[int, typer.Option("--retries", metavar="N", min=0, help="resume by itself after up to N crashes")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]

CACHE = Path("~/.cache/podwright")
