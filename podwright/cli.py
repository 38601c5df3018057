"""The verbs: parse, call one function, print. What is heavy is imported inside the verb that needs it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podwright import cli_data, cli_doctor, cli_recipe, cli_target, show
from podwright.ask import ask
from podwright.errors import UserError, from_os
from podwright.rundir import RUNS, RunDir

if TYPE_CHECKING:
    from podwright.recipe.kinds import Recipe

app = typer.Typer(
    help="Take an LLM training recipe to a measured, written-up result on the accelerators you have.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
recipes = typer.Typer(help="List recipes, or show one with the meaning of its values.", rich_markup_mode=None)
app.add_typer(recipes, name="recipes")
app.add_typer(cli_recipe.verbs, name="recipe")
app.add_typer(cli_data.verbs, name="data")
app.add_typer(cli_target.verbs, name="target")
app.command()(cli_doctor.doctor)

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="a shipped recipe's name, or a YAML file")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="such as training.max_steps=10")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="the name of a run, or its directory")]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", envvar="PODWRIGHT_RUNS", help="where runs are kept")]
On = Annotated[str, typer.Option("--on", metavar="TARGET", help="local, cpu-N for N CPU devices here, or a target of yours")]
OnSlice = Annotated[str, typer.Option("--on", metavar="TARGET|SLICE", help="a target, or a slice such as v6e-16, tpu7x-4x4x8, 8xH100-80GB")]
Compile = Annotated[str, typer.Option("--compile", metavar="[=full]", help="compile every program for it; =full generates code too")]
Only = Annotated[str, typer.Option("--only", metavar="CHECK,...", help="only these checks, such as mesh,memory")]
Fit = Annotated[bool, typer.Option("--fit", help="search meshes, micro-batches and remat; the compiler tries the best few")]
Cache = Annotated[Path, typer.Option("--cache", metavar="DIR", envvar="PODWRIGHT_CACHE", help="where compilers' verdicts are kept")]
Jax = Annotated[str, typer.Option("--jax", metavar="VERSION", help="compile with this jax and its libtpu; installed once, beside --cache")]
Price = Annotated[float | None, typer.Option("--price", metavar="X", help="money per chip-hour: say what the run costs (with --compile)")]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="draw what each program needs of the memory")]
Smoke = Annotated[int, typer.Option("--smoke", metavar="3|10", help="only so many steps, on little data")]
Profile = Annotated[str, typer.Option("--profile", metavar="N[-M]", help="have jax's profiler trace these steps, such as 10-12")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]

CACHE = Path("~/.cache/podwright")
EXPORTED = "projector.safetensors"  # what only an export has


@recipes.callback(invoke_without_command=True)
def recipes_default(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        recipes_list(as_json)


@recipes.command("list")
def recipes_list(as_json: Json = False) -> None:
    """The shipped recipes, each with the hardware and time its author names."""
    from podwright.recipe import load

    found = [load.load(name) for name in load.shipped()]
    rows = [{"name": r.name, "description": r.description, **r.expect.model_dump()} for r in found]
    show.document(rows) if as_json else show.recipes(rows)


@recipes.command("show")
def recipes_show(recipe: RecipeName, overrides: Overrides = None, as_json: Json = False) -> None:
    """Every value of a recipe, resolved, with its meaning."""
    from podwright.recipe import load

    resolved = load.load(recipe, overrides or [])
    values = resolved.model_dump(mode="json")
    show.document(values) if as_json else show.settings(values, load.fields(type(resolved)))


@app.command()
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
    from podwright.plan.compile import Workshop

    _compiles(compile_ or fit, price=price, jax=jax)
    resolved = _recipe(recipe, overrides, smoke)
    if compile_ or fit:
        on = targets.devices_named(on)
    shop = Workshop(cache.expanduser(), show.compiling, jax)
    if fit:
        from podwright.plan.fit import fitted

        document = fitted(partial(_plan, only=only), resolved, on, shop, price)
    else:
        document = _plan(resolved, on, bool(compile_), only)
    if compile_ and document["ok"] and not document["programs"]:
        from podwright.plan.verdict import compiled

        document |= compiled(document, resolved, on, compile_, shop, price)
    if svg:
        from podwright.report import room

        room.write(document, svg)
    show.document(document) if as_json else show.findings(document)
    raise typer.Exit({True: 0, False: 1, None: 2}[document["ok"]])


@app.command()
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
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Plan, start, follow and report a run. Ctrl-C saves and stops it; `podwright resume` goes on."""
    from podwright import targets
    from podwright.plan.check import refuse
    from podwright.run import create

    targets.devices(on)
    shared = targets.runs(on) if runs == RUNS else None
    resolved = _recipe(recipe, overrides, smoke)
    profiled = create.steps(profile, resolved) if profile else []
    document = _plan(resolved, on)
    path = (shared or runs) / create.choose_name([runs, *([shared] if shared else [])], resolved.name, name)
    if dry_run:
        from podwright.run.drive import preview

        shown = {"name": path.name, "run_dir": str(path), **preview(path, on), **document}
        show.document(shown) if as_json else show.preview(shown)
        return
    if not force:
        refuse(document)
    show.problems(document)
    made = create.create(path, resolved, on, document, profiled)
    _drive(create.linked(made, runs) if shared else made, "submit" if detach else "follow", as_json)


