"""The verbs of `podwright data`: text into token shards, and what a source holds. The compute half does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podwright.cli import outcomes, show
from podwright.cli.ask import answer, ask
from podwright.cli.exit_codes import of_check
from podwright.cli.options import Json
from podwright.errors import typed_path

verbs = typer.Typer(
    help="Tokenize, count, check and generate training data.", no_args_is_help=True, rich_markup_mode=None
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="a directory of token shards, a .npy file, a file of texts, or the URL of one; `arithmetic`: generated problems",
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        "--columns",
        metavar="C",
        help="of rows with another column of texts: its name, as data.columns of a recipe: '{text: body}'",
    ),
]
TOKENIZER = "`bytes` (a token for each byte), or a Hugging Face directory"


@verbs.command()
def tokenize(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="files of texts (.jsonl, .json, .csv, .parquet, .txt, perhaps compressed); `arithmetic`: generated problems",
        ),
    ],
    tokenizer: Annotated[str, typer.Option("--tokenizer", metavar="T", help=TOKENIZER)],
    out: Annotated[Path, typer.Option("--out", parser=typed_path, metavar="DIR", help="write to this new directory")],
    shard_tokens: Annotated[
        int, typer.Option("--shard-tokens", metavar="N", min=1, help="tokens of a shard")
    ] = 100_000_000,
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """Tokenize text into token shards."""
    options = {"tokenizer": tokenizer, "out": str(out), "shard_tokens": shard_tokens, "columns": columns}
    ask("data-tokenize", options, as_json, outcomes.tokenization, files)


@verbs.command()
def count(
    source: Source,
    tokenizer: Annotated[str, typer.Option("--tokenizer", metavar="T", help=f"for text: {TOKENIZER}")] = "",
    columns: Columns = "",
    as_json: Json = False,
) -> None:
    """Count the documents and tokens of a source."""
    ask("data-count", {"source": source, "tokenizer": tokenizer, "columns": columns}, as_json, outcomes.count)


@verbs.command()
def check(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="a directory of token shards, questions, annotated lines or pairs; a file of it; or the URL of one",
        ),
    ],
    vocab_size: Annotated[
        int,
        typer.Option(
            "--vocab-size",
            metavar="V",
            show_default=False,
            help="vocabulary of the model, for token ids; default: that of the shards",
        ),
    ] = 0,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            metavar="R",
            help="for annotated lines: check their lengths against the token budget of this recipe",
        ),
    ] = "",
    fix: Annotated[
        bool,
        typer.Option("--fix", help="for annotated lines: write the valid ones of NAME.jsonl to a new NAME.good.jsonl"),
    ] = False,
    answers: Annotated[
        str, typer.Option("--answers", metavar="FILE", help="for annotated lines: their schema of answers, a YAML file")
    ] = "",
    root: Annotated[
        str,
        typer.Option(
            "--root",
            metavar="DIR",
            help="for annotated lines and pairs: what paths in them are relative to; default: the folder of the file",
        ),
    ] = "",
    columns: Annotated[
        str,
        typer.Option(
            "--columns",
            metavar="C",
            help="of rows of another layout: which columns to read, as data.columns of a recipe: '{question: q, answer: a}'",
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Check a source for faults. Exit code 1: there are faults."""
    options = {"fix": fix, "recipe": recipe or None, "answers": answers or None, "root": root or None}
    options["columns"] = columns or None
    code, document = answer("data-check", {"source": source, "vocab_size": vocab_size, "options": options})
    if document:
        show.document(document) if as_json else show.faults(document)
    raise typer.Exit(of_check(code == 0 and not document["num_faults"]))


@verbs.command()
def draw(
    folder: Annotated[Path, typer.Argument(parser=typed_path, metavar="DIR", help="a new directory")],
    num_train: Annotated[int, typer.Option("--num-train", metavar="N", min=1, help="lines to train on")] = 1000,
    num_test: Annotated[int, typer.Option("--num-test", metavar="N", min=0, help="lines to hold out")] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="the same seed draws the same files")] = 0,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="write pairs with texts, for Phase 1, instead of questions and answers")
    ] = False,
    as_json: Json = False,
) -> None:
    """Generate synthetic pictures and sounds of cats with labels, to try multimodal training."""
    sizes = {"num_train": num_train, "num_test": num_test, "seed": seed}
    ask("data-draw", {"folder": str(folder), "pairs": pairs, **sizes}, as_json, outcomes.synthetic)
