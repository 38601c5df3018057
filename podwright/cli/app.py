"""The verbs: parse, call one function, print. What is heavy is imported inside the verb that needs it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from podwright import __version__
from podwright.cli import checkpoints, doctor, log_reports, machines, outcomes, pages, rendered, show, targets
from podwright.cli import data as data_verbs
from podwright.cli import recipes as recipe_verbs
from podwright.cli import runs as run_verbs
from podwright.cli.ask import ask
from podwright.cli.exit_codes import ExitCode, of_check
from podwright.cli.log_reports import Language, LogFile, LogProfile, LogRecipe, LogSlice
from podwright.cli.options import Detach, EvalOverrides, Json, RunName, Runs
from podwright.errors import UserError, expanded, from_os, typed_path
from podwright.rundir import RUNS, RunDir


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as e:
            from podwright.recipe.wrong_values import of_message

            e.message = of_message(e.message)
            raise


app = typer.Typer(
    cls=_Verbs,
    help="Train LLMs from recipes on the accelerators you have, and write an evaluated report.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_verbs.shipped, name="recipes")
app.add_typer(recipe_verbs.importers, name="recipe")
app.add_typer(data_verbs.verbs, name="data")
app.add_typer(targets.verbs, name="target")
app.command()(run_verbs.plan)
app.command()(run_verbs.run)
app.command()(doctor.doctor)
app.command()(rendered.render)
app.command()(machines.clean)
app.command()(checkpoints.checkpoints)
app.command()(pages.ui)


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    """Carry out the options that stand before a verb."""
    if version:
        print(f"podwright {__version__}")
        raise typer.Exit()


EXPORTED = "projector.safetensors"  # what only an export has


@app.command("list")
def list_runs(runs: Runs = RUNS, as_json: Json = False) -> None:
    """List all runs with their status, oldest first."""
    from podwright.run import listing

    rows = listing.rows(runs)
    show.document(rows) if as_json else show.runs(rows)
    for row in rows if not as_json else ():
        if row["state"] == "unreadable":
            print(f"{row['name']} is unreadable: {row['detail']}", file=sys.stderr)
        elif row["state"] == "waiting" and (row["fix"] or row["detail"].startswith("Ending:")):  # more than it does
            print(f"{row['name']}: {row['detail']}", file=sys.stderr)
        if row["cleanup"]:
            print(f"{row['name']}: {row['cleanup']}", file=sys.stderr)
        if row["unattended"]:
            print(row["unattended"], file=sys.stderr)
        show.damaged(row)


@app.command()
def watch(name: RunName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Follow a run until it ends. Ctrl-C closes the view, not the run."""
    run_verbs.drive(_find(runs, name), "watch", as_json)


@app.command()
def logs(
    name: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="follow until the attempt ends")] = False,
    process: Annotated[
        int,
        typer.Option("--process", metavar="K", min=0, help="the log of this process (rank), if the run has several"),
    ] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Show the log of the newest attempt of a run."""
    from podwright.run.listing import log

    pieces = log(_find(runs, name), follow, process)
    if as_json:
        show.document({"name": name, "lines": "".join(pieces).splitlines()})
        return
    for text in pieces:
        show.text(text)


@app.command()
def diagnose(
    source: Annotated[
        str,
        typer.Argument(metavar="LOG|DIR|RUN", help="a log file, a directory of logs, a run, or - for standard input"),
    ],
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Find known failures in a log, with cause and fix. Exit code 1: no known failure."""
    from podwright.watch import explain

    path = expanded(source)
    if source == "-":
        matches = explain.stream(iter(lambda: sys.stdin.buffer.read(1 << 20), b""))
    elif path.exists() and not path.is_dir():
        matches = explain.file(path)
    elif path.is_dir() and not any(
        [*path.glob("journal.jsonl"), *path.glob("*/journal.jsonl"), *(runs / source).glob("*.jsonl")]
    ):
        matches = explain.folder(path)
    else:
        matches = explain.run(_find(runs, source, or_log=True))
    show.document({"matches": matches}) if as_json else show.explained(matches)
    raise typer.Exit(of_check(bool(matches)))


