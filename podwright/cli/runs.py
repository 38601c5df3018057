"""The verbs that begin a run: its plan, and the run itself, or one for each of several seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from podwright.cli import show
from podwright.cli.options import (
    CACHE,
    Cache,
    Compile,
    Fit,
    Jax,
    Json,
    On,
    Only,
    OnSlice,
    Overrides,
    Price,
    Profile,
    RecipeName,
    Retries,
    Runs,
    Seeds,
    Smoke,
    Svg,
)
from podwright.errors import UserError
from podwright.rundir import RUNS, Ending, RunDir

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe
    from podwright.targets import ResolvedTarget

_EXIT = {True: 0, False: 1, None: 2}  # of a plan that says it will run


def plan(
    recipe: RecipeName,
    overrides: Overrides = None,
    on: OnSlice = "local",
    only: Only = "",
    compile_: Compile = "",
    fit: Fit = False,
    cache: Cache = CACHE,
    price: Price = None,
    jax: Jax = "",
    svg: Svg = None,
    smoke: Smoke = 0,
    as_json: Json = False,
) -> None:
    """Say whether a recipe will run on a target or a slice, before anything is started. Exit code 2: nobody can tell."""
    from podwright import targets
    from podwright.plan.compiled.compile import CompileContext

    _compiles(compile_ or fit, price=price, jax=jax)
    resolved = _recipe(recipe, overrides, smoke)
    if compile_ or fit:
        on = targets.devices_named(on)
    shop = CompileContext(cache.expanduser(), show.compiling, jax)
    if fit:
        from podwright.plan.fit import fitted

        document = fitted(partial(_plan_on, only=only), resolved, on, shop, price)
    else:
        document = _plan_on(resolved, on, bool(compile_), only)
    if compile_ and document["ok"] and not document["programs"]:
        from podwright.plan.compiled.verdict import compiled

        document |= compiled(document, resolved, on, compile_, shop, price)
    if svg:
        from podwright.report.figures import memory_chart

        memory_chart.write(document, svg)
    show.document(document) if as_json else show.findings(document)
    raise typer.Exit(_EXIT[document["ok"]])


def run(
    recipe: RecipeName,
    overrides: Overrides = None,
    on: On = "local",
    name: Annotated[str | None, typer.Option("--name", help="default: the recipe's name and the time")] = None,
    smoke: Smoke = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be started, create nothing")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="start it and return; `podwright watch` follows it")] = False,
    force: Annotated[bool, typer.Option("--force", help="start even if the plan found an error")] = False,
    profile: Profile = "",
    seeds: Seeds = None,
    retries: Retries = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Plan, start, follow and report a run. Ctrl-C saves and stops it; `podwright resume` goes on."""
    from podwright import targets
    from podwright.plan.make import refuse
    from podwright.run import create

    if seeds is not None and (said := [one for one in overrides or [] if one.startswith("seed=")]):
        raise UserError(f"{said[0]} and --seeds {seeds} both say which seed", "leave one of them out")
    target = targets.resolve(on)
    traits = target.traits
    shared = target.runs if runs == RUNS else None
    resolved = _recipe(recipe, overrides, smoke)
    profiled = create.steps(profile, resolved) if profile else []
    document = _plan(resolved, target)
    folders = [runs, *([shared] if shared else [])]
    base = create.choose_name(folders, resolved.name, name)
    each = create.seeded(resolved, base, seeds, folders) if seeds is not None else {base: resolved}
    if dry_run:
        from podwright.run.drive import preview

        paths = [(shared or runs) / one for one in each]
        shown = [{"name": path.name, "run_dir": str(path), **preview(path, target), **document} for path in paths]
        for one in shown if not as_json else ():
            show.preview(one)
        if as_json:
            show.document(shown if seeds else shown[0])
        raise typer.Exit(0 if force else _EXIT[document["ok"]])
    if seeds and detach and not traits.queues:
        what = f"--detach would start the runs of {len(each)} seeds at once on the devices of {on}"
        raise UserError(what, "leave --detach out, and they run one after another")
    if not force:
        refuse(document)
    show.problems(document)

    def make(one: str) -> RunDir:
        made = create.create((shared or runs) / one, each[one], on, document, profiled, retries)
        return create.linked(made, runs) if shared else made

    if seeds:
        _several(list(each), make, at_once=traits.queues, watching=not detach, as_json=as_json)
    drive(make(base), "submit" if detach else "follow", as_json)


