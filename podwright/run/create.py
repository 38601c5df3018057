"""Make the directory of a new run, whole or not at all, under a name that is free."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from podwright.errors import UserError
from podwright.recipe import kinds
from podwright.recipe.kinds import JaxRecipe, PreparedRecipe, Recipe
from podwright.recipe.load import fingerprint
from podwright.run import journal
from podwright.run.states import BUDGETS, Budget
from podwright.rundir import Record, RunDir, part_of, write_json
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
        names = itertools.chain([base], (f"{base}-{n}" for n in itertools.count(2)))
        return next(name for name in names if not any(os.path.lexists(folder / name) for folder in folders))
    if not _NAME.fullmatch(wanted):
        raise UserError(
            f"--name {wanted!r} cannot be the name of a directory", "use letters, digits, '.', '_' and '-'", "bad-name"
        )
    for folder in folders:
        if os.path.lexists(folder / wanted):
            raise _in_use(folder / wanted)
    return wanted


def _require_writable(folder: Path) -> None:
    """Of a folder that is not there yet, the nearest one above it that is."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        what = f"--runs {folder}: {existing} is no directory that can be written"
        raise UserError(what, "type --runs with one that can be, or change its permissions", "unusable-path")


def require_startable(recipe: Recipe, target: ResolvedTarget) -> None:
    """UserError for a recipe of a kind that the target cannot start."""
    starts_on, pods = kinds.find(recipe.kind).starts_on, target.traits.pods
    if ("pods" if pods else "hosts") in starts_on:
        return
    what = f"{recipe.name} is of kind {recipe.kind}, which target {target.name} cannot start"
    others = "of GKE" if "pods" in starts_on else "that is not of kind=gke"
    raise UserError(what, f"type --on with a target {others}; `podwright target list` shows yours", "wrong-kind")


def prepared(recipe: Recipe, target: ResolvedTarget, typed: Mapping[str, str]) -> PreparedRecipe:
    """The recipe with the values that were `typed` for its variables. UserError where the target cannot start it, for a variable that it does
    not have, and for one of which neither the command line nor the target has a value."""
    require_startable(recipe, target)
    prepare = kinds.find(recipe.kind).prepare
    if prepare:
        ready: PreparedRecipe = kinds.resolve(prepare)(recipe, target.require_settings(), target.name, typed)
        return ready
    if typed:
        raise UserError(f"{recipe.name} has no variable {next(iter(typed))}", "leave it out", "unknown-variable")
    return PreparedRecipe(recipe, recipe)


def steps(text: str, recipe: Recipe) -> list[int]:
    """The steps that `--profile TEXT` names."""
    match = re.fullmatch(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last:
        raise UserError(f"--profile {text!r} names no steps", "type --profile 10, or --profile 10-12", "bad-step-range")
    if not kinds.find(recipe.kind).traced:
        raise UserError(
            f"--profile {text}: jax's profiler cannot trace a run of kind {recipe.kind}",
            "leave --profile out",
            "wrong-kind",
        )
    most = cast(JaxRecipe, recipe).training.max_steps
    if most and last > most:
        raise UserError(
            f"--profile {text}: there is no step {last}, training.max_steps={most}",
            f"type --profile {most} or less",
            "bad-step-range",
        )
    return list(range(first, last + 1))


def seeded(recipe: Recipe, base: str, text: str, folders: Sequence[Path]) -> dict[str, Recipe]:
    """By the name of its run, the recipe with each of the seeds that `--seeds TEXT` names."""
    if "seed" not in type(recipe).model_fields:
        raise UserError(
            f"--seeds {text}: a recipe of kind {recipe.kind} has no seed", "leave --seeds out", "wrong-kind"
        )
    parts = [re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip()) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    if (count := sum(map(len, ranges))) > _MOST_SEEDS:
        raise UserError(
            f"--seeds {text} are {count} runs", f"at most {_MOST_SEEDS} are started at once", "too-many-runs"
        )
    numbers = [n for group in ranges for n in group]
    if None in parts or not all(ranges) or len(set(numbers)) != len(numbers):
        raise UserError(
            f"--seeds {text!r} names no seeds, or one twice", "type --seeds 0,1,2, or --seeds 0-4", "bad-seeds"
        )
    recipes: dict[str, Recipe] = {f"{base}-seed-{n}": recipe.model_copy(update={"seed": n}) for n in numbers}
    for name in recipes:
        choose_name(folders, recipe.name, name)
    return recipes


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
    identity = {"recipe": recipe.name, "fingerprint": fingerprint(recipe)}
    options = {"target": target, "cwd": str(Path.cwd()), "retries": retries, "slice": slice_}
    try:
        with part_of(path, f".{path.name}") as folder:
            part = RunDir(folder)
            write_json(part.recipe, recipe.model_dump(mode="json"))
            write_json(part.plan, plan)
            if profiled:
                write_json(part.profiled, profiled)
            journal.append(part, "created", **identity, **options)
    except OSError:
        if os.path.lexists(path):
            raise _in_use(path) from None
        raise
    return RunDir(path)


def linked(run: RunDir, runs: Path) -> RunDir:
    """`run` under its name in `runs`, so that every verb finds it where runs are looked for."""
    runs.mkdir(parents=True, exist_ok=True)
    (runs / run.name).symlink_to(run.path.resolve())
    return RunDir(runs / run.name)


def _in_use(path: Path) -> UserError:
    what = f"run name {path.name!r} is in use: {path} exists"
    return UserError(
        what, f"type `podwright resume {RunDir(path).typed}` to resume it, or another --name", "name-in-use"
    )
