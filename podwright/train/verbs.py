"""What the other half asks of the trainer's packages besides an attempt: a verb each, which prints one JSON document, or several, one a line.

`eval CHECKPOINT --data SOURCE`, `export RUN_DIR OUT_DIR`, `predict RUN_DIR` and `data VERB` are a user's;
`compile SPEC RECORD`, `measure SPEC RECORD`, `memory`, `check RECIPE` and `facts` are the plan's; `devices` is that of a target whose
machines were created for the run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podwright.errors import UserError, from_os
from podwright.recipe import answers, load
from podwright.recipe.paths import require_new_directory
from podwright.rundir import RunDir, recipe_of
from podwright.train import entry

Document = dict[str, Any]


def answer(verb: Callable[[list[str]], Document | list[Document]], argv: list[str]) -> int:
    """Print what a verb answers, or what a user has to change; the exit status."""
    try:
        documents = verb(argv)
        for document in documents if isinstance(documents, list) else [documents]:
            print(json.dumps(document))
    except UserError as e:
        return _refused(e)
    except OSError as e:
        if (explained := from_os(e)) is None:
            raise
        return _refused(explained)
    return 0


def _refused(e: UserError) -> int:
    print(json.dumps({"error": e.what, "fix": e.fix}))
    return 2


def _entry(path: Path, without: str) -> entry.TrainerEntry:
    """What answers for the run in `path`; `without` is the kind whose models lie in directories without a recipe."""
    run = RunDir(path)
    with entry.naming(run.recipe):
        return entry.of(recipe_of(run)["kind"] if run.recipe.exists() else without)


def _eval(argv: list[str]) -> Document:
    parser = argparse.ArgumentParser(prog="podwright eval")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--data", default="")
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args(argv)
    return _entry(args.checkpoint, "grpo").evaluate(args.checkpoint, args.data, args.limit, args.overrides)


def _export(argv: list[str]) -> Document:
    parser = argparse.ArgumentParser(prog="podwright export")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--onnx", action="store_true")
    args = parser.parse_args(argv)
    return _entry(args.run, "grpo").export(args.run, args.out, args.onnx)


def _predict(argv: list[str]) -> Document:
    parser = argparse.ArgumentParser(prog="podwright predict")
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", default="")
    parser.add_argument("--out", type=Path)
    for name in answers.MEDIA:
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args(argv)
    files = {name: path for name in answers.MEDIA if (path := getattr(args, name)) is not None}
    return _entry(args.run, "multimodal").predict(args.run, files, args.text, args.out)


def _data(argv: list[str]) -> Document:
    if argv[0] == "draw":
        return _draw(argv[1:])
    if argv[0] == "check" and (record := _check_annotated(argv[1:])) is not None:
        return record
    from podwright.data import faults, shards

    parser = argparse.ArgumentParser(prog="podwright data")
    verbs = parser.add_subparsers(dest="verb", required=True)
    tokenize = verbs.add_parser("tokenize")
    tokenize.add_argument("files", nargs="+")
    tokenize.add_argument("--tokenizer", required=True)
    tokenize.add_argument("--out", type=Path, required=True)
    tokenize.add_argument("--shard-tokens", type=int, required=True)
    for name, option, kind in (("count", "--tokenizer", str), ("check", "--vocab-size", int)):
        subparser = verbs.add_parser(name)
        subparser.add_argument("source")
        subparser.add_argument(option, type=kind)
    args = parser.parse_args(argv)
    if args.verb == "tokenize":
        return shards.tokenize(args.files, args.tokenizer, args.out, args.shard_tokens)
    return (
        shards.count(args.source, args.tokenizer)
        if args.verb == "count"
        else faults.check(args.source, args.vocab_size)
    )


def _draw(argv: list[str]) -> Document:
    from podwright.data import synthetic_images, synthetic_pairs

    parser = argparse.ArgumentParser(prog="podwright data draw")
    parser.add_argument("folder", type=Path)
    for name in ("--num-train", "--num-test", "--seed"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--pairs", action="store_true")
    args = parser.parse_args(argv)
    for option, count, least in (("--num-train", args.num_train, 1), ("--num-test", args.num_test, 0)):
        if count < least:
            raise UserError(f"{option} {count} is less than {least}", f"type {option} 100")
    require_new_directory(str(args.folder), args.folder)
    (synthetic_pairs if args.pairs else synthetic_images).write(args.folder, args.num_train, args.num_test, args.seed)
    return {"out": str(args.folder), "train": args.num_train, "val": args.num_test}


def _check_annotated(argv: list[str]) -> Document | None:
    """Of annotated lines; None for a source of text or tokens."""
    parser = argparse.ArgumentParser(prog="podwright data check")
    parser.add_argument("source", type=Path)
    parser.add_argument("--fix", action="store_true")
    for name in ("--recipe", "--answers", "--root"):
        parser.add_argument(name)
    args, _ = parser.parse_known_args(argv)
    from podwright.data import line_check

    options = line_check.CheckOptions(args.recipe, args.fix, args.answers, args.root)
    record = line_check.check(args.source, options)
    if record is None:
        given_options = {"--fix": args.fix, "--recipe": args.recipe, "--answers": args.answers, "--root": args.root}
        for option, given in given_options.items():
            if given:
                raise UserError(f"{option} is for annotated lines, and {args.source} has none", f"leave {option} out")
    return record


def _compile(argv: list[str]) -> Document:
    from podwright.train import aot

    spec, record = map(Path, argv)
    aot.run(json.loads(spec.read_text()), record)
    return {}


def _memory(argv: list[str]) -> Document:
    from podwright.train.multimodal import memory

    return memory.needs(json.loads(argv[0]))


def _check(argv: list[str]) -> list[Document]:
    """A finding of the plan a line. The words behind the recipe are sections that are left out."""
    recipe = load.parse(json.loads(Path(argv[0]).read_text()))
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
        from podwright.train.multimodal.processes import network_trial

        host, _, port = args.meet.rpartition(":")
        record["network"] = network_trial.measure(args.rank, len(args.peer), host, int(port), args.patience)
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


VERBS: Mapping[str, Callable[[list[str]], Document | list[Document]]] = MappingProxyType(
    {
        "eval": _eval,
        "export": _export,
        "predict": _predict,
        "data": _data,
        "compile": _compile,
        "measure": _measure,
        "memory": _memory,
        "check": _check,
        "facts": _facts,
        "devices": _devices,
    }
)
