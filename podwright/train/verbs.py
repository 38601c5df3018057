"""What the other half asks of the trainer's packages besides an attempt: a verb each, which prints one JSON document, or several, one a line.

`eval CHECKPOINT --data SOURCE`, `export RUN_DIR OUT_DIR`, `predict RUN_DIR` and `data VERB` are a user's;
`compile SPEC RECORD`, `measure SPEC RECORD`, `memory`, `check RECIPE` and `facts` are the plan's; `devices` is that of a target whose
machines were created for the run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podwright import extras
from podwright.errors import UserError, from_os
from podwright.recipe import load
from podwright.recipe.paths import require_new_directory
from podwright.rundir import RunDir, recipe_of
from podwright.train import entry

Document = dict[str, Any]


def answer(verb: Callable[[list[str]], Document | list[Document]], argv: list[str]) -> int:
    """Print what a verb answers, or what a user has to change; the exit status."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what is said on the way is no part of the answer
            documents = verb(argv)
        for document in documents if isinstance(documents, list) else [documents]:
            print(json.dumps(document))
    except UserError as e:
        return _refused(e)
    except OSError as e:
        if (explained := from_os(e)) is None:
            raise
        return _refused(explained)
    except ModuleNotFoundError as e:
        extra = extras.of(e.name or "")
        if not extra:
            raise
        what = f"the package {e.name} is not installed here"
        return _refused(UserError(what, extras.install(extra), "missing-package"))
    return 0


def _refused(e: UserError) -> int:
    print(json.dumps(e.document()))
    return 2


def _entry(path: str, without: str) -> entry.TrainerEntry:
    """What answers for the run in `path`; `without` is the kind whose models lie in directories without a recipe."""
    run = RunDir(Path(path))
    with entry.naming(run.recipe):
        return entry.of(recipe_of(run)["kind"] if run.recipe.exists() else without)


def _eval(*overrides: str, path: str, data: str, limit: int) -> Document:
    return _entry(path, "grpo").evaluate(Path(path), data, limit, overrides)


def _export(*, path: str, out: str, onnx: bool) -> Document:
    return _entry(path, "grpo").export(Path(path), Path(out), onnx)


def _predict(*, path: str, files: dict[str, str], text: str, out: str) -> Document:
    named = {name: Path(file) for name, file in files.items()}
    return _entry(path, "multimodal").predict(Path(path), named, text, Path(out) if out else None)


def _tokenize(*files: str, tokenizer: str, out: str, shard_tokens: int, columns: str) -> Document:
    from podwright.data import shards
    from podwright.recipe.columns import of_text

    return shards.tokenize(list(files), tokenizer, Path(out), shard_tokens, of_text("--columns", columns))


def _count(*, source: str, tokenizer: str, columns: str) -> Document:
    from podwright.data import shards
    from podwright.recipe.columns import of_text

    return shards.count(source, tokenizer, of_text("--columns", columns))


def _check_data(*, source: str, vocab_size: int, options: dict[str, Any]) -> Document:
    """Of annotated lines and pairs, to which alone most `options` belong, else of questions, text or tokens."""
    from podwright.data import faults, line_check
    from podwright.recipe import columns

    typed = options.pop("columns")
    of_lines = columns.parse("--columns", typed) if typed else {}
    of_others = None if isinstance(of_lines, dict) else of_lines
    if isinstance(of_lines, dict):
        options["columns"] = of_lines
        record = line_check.check(Path(source), line_check.CheckOptions(**options))
        if record is not None:
            return record
    for option, value in options.items():
        if value:
            raise UserError(
                f"--{option} is for annotated lines, and {source} has none", f"leave --{option} out", "no-effect"
            )
    return faults.check(source, vocab_size or None, of_others)


def _draw(*, folder: str, num_train: int, num_test: int, seed: int, pairs: bool) -> Document:
    from podwright.data import synthetic_images, synthetic_pairs

    require_new_directory(folder, Path(folder))
    (synthetic_pairs if pairs else synthetic_images).write(Path(folder), num_train, num_test, seed)
    return {"out": folder, "train": num_train, "val": num_test}


def _compile(argv: list[str]) -> Document:
    from podwright.train import aot

    spec, record = map(Path, argv)
    aot.run(json.loads(spec.read_text()), record)
    return {}


def _memory(argv: list[str]) -> Document:
    from podwright.train.multimodal import memory

    return memory.needs(json.loads(argv[0]))


def _check(argv: list[str]) -> list[Document]:
    """A finding of the plan a line, of a recipe as a plan or its user writes it. The words behind it are sections that are left out."""
    try:
        recipe = load.parse(json.loads(Path(argv[0]).read_text()))
    except ValueError:  # JSON of a plan may hold what YAML reads otherwise, such as surrogates
        recipe = load.load(argv[0])
    return entry.of(recipe.kind).check(recipe, argv[1:])


def _facts(argv: list[str]) -> Document:
    from podwright.train import facts

    parser = argparse.ArgumentParser(prog="python -m podwright.train facts")
    for name in ("--folder", "--peer", "--file"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--storage", metavar="URL", default="")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--meet", metavar="HOST:PORT")
    parser.add_argument("--patience", type=float, default=25.0)
    args = parser.parse_args(argv)
    record = facts.gather(args.folder, args.peer, args.file, args.storage)
    if args.meet and len(args.peer) > 1 and "torch" in record["versions"]:
        from podwright.train.multimodal.processes import network

        host, _, port = args.meet.rpartition(":")
        record["network"] = network.measure(args.rank, len(args.peer), host, int(port), args.patience)
    return record


def _devices(argv: list[str]) -> Document:
    from podwright.train import device_check

    parser = argparse.ArgumentParser(prog="python -m podwright.train devices")
    parser.add_argument("--storage", metavar="URL", default="")
    return device_check.run(parser.parse_args(argv).storage)


def _measure(argv: list[str]) -> Document:
    from podwright.train import measure

    spec, record = map(Path, argv)
    measure.run(json.loads(spec.read_text()), record)
    return {}


def _named(verb: Callable[..., Document]) -> Callable[[list[str]], Document]:
    """A verb whose first word is a JSON object of its options; the words behind it are a list that it takes."""
    return lambda argv: verb(*argv[1:], **json.loads(argv[0]))


def _of_rows(verb: Callable[..., Document], of_any_kind: bool = False) -> Callable[[list[str]], Document]:
    """As `_named`, for a verb that has no recipe: what it says of columns names its option --columns."""

    def act(argv: list[str]) -> Document:
        from podwright.data.layouts import by_option

        try:
            document = _named(verb)(argv)
        except UserError as e:
            raise UserError(by_option(e.what, of_any_kind), by_option(e.fix, of_any_kind), e.code) from e
        for fault in document.get("faults", ()):
            fault["message"] = by_option(fault["message"], of_any_kind)
        return document

    return act


VERBS: Mapping[str, Callable[[list[str]], Document | list[Document]]] = MappingProxyType(
    {
        "eval": _named(_eval),
        "export": _named(_export),
        "predict": _named(_predict),
        "data-tokenize": _of_rows(_tokenize),
        "data-count": _of_rows(_count),
        "data-check": _of_rows(_check_data, of_any_kind=True),
        "data-draw": _named(_draw),
        "compile": _compile,
        "measure": _measure,
        "memory": _memory,
        "check": _check,
        "facts": _facts,
        "devices": _devices,
    }
)