@app.command("list")
def list_runs(runs: Runs = RUNS, as_json: Json = False) -> None:
    """All runs and how they stand, oldest first."""
    from podwright.run import listing

    rows = listing.rows(runs)
    show.document(rows) if as_json else show.runs(rows)


@app.command()
def watch(name: RunName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Follow a run until it has ended. Ctrl-C only leaves."""
    _drive(_find(runs, name), "watch", as_json)


@app.command()
def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the attempt has ended")] = False,
    process: Annotated[int, typer.Option("--process", metavar="K", min=0, help="of a run in several processes")] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """What the newest attempt of a run has printed."""
    from podwright.run.listing import log

    pieces = log(_find(runs, name), follow, process)
    if as_json:
        show.document({"name": name, "lines": "".join(pieces).splitlines()})
        return
    for text in pieces:
        show.text(text)


@app.command()
def diagnose(
    source: Annotated[str, typer.Argument(metavar="LOG|RUN", help="a log file, - for what is piped in, or a run")],
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Say which known failures a log tells of, why they come about, and what to do; exit code 1 when it knows none."""
    from podwright.watch import explain

    if source == "-":
        matches = explain.lines(sys.stdin)
    else:
        matches = explain.file(Path(source)) if Path(source).is_file() else explain.run(_find(runs, source))
    show.document({"matches": matches}) if as_json else show.explained(matches)
    raise typer.Exit(0 if matches else 1)


@app.command()
def stop(name: RunName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Let a run save and stop; it can be resumed."""
    _drive(_find(runs, name), "stop", as_json)


@app.command()
def resume(name: RunName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Go on with a run: follow its living trainer, or start the next attempt from the last checkpoint."""
    _drive(_find(runs, name), "resume", as_json)


@app.command()
def report(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="the name of a run, or its directory")],
    readme: Annotated[Path | None, typer.Option("--readme", metavar="FILE", help="add the results to this README")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="set several runs side by side, and say what is not comparable")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="write the comparison there, with curves")] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write what a run measured as Markdown, HTML and JSON; with --compare, set runs side by side."""
    if compare:
        from podwright.report import sidebyside

        if readme:
            raise UserError("--readme takes the results of one run", "leave --compare or --readme out")
        found = sidebyside.write([_find(runs, name) for name in names], out)
        show.document(found) if as_json else show.text(sidebyside.text(found))
        return
    from podwright.report import page

    if len(names) > 1:
        raise UserError(f"{len(names)} runs are no one report", f"type podwright report --compare {' '.join(names)}")
    if out:
        raise UserError(f"--out {out} is for a comparison; the report of a run lies in its directory", "leave --out out")
    result = page.write(_find(runs, names[0]), readme)
    show.document(result) if as_json else show.values(result)


@app.command("eval")
def evaluate(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="a run, an export, or a Hugging Face directory")],
    overrides: Overrides = None,
    data: Annotated[
        str, typer.Option("--data", metavar="SRC", help="a .jsonl file, a directory, or a hub id; a multimodal run knows its own")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="only the first N questions; 0: all")] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of a checkpoint."""
    of_run = runs / checkpoint
    place = of_run if of_run.is_dir() else Path(checkpoint)
    options = [*(["--data", data] if data else []), *(["--limit", str(limit)] if limit else [])]
    ask(["eval", str(place), *(overrides or []), *options], as_json)


