"""Make the directory of a new run, whole or not at all, under a name that is free."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from podwright.errors import UserError, counted
from podwright.recipe import kinds
from podwright.recipe.kinds import JaxRecipe, PreparedRecipe, Recipe
from podwright.recipe.load import fingerprint
from podwright.run import journal
from podwright.run.states import BUDGETS, Budget
from podwright.rundir import Record, RunDir, write_json
from podwright.targets import ResolvedTarget

_MOST_SEEDS = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def choose_name(folders: Sequence[Path], recipe: str, wanted: str | None) -> str:
    """`wanted` if it can be a name and is free in all `folders`; without it, the recipe's name and the time, made unique.

    The first folder is that of --runs: UserError where no run can be created in it. Another one is of a target, whose check judges it.
    """
    for folder in folders[:1]:
        _require_writable(folder)
    if wanted is None:
        base = f"{recipe}-{time.strftime('%m%d-%H%M%S')}"
        names = [base, *(f"{base}-{n}" for n in range(2, 100))]
        return next(name for name in names if not any((folder / name).exists() for folder in folders))
    if not _NAME.fullmatch(wanted):
        raise UserError(f"--name {wanted!r} cannot be the name of a directory", "use letters, digits, '.', '_' and '-'")
    for folder in folders:
        if (folder / wanted).exists():
            raise _in_use(folder / wanted)
    return wanted


def _require_writable(folder: Path) -> None:
    """Of a folder that is not there yet, the nearest one above it that is."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    typed = f"--runs {folder}" + ("" if there == folder else f": {there}")
    if not there.is_dir():
        raise UserError(f"{typed} is not a directory", "type --runs with a directory, or leave it out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{typed} cannot be written", "type --runs with a directory that can be, or change its permissions"
        )


def require_startable(recipe: Recipe, target: ResolvedTarget) -> None:
    """UserError for a recipe of a kind that the target cannot start."""
    starts_on, pods = kinds.find(recipe.kind).starts_on, target.traits.pods
    if ("pods" if pods else "hosts") in starts_on:
        return
    what = f"{recipe.name} is of kind {recipe.kind}, which target {target.name} cannot start"
    others = "of GKE" if "pods" in starts_on else "that is not of kind=gke"
    raise UserError(what, f"type --on with a target {others}; `podwright target list` shows yours")


def prepared(recipe: Recipe, target: ResolvedTarget, typed: Mapping[str, str]) -> PreparedRecipe:
    """The recipe with the values that were `typed` for its variables. UserError where the target cannot start it, for a variable that it does
    not have, and for one of which neither the command line nor the target has a value."""
    require_startable(recipe, target)
    prepare = kinds.find(recipe.kind).prepare
    if prepare:
        ready: PreparedRecipe = kinds.resolve(prepare)(recipe, target.require_settings(), target.name, typed)
        return ready
    if typed:
        raise UserError(f"{recipe.name} has no variable {next(iter(typed))}", "leave it out")
    return PreparedRecipe(recipe, recipe)


def steps(text: str, recipe: Recipe) -> list[int]:
    """The steps that `--profile TEXT` names."""
    match = re.fullmatch(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise UserError(f"--profile {text!r} names no steps", "type --profile 10, or --profile 10-12")
    if not kinds.find(recipe.kind).traced:
        raise UserError(
            f"--profile {text}: jax's profiler cannot trace a run of kind {recipe.kind}", "leave --profile out"
        )
    most = cast(JaxRecipe, recipe).training.max_steps
    if most and last > most:
        raise UserError(
            f"--profile {text}: there is no step {last}, training.max_steps={most}", f"type --profile {most} or less"
        )
    return list(range(first, last + 1))


def seeded(recipe: Recipe, base: str, text: str, folders: Sequence[Path]) -> dict[str, Recipe]:
    """By the name of its run, the recipe with each of the seeds that `--seeds TEXT` names."""
    if "seed" not in type(recipe).model_fields:
        raise UserError(f"--seeds {text}: a recipe of kind {recipe.kind} has no seed", "leave --seeds out")
    parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip()) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    if (count := sum(map(len, ranges))) > _MOST_SEEDS:
        raise UserError(f"--seeds {text} are {count} runs", f"at most {_MOST_SEEDS} are started at once")
    numbers = [n for group in ranges for n in group]
    if None in parts or not all(ranges) or len(set(numbers)) != len(numbers):
        raise UserError(f"--seeds {text!r} names no seeds, or one twice", "type --seeds 0,1,2, or --seeds 0-4")
    for folder in folders[:1]:
        _require_writable(folder)
    names = {f"{base}-seed-{n}": n for n in numbers}
    used = [name for name in names if any(os.path.lexists(folder / name) for folder in folders)]
    if used:
        others = (f"{base}-{n}" for n in itertools.count(2))
        free = next(
            other
            for other in others
            if not any(os.path.lexists(folder / f"{other}-seed-{n}") for folder in folders for n in numbers)
        )
        listed = ", ".join(used[:4]) + (", ..." if len(used) > 4 else "")
        what = f"--seeds {text}: {counted(len(used), 'run')} of these names exist{'s' if len(used) == 1 else ''} already: {listed}"
        rest = [n for name, n in names.items() if name not in used]
        fix = f"type --name {free}"
        raise UserError(what, f"{fix}, or --seeds {','.join(map(str, rest))} for the others" if rest else fix)
    return {name: recipe.model_copy(update={"seed": n}) for name, n in names.items()}


def create(
    path: Path,
    recipe: Recipe,
    target: str,
    plan: Record,
    profiled: Sequence[int] = (),
    retries: int = BUDGETS[Budget.FAILURE],
    slice_: str = "",
) -> RunDir:
    """Written beside `path` and renamed to it, so that a run directory is never half made.

    `plan`: the document of one; `retries`: of failures; `slice_`: the name of the devices that it runs on, "" for those of the target.
    """
    part = RunDir(path.with_name(f".{path.name}.{os.getpid()}.part"))
    try:
        write_json(part.recipe, recipe.model_dump(mode="json"))
        write_json(part.plan, plan)
        if profiled:
            write_json(part.profiled, profiled)
        identity = {"recipe": recipe.name, "fingerprint": fingerprint(recipe)}
        journal.append(part, "created", **identity, target=target, cwd=str(Path.cwd()), retries=retries, slice=slice_)
        part.path.rename(path)
    except OSError:
        shutil.rmtree(part.path, ignore_errors=True)
        if path.exists():
            raise _in_use(path) from None
        raise
    return RunDir(path)


def linked(run: RunDir, runs: Path) -> RunDir:
    """`run` under its name in `runs`, so that every verb finds it where runs are looked for."""
    runs.mkdir(parents=True, exist_ok=True)
    (runs / run.name).symlink_to(run.path.resolve())
    return RunDir(runs / run.name)


def _in_use(path: Path) -> UserError:
    if not RunDir(path).journal.exists():
        return UserError(f"{path} exists and is no run", "type another --name, or move it away")
    return UserError(
        f"run name {path.name!r} is in use",
        f"type `podwright resume {RunDir(path).typed}` to resume it, or another --name",
    )
