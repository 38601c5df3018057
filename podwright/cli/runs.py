"""The verbs that begin a run: its plan, and the run itself, or one for each of several seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, cast

import typer

from podwright.cli import show
from podwright.cli.exit_codes import ExitCode, of_check, of_run, of_verdict
from podwright.cli.options import (
    CACHE,
    Cache,
    Compile,
    Detach,
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
    RunOverrides,
    Runs,
    Seeds,
    Smoke,
    Svg,
    variables,
)
from podwright.cli.progress import CompileProgress
from podwright.errors import UserError, expanded, warn
from podwright.rundir import RUNS, Ending, RunDir

if TYPE_CHECKING:
    from podwright.plan.compiled.compile import CompileContext
    from podwright.plan.document import Plan
    from podwright.recipe.kinds import JaxRecipe, Recipe
    from podwright.targets import ResolvedTarget

_TOO_SMALL = (
    "held-out",
    "too-few-examples",
    "too-few-tokens",
)  # codes of data that a recipe asks more of than there is


def plan(
    recipe: RecipeName,
    overrides: Overrides = None,
    on: OnSlice = "",
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
    """Check whether a recipe will run on a target or a slice. Starts nothing.

    Exit code 3: refused; 4: inconclusive, something could not be checked.
    """
    from podwright.cli import destination
    from podwright.plan.findings import Verdict
    from podwright.plan.make import checks_named, make
    from podwright.plan.options import PlanOptions

    if jax and not (compile_ or fit):
        raise UserError(f"--jax {jax} needs --compile", "add --compile", "option-needs-other")
    resolved = _recipe(recipe, overrides, smoke)
    context = _context(cache, jax) if compile_ or fit else None
    options = PlanOptions(only=only, depth=compile_, fit=fit, price=price, context=context)
    place = destination.find(on, resolved, generation=fit, only=checks_named(only))
    resolved, planned = _planned(resolved, overrides, smoke, lambda changed: make(changed, place, options))
    if price is not None and not context and planned.step is None and planned.verdict is not Verdict.REFUSED:
        raise UserError(f"--price {price:g}: this plan predicts no step time", "add --compile", "no-step-time")
    if svg:
        from podwright.report.figures import memory_chart

        memory_chart.write(planned.document(), svg)
    show.document(planned.document()) if as_json else show.plan(planned)
    raise typer.Exit(of_verdict(planned.verdict))


def run(
    recipe: RecipeName,
    overrides: RunOverrides = None,
    on: On = "local",
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="name of the run; default: the recipe's name and the time"),
    ] = None,
    smoke: Smoke = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be started, create nothing")] = False,
    detach: Detach = False,
    force: Annotated[bool, typer.Option("--force", help="start even if the plan refuses it")] = False,
    compile_: Compile = "",
    fit: Fit = False,
    cache: Cache = CACHE,
    profile: Profile = "",
    seeds: Seeds = None,
    retries: Retries = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Plan, start, follow and report a run. Ctrl-C checkpoints and stops it; `podwright resume` resumes it."""
    from podwright import targets
    from podwright.cli import destination
    from podwright.plan.make import make
    from podwright.plan.options import PlanOptions
    from podwright.recipe import load
    from podwright.run import create
    from podwright.run.session import require_attended

    seed_overrides = [override for override in overrides or [] if override.startswith("seed=")]
    if seeds is not None and seed_overrides:
        raise UserError(
            f"{seed_overrides[0]} and --seeds {seeds} both set the seed", "leave one of them out", "options-exclude"
        )
    target = targets.resolve(on)
    shared = target.runs if runs == RUNS else None
    typed, changes = variables(overrides)
    resolved = _recipe(recipe, changes, smoke)
    ready = create.prepared(resolved, target, typed)
    slice_ = destination.slice_of(target, ready.kept)
    target = target.for_slice(slice_)
    traits = target.traits
    profiled = create.steps(profile, ready.kept) if profile else []
    context = _context(cache, "") if compile_ or fit else None
    options = PlanOptions(depth=compile_, fit=fit, context=context, starting=True)
    changed, planned = _planned(ready.planned, changes, smoke, lambda r: make(r, destination.of(target, r), options))
    resolved = ready.kept if changed is ready.planned else changed
    if planned.fit:
        resolved = load.override(resolved, [f"{key}={value}" for key, value in planned.fit.overrides.items()])
    folders = [runs, *([shared] if shared else [])]
    base = create.choose_name(folders if seeds is None else [], resolved.name, name)
    each = create.seeded(resolved, base, seeds, folders) if seeds is not None else {base: resolved}
    shown = []
    if dry_run or traits.pods:
        paths = [(shared or runs) / run_name for run_name in each]
        shown = _previews(paths, target, each)
    if dry_run:
        _dry_run(planned, shown, as_json, several=bool(seeds), force=force)
        raise typer.Exit(ExitCode.OK if force else of_verdict(planned.verdict))
    if seeds and detach and not traits.queues:
        what = f"--detach would start the runs of {len(each)} seeds at once on the devices of {on}"
        raise UserError(what, "leave --detach out, and they run one after another", "option-needs-queue")
    if detach:
        require_attended(on, traits)
    if planned.errors and not force:
        _refused(planned, as_json)
    targets.require_programs(traits)
    show.problems(planned)
    if ready.added:  # on stderr, for stdout may be a document
        print(f"added to the arguments: {' '.join(f'{k}={v}' for k, v in ready.added.items())}", file=sys.stderr)

    def begin(run_name: str) -> RunDir:
        path = (shared or runs) / run_name
        begun = create.create(path, each[run_name], on, planned.document(), profiled, retries, slice_)
        return create.linked(begun, runs) if shared else begun

    if seeds:
        _several(list(each), begin, at_once=traits.queues, watching=not detach, as_json=as_json)
    drive(begin(base), "submit" if detach else "follow", as_json)