@app.command()
def predict(
    name: Annotated[str, typer.Argument(metavar="RUN|DIR", help="a run, or what export made of it")],
    image: Annotated[Path | None, typer.Option("--image", metavar="FILE")] = None,
    audio: Annotated[Path | None, typer.Option("--audio", metavar="FILE")] = None,
    video: Annotated[Path | None, typer.Option("--video", metavar="FILE", help="its pictures, and its sound if it has one")] = None,
    text: Annotated[str, typer.Option("--text", metavar="TEXT", help="what to ask; default: what training asks")] = "",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="default: results/ in the run")] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Answer one picture, sound or video with the model of a multimodal run, as JSON that keeps to the schema."""
    if not (image or audio or video or text):
        raise UserError("there is nothing to look at", "give --image, --audio, --video or --text")
    given = {"--image": image, "--audio": audio, "--video": video, "--out": out, "--text": text or None}
    options = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    place = Path(name) if (Path(name) / EXPORTED).is_file() else _find(runs, name).path
    ask(["predict", str(place), *options], as_json)


@app.command()
def export(
    name: RunName,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="a new directory")],
    onnx: Annotated[bool, typer.Option("--onnx", help="of a multimodal run: its aligner and projector as ONNX too")] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the trained model as a Hugging Face directory."""
    ask(["export", str(_find(runs, name).path), str(directory), *(["--onnx"] if onnx else [])], as_json)


@app.command()
def ui(
    name: Annotated[str | None, typer.Argument(metavar="[RUN]", help="default: all runs")] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Open the tracker's page on the runs, until Ctrl-C. With --json, say the command that does."""
    from podwright import track
    from podwright.shell import become

    argv = track.ui_argv(_find(runs, name).path if name else runs)
    if as_json:
        show.document({"argv": argv})
    else:
        become(argv, {"MLFLOW_DISABLE_TELEMETRY": "true"})


def words(argv: list[str]) -> list[str]:
    """What was typed, with the value written out of the one option that may stand without: typer knows no such options."""
    return ["--compile=quick" if word == "--compile" else word for word in argv]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; its exit code: 0 well, 1 not, 2 the user has to change something."""
    argv = words(sys.argv[1:] if argv is None else argv)
    try:
        app(argv, prog_name="podwright")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 1
    except KeyboardInterrupt:
        return 130
    except UserError as e:
        return show.error(e, "--json" in argv)
    except OSError as e:
        explained = from_os(e)
        if explained is None:
            raise
        return show.error(explained, "--json" in argv)
    return 0


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


def _plan(recipe: Recipe, on: str, compiling: bool = False, only: str = "") -> dict[str, Any]:
    """The static plan. Who compiles is told what the compiler says of memory, not what an estimate does."""
    from podwright import targets, track
    from podwright.plan import check as static
    from podwright.plan.findings import Finding

    where = targets.place(on)
    findings = static.check(recipe, where, Path.cwd())
    memory = static.estimated(findings, recipe, where, Path.cwd())
    if where is not None and not compiling:
        findings += static.memory_findings(memory, recipe, where)
    findings += [Finding("target", r.level, r.what, r.fix) for r in targets.check(on, recipe.kind)]
    findings += [Finding("trackers", "warning", e.what, e.fix) for e in track.check(recipe.trackers)]
    slice_ = where and static.slice_entry(recipe, where, Path.cwd())
    return {"recipe": recipe.name, "target": on, "slice": slice_, **static.document(static.only(only, findings), memory)}


def _find(runs: Path, name: str) -> RunDir:
    from podwright.run import listing

    return listing.find(runs, name)


def _drive(run: RunDir, verb: str, as_json: bool) -> None:
    """Carry `verb` out on a run with a view of it, then say how the run stands."""
    from podwright.run.attend import attend
    from podwright.run.listing import row

    # stdout is the document's alone
    ok = attend(run, verb, sys.stderr if as_json else sys.stdout)
    shown = row(run)
    show.document(shown) if as_json else show.standing(shown)
    raise typer.Exit(0 if ok else 1)