def _several(
    names: list[str], make: Callable[[str], RunDir], *, at_once: bool, watching: bool, as_json: bool
) -> NoReturn:
    """Runs that differ in their seeds: all of them submitted where they queue up, elsewhere one after another until one does not finish."""
    from podwright.run.listing import row
    from podwright.run.session import attend

    out = sys.stderr if as_json else sys.stdout
    begun: list[RunDir] = []
    ok = here = True
    for name in names:
        begun.append(make(name))
        ok, here = attend(begun[-1], "submit" if at_once else "follow", out)
        if not (ok and here):
            break
    for one in begun if at_once and watching else ():
        here = here and attend(one, "watch", out)[1]
    ok = ok and here
    rows = [row(one) for one in begun]
    if at_once and watching:
        ok = ok and all(r["ending"] == Ending.FINISHED for r in rows)
    show.document(rows) if as_json else show.runs(rows)
    if ok and not as_json:
        print(f"type: podwright report --compare {' '.join(one.typed for one in begun)}")
    raise typer.Exit(0 if ok else 1)


def _recipe(name: str, overrides: list[str] | None, smoke: int) -> Recipe:
    from podwright.recipe import load

    resolved = load.load(name, overrides or [])
    return load.smoke(resolved, smoke) if smoke else resolved


def _compiles(whether: object, price: float | None, jax: str) -> None:
    if price is not None and not whether:
        raise UserError(f"--price {price:g} has no time of a run to be multiplied with", "add --compile")
    if price is not None and not 0 < price < float("inf"):
        raise UserError(f"--price {price:g} is no price of a chip-hour", "type one such as --price 2.70")
    if jax and not whether:
        raise UserError(f"--jax {jax} has nothing to compile", "add --compile")


def _plan_on(recipe: Recipe, on: str, compiling: bool = False, only: str = "") -> dict[str, Any]:
    from podwright import targets

    return _plan(recipe, targets.resolve(on), compiling, only)


def _plan(recipe: Recipe, target: ResolvedTarget, compiling: bool = False, only: str = "") -> dict[str, Any]:
    """The static plan. Who compiles is told what the compiler says of memory, not what an estimate does."""
    from podwright import track
    from podwright.plan import make as static
    from podwright.plan.checks import token_lengths
    from podwright.plan.findings import Finding

    where = target.slice
    findings = token_lengths.counted(recipe, static.check(recipe, where, Path.cwd()))
    memory = static.estimated(findings, recipe, where, Path.cwd())
    if where is not None and not compiling:
        findings += static.memory_findings(memory, recipe, where)
    findings += [Finding("target", r.level, r.what, r.fix) for r in target.check(recipe.kind)]
    findings += [Finding("trackers", "warning", e.what, e.fix) for e in track.check(recipe.trackers)]
    slice_ = where and static.slice_entry(recipe, where, Path.cwd())
    return {
        "recipe": recipe.name,
        "target": target.name,
        "slice": slice_,
        **static.document(static.only(only, findings), memory),
    }


def drive(run: RunDir, verb: str, as_json: bool) -> None:
    """Carry `verb` out on a run with a view of it, then say how the run stands."""
    from podwright.run.listing import row
    from podwright.run.session import attend

    # stdout is the document's alone
    ok, _ = attend(run, verb, sys.stderr if as_json else sys.stdout)
    shown = row(run)
    show.document(shown) if as_json else show.standing(shown)
    raise typer.Exit(0 if ok else 1)