@app.command()
def stop(name: RunName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Checkpoint and stop a run; it can be resumed."""
    run_verbs.drive(_find(runs, name), "stop", as_json)


@app.command()
def resume(name: RunName, detach: Detach = False, runs: Runs = RUNS, as_json: Json = False) -> None:
    """Resume a run, or reattach if it is still training.

    It resumes from the last checkpoint; without one it starts at step 0.
    """
    run_verbs.drive(_find(runs, name), "resubmit" if detach else "resume", as_json)


@app.command()
def report(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="the name of a run, or its directory")
    ] = None,
    readme: Annotated[
        Path | None, typer.Option("--readme", parser=typed_path, metavar="FILE", help="add the results to this README")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="compare several runs; lists what is not comparable")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            parser=typed_path,
            metavar="DIR",
            help="with --compare: also write the comparison and its curves there; with --log: write there, default LOG-report",
        ),
    ] = None,
    log: LogFile = "",
    recipe: LogRecipe = "",
    on: LogSlice = "",
    profile: LogProfile = "",
    language: Language = "en",
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the report of a run or of a MaxText log, or compare runs.

    The report of a run is Markdown, HTML and JSON in the directory of the run.
    """
    if log:
        log_reports.write(log, names or [], recipe, on, profile, language, out, readme, compare, as_json)
        return
    log_reports.refuse_without_log(recipe=recipe, on=on, profile=profile, language=language)
    if not names:
        raise UserError(
            "report needs a run or a log",
            "type podwright report RUN, or podwright report --log FILE",
            "missing-argument",
        )
    if compare:
        from podwright.report.comparison import side_by_side

        if readme:
            raise UserError("--readme works only without --compare", "leave one of them out", "options-exclude")
        comparison = side_by_side.write([log_reports.of_log(name) or _find(runs, name) for name in names], out)
        show.document(comparison) if as_json else show.text(side_by_side.text(comparison))
        return
    from podwright.report import page

    if len(names) > 1:
        each = list(dict.fromkeys(names))
        fix = f"type podwright report {'--compare ' if len(each) > 1 else ''}{shlex.join(each)}"
        raise UserError(f"report takes one run, not {len(names)}", fix, "too-many-runs")
    if out:
        raise UserError(
            f"--out {out} works only with --compare; the report of a run is written to its directory",
            "leave --out out",
            "option-needs-other",
        )
    run = log_reports.of_log(names[0]) or _find(runs, names[0])
    result = page.write(run, readme)
    if as_json:
        show.document(result)
        return
    show.report(page.summary(result), run.report, readme)


@app.command("eval")
def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="a run, an export, or a Hugging Face directory")
    ],
    overrides: EvalOverrides = None,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="SRC",
            help="questions or lines: a .jsonl file, a directory, or a hub id; default: the held-out ones of the run",
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, metavar="N", help="only the first N questions; 0: all")] = 0,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of a checkpoint."""
    from podwright.run.mirror import is_storage

    of_run = runs / checkpoint
    place = of_run if of_run.is_dir() else expanded(checkpoint)
    if not place.exists() or is_storage(Path(checkpoint)):  # a run that is kept in a storage is brought to `runs` first
        place = _find(runs, checkpoint).path
    options = {"path": str(place), "data": data, "limit": limit}
    ask("eval", options, as_json, outcomes.evaluation, overrides or [])


@app.command()
def predict(
    name: Annotated[str, typer.Argument(metavar="RUN|DIR", help="a run, or its export")],
    image: Annotated[Path | None, typer.Option("--image", parser=typed_path, metavar="FILE", help="a picture")] = None,
    audio: Annotated[Path | None, typer.Option("--audio", parser=typed_path, metavar="FILE", help="a sound")] = None,
    video: Annotated[
        Path | None,
        typer.Option(
            "--video", parser=typed_path, metavar="FILE", help="a video: its frames, and its audio track if it has one"
        ),
    ] = None,
    text: Annotated[
        str, typer.Option("--text", metavar="TEXT", help="the prompt; default: the prompt of training")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=typed_path,
            metavar="FILE",
            help="write the answer to this new file; default: a file in results/ of the run",
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Answer a picture, sound or video with a multimodal run.

    The answer is JSON in the schema of the run.
    """
    if not (image or audio or video or text):
        raise UserError("predict needs an input", "give --image, --audio, --video or --text", "missing-argument")
    if out and out.exists():
        raise UserError(f"--out {out} exists already", "name a new file", "exists-already")
    media = {"image": image, "audio": audio, "video": video}
    files = {kind: str(path) for kind, path in media.items() if path is not None}
    place = expanded(name) if (expanded(name) / EXPORTED).is_file() else _find(runs, name).path
    options = {"path": str(place), "files": files, "text": text, "out": str(out or "")}
    ask("predict", options, as_json, outcomes.prediction)


@app.command()
def export(
    name: RunName,
    directory: Annotated[Path, typer.Argument(parser=typed_path, metavar="DIR", help="a new directory")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="also write aligner and projector of a multimodal run as ONNX")
    ] = False,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the trained model as a Hugging Face directory."""
    options = {"path": str(_find(runs, name).path), "out": str(directory), "onnx": onnx}
    ask("export", options, as_json, outcomes.exported)


_ALONE = {"--compile": "--compile=quick", "--forward": f"--forward={pages.PORT}"}


def words(argv: list[str]) -> list[str]:
    """What was typed, with the value written out of options that may stand without: typer knows no such options."""
    end = argv.index("--") if "--" in argv else len(argv)  # what follows is no option of ours
    return [*(_ALONE.get(word, word) for word in argv[:end]), *argv[end:]]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; one of the codes of exit_codes.py."""
    argv = words(sys.argv[1:] if argv is None else argv)
    try:
        app(argv, prog_name="podwright")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except UserError as e:
        show.error(e, "--json" in argv)
        return ExitCode.USAGE
    except OSError as e:
        explained = from_os(e)
        if explained is None:
            raise
        show.error(explained, "--json" in argv)
        return ExitCode.USAGE
    return ExitCode.OK


def _find(runs: Path, name: str, or_log: bool = False) -> RunDir:
    from podwright.run import listing

    return listing.find(runs, name, or_log)