def _previews(paths: list[Path], target: ResolvedTarget, recipes: dict[str, Recipe]) -> list[show.Row]:
    """What starting each run would create. UserError for what its target cannot run, before machines are requested for it."""
    from podwright.run.drive import preview

    return [{"name": p.name, "run_dir": str(p), **preview(p, target, recipes[p.name])} for p in paths]


def _dry_run(planned: Plan, shown: list[show.Row], as_json: bool, *, several: bool, force: bool) -> None:
    from podwright.cli import dry_run

    for row in shown if not as_json else ():
        dry_run.preview(planned, row, force=force)
    if as_json:
        listed = [row | planned.document() for row in shown]
        show.document(listed if several else listed[0])


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
    for run in begun if at_once and watching else ():
        here = here and attend(run, "watch", out)[1]
    ok = ok and here
    rows = [row(run) for run in begun]
    if at_once and watching:
        ok = ok and all(r["ending"] == Ending.FINISHED for r in rows)
    show.document(rows) if as_json else show.runs(rows)
    if ok and not as_json:
        print(f"type: podwright report --compare {' '.join(run.typed for run in begun)}")
    raise typer.Exit(of_check(ok) if here else ExitCode.INTERRUPTED)


def _recipe(name: str, overrides: list[str] | None, smoke: int) -> Recipe:
    from podwright.cli.recipe_names import load_named
    from podwright.recipe import load

    resolved = load_named(name, overrides or [])
    return load.smoke(resolved, smoke) if smoke else resolved


def _planned(
    recipe: Recipe, typed: Sequence[str] | None, smoke: int, make: Callable[[Recipe], Plan]
) -> tuple[Recipe, Plan]:
    """The plan, and the recipe that it is of: where the data at hand is too small for what `recipe` holds out, and nobody typed that, the
    usual share is held out. A smoke run cuts down what was typed."""
    from podwright.recipe import kinds, load

    planned = make(recipe)
    override = kinds.find(recipe.kind).held_out
    key = override.partition("=")[0]
    is_typed = any(f"{key}.".startswith(f"{text.partition('=')[0]}.") for text in typed or ())
    if not override or (is_typed and not smoke) or not any(f.code in _TOO_SMALL for f in planned.errors):
        return recipe, planned
    changed = load.override(recipe, [override])
    source = cast("JaxRecipe", changed).data.source
    if changed == recipe or not expanded(source).exists():
        return recipe, planned
    warn(f"{override}: {source} is too small for what {recipe.name} holds out")
    return changed, make(changed)


def _context(cache: Path, jax: str) -> CompileContext:
    from podwright.plan.compiled.compile import CompileContext

    progress = CompileProgress()
    return CompileContext(expanded(cache), progress, jax, announce=progress.announce)


def _refused(plan: Plan, as_json: bool) -> NoReturn:
    for finding in plan.findings:
        if finding.code == "not-done":  # --compile or --fit
            warn(finding.message)
    try:
        plan.refuse()
    except UserError as e:
        show.error(e, as_json)
    raise typer.Exit(ExitCode.REFUSED)


def drive(run: RunDir, verb: str, as_json: bool) -> None:
    """Carry `verb` out on a run with a view of it, then say how the run stands."""
    from podwright.run.listing import row
    from podwright.run.session import attend
    from podwright.watch.metrics import recipe_if_readable

    # stdout is the document's alone
    _, here = attend(run, verb, sys.stderr if as_json else sys.stdout)
    shown = row(run, recipe=recipe_if_readable(run))
    show.document(shown) if as_json else show.standing(shown)
    raise typer.Exit(of_run(verb, shown["ending"], not here, shown["cleanup"] or shown["unattended"]))
