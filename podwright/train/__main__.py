"""`python -m podwright.train RUN_DIR --attempt N`: runs the recipe of a run directory and says how it ended.

Also `eval CHECKPOINT --data SOURCE`, `export RUN_DIR OUT_DIR` and `data VERB`, which print one JSON document, and
`compile SPEC RECORD`, `measure SPEC RECORD`, `memory`, `lengths` and `facts`, which are the plan's.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import fcntl
import json
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO, get_args

from podwright.errors import UserError, from_os
from podwright.recipe import ethogram, load
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.kinds import TorchRecipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Ending, RunDir, recipe_of, write_json

# What is said by the collectives of a CPU and of GPUs when the process at the other end has left.
_PEER_GONE = re.compile(r"Gloo .*(closed|reset) by peer|remote process exited")
_NOBODY_CAME = re.compile(r"Timed out waiting \d+ms for (recv|send) operation")
STATUS = {Ending.FINISHED: 0, Ending.STOPPED: 3}


class _Stopping:
    """True after SIGTERM, SIGINT or SIGUSR1 (SLURM's warning): the loop then finishes its step and saves."""

    def __init__(self) -> None:
        self.asked = False
        self.listen()

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


def main() -> int:
    verbs = {"eval": _eval, "export": _export, "predict": _predict, "data": _data}
    verbs |= {"compile": _compile, "measure": _measure, "memory": _memory, "lengths": _lengths, "facts": _facts}
    verb = verbs.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if verb is None:
        return _train()
    try:
        print(json.dumps(verb(sys.argv[2:])))
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


def _train() -> int:
    parser = argparse.ArgumentParser(prog="python -m podwright.train")
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int, default=1)
    args = parser.parse_args()
    run = RunDir(args.run)
    if _for_several(run):
        from podwright.train.multimodal.processes import launch

        if (processes := launch.wanted(os.environ)) > 1:
            launch.several(processes, sys.argv[1:], os.environ)
            return _status_of(run, args.attempt)
    number = int(os.environ.get("JAX_PROCESS_ID", os.environ.get("RANK", "0")))
    record, fault, own = _guarded(run, args.attempt, _Stopping())
    print(f"{record['ending']}: {record['detail']}; {record['fix']}".rstrip("; "), flush=True)
    if number == 0 or (fault and own):  # the first process may not live to tell the fault of another
        try:
            write_json(run.exit(args.attempt, number), record | {"time": time.time()})
        except OSError as e:
            print(f"exit.json cannot be written: {e}", flush=True)
    status = STATUS.get(Ending(record["ending"]), 1)
    if status == STATUS[Ending.STOPPED] and "TORCHELASTIC_RUN_ID" in os.environ:
        status = 0  # torchrun takes any other for a fault, for which it would end those that are still saving
    if fault and ("JAX_COORDINATOR_ADDRESS" in os.environ or "MASTER_ADDR" in os.environ):
        os._exit(status)  # an orderly exit waits for the other processes, and they may be waiting for this one
    return status


def _for_several(run: RunDir) -> bool:
    """Whether its trainer takes a process for each device, and this is not one of them."""
    return "RANK" not in os.environ and load.KINDS.get(_kind(run)) in get_args(TorchRecipe)


def _kind(run: RunDir) -> str:
    """Of its recipe; "" where there is none that can be read."""
    try:
        return str(json.loads(run.recipe.read_text())["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _answering(run: RunDir) -> str:
    """The kind of its recipe, which is one whose model answers something."""
    if (kind := _kind(run)) == "contrastive":
        fix = f"train on it: podwright run phase2-tiny aligner.source={run.aligner}"
        raise UserError(f"{run.path} trained an aligner, which answers nothing by itself", fix)
    return kind


def _status_of(run: RunDir, attempt: int) -> int:
    """Of processes that have written down how they ended."""
    try:
        return STATUS.get(Ending(json.loads(run.exit(attempt).read_text())["ending"]), 1)
    except (OSError, ValueError, KeyError):
        return 1


def _guarded(run: RunDir, attempt: int, stopping: _Stopping) -> tuple[dict[str, Any], bool, bool]:
    """The exit record of the training, whether it ended by a fault, and whether that was this process's own."""
    try:
        outcome = _run(run, attempt, stopping)
    except UserError as e:
        return {"ending": str(Ending.BAD_INPUT), "step": None, "detail": e.what, "fix": e.fix}, True, True
    except Exception as e:  # the one place where every fault becomes an ending
        traceback.print_exc()
        ending, detail, fix = _explain(e, run)
        elsewhere = run.fault_elsewhere(attempt)
        seen = {"ending": str(ending), "step": None, "detail": detail, "fix": fix}
        return elsewhere or seen, True, elsewhere is None and not _PEER_GONE.search(str(e))
    return (
        {"ending": str(outcome.ending), "step": outcome.step, "detail": outcome.detail, "fix": outcome.fix},
        False,
        True,
    )


def _run(run: RunDir, attempt: int, stopping: _Stopping) -> Any:
    recipe = load.parse(recipe_of(run))
    run_kind = _run_torch if isinstance(recipe, TorchRecipe) else _run_jax
    return run_kind(run, attempt, stopping)


def _run_torch(run: RunDir, attempt: int, stopping: _Stopping) -> Any:
    from podwright.train.emit import Emitter
    from podwright.train.multimodal import contrastive, loop
    from podwright.train.multimodal.processes import world

    joined = world.join(os.environ).around(run.path)
    recipe = load.parse(recipe_of(run))
    locks: list[TextIO] = []
    joined.from_first(lambda: locks.append(_locked(run)))
    emit = Emitter(run, attempt, joined.rank == 0)
    if isinstance(recipe, ContrastiveRecipe):
        outcome = contrastive.train(run, recipe, emit, stopping, joined)
    else:
        assert isinstance(recipe, MultimodalRecipe)
        outcome = loop.train(run, recipe, emit, stopping, joined)
    for lock in locks:
        lock.close()
    return outcome


def _locked(run: RunDir) -> TextIO:
    """One trainer at a time; the kernel lets go when the process ends, however it does."""
    lock = run.lock.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        raise UserError(f"another trainer is at work in {run.path}", f"type: podwright watch {run.typed}") from e
    return lock


def _run_jax(run: RunDir, attempt: int, stopping: _Stopping) -> Any:
    from podwright.train.mesh import start_processes, together

    start_processes()
    stopping.listen()  # jax.distributed takes SIGTERM for itself
    import jax

    from podwright.train.emit import Emitter

    first = jax.process_index() == 0
    with together():
        recipe = load.parse(recipe_of(run))
        lock = _locked(run) if first else None
    emit = Emitter(run, attempt, first)
    if isinstance(recipe, PretrainRecipe):
        from podwright.train.pretrain import loop as pretraining

        outcome = pretraining.train(run, recipe, emit, stopping)
    else:
        assert isinstance(recipe, GrpoRecipe)
        from podwright.train.grpo import loop

        outcome = loop.train(run, recipe, emit, stopping)
    if lock:
        lock.close()
    return outcome


def _explain(e: Exception, run: RunDir) -> tuple[Ending, str, str]:
    first = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:300]
    again = f"then type: podwright resume {run.typed}"
    full = isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in str(e) or "disk quota exceeded" in str(e).lower():
        return Ending.CRASHED, f"the disk of {run.path} is full", f"free some space, {again}"
    if isinstance(e, OSError) and e.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            Ending.CRASHED,
            f"{e.filename or run.path} cannot be written ({e.strerror})",
            f"make it writable, {again}",
        )
    if "CUDA out of memory" in str(e):
        less = "lower per_device_batch_size and raise training.gradient_accumulation_steps, or type model.gradient_checkpointing=true"
        return Ending.OUT_OF_MEMORY, first, less
    if "RESOURCE_EXHAUSTED" in str(e) or isinstance(e, MemoryError):
        return (
            Ending.OUT_OF_MEMORY,
            first,
            "raise training.gradient_accumulation_steps or mesh.fsdp, or lower batch_size",
        )
    if _NOBODY_CAME.search(str(e)):
        return (
            Ending.STALLED,
            f"another process of the run did not come to a collective ({first})",
            f"compare the logs of all, {again}",
        )
    if _PEER_GONE.search(str(e)):
        return Ending.CRASHED, f"another process of the run is gone ({first})", f"read its log, {again}"
    return Ending.CRASHED, first, ""


def _eval(argv: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="podwright eval")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--data", default="")
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args(argv)
    if _answering(RunDir(args.checkpoint)) == "multimodal":
        from podwright.train.multimodal.inference import held_out

        return held_out.examine(args.checkpoint, args.data, args.limit, args.overrides)
    if not args.data:
        raise UserError("nobody said what to ask", "add --data: a .jsonl file, a directory, or a hub id")
    from podwright.train.grpo import standalone

    return standalone.evaluate(args.checkpoint, args.data, args.limit, args.overrides)


def _export(argv: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="podwright export")
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--onnx", action="store_true")
    args = parser.parse_args(argv)
    if _answering(RunDir(args.run)) == "multimodal":
        from podwright.train.multimodal.inference import export

        return export.export(args.run, args.out, args.onnx)
    if args.onnx:
        raise UserError("--onnx is for multimodal runs: it writes their aligner and projector", "leave --onnx out")
    from podwright.train.grpo import standalone

    return standalone.export(args.run, args.out)


def _predict(argv: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="podwright predict")
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", default="")
    parser.add_argument("--out", type=Path)
    for name in ethogram.MEDIA:
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args(argv)
    _answering(RunDir(args.run))
    from podwright.train.multimodal.inference import predict

    files = {name: path for name in ethogram.MEDIA if (path := getattr(args, name)) is not None}
    return predict.predict(args.run, files, args.text, args.out)


def _data(argv: list[str]) -> dict[str, Any]:
    if argv[0] == "draw":
        return _draw(argv[1:])
    if argv[0] == "check" and (found := _check_annotated(argv[1:])) is not None:
        return found
    from podwright.data import faults, shards

    parser = argparse.ArgumentParser(prog="podwright data")
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = verbs.add_parser("tokenize")
    made.add_argument("files", nargs="+")
    made.add_argument("--tokenizer", required=True)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--shard-tokens", type=int, required=True)
    for name, option, kind in (("count", "--tokenizer", str), ("check", "--vocab-size", int)):
        one = verbs.add_parser(name)
        one.add_argument("source")
        one.add_argument(option, type=kind)
    args = parser.parse_args(argv)
    if args.verb == "tokenize":
        return shards.tokenize(args.files, args.tokenizer, args.out, args.shard_tokens)
    return (
        shards.count(args.source, args.tokenizer)
        if args.verb == "count"
        else faults.check(args.source, args.vocab_size)
    )


def _draw(argv: list[str]) -> dict[str, Any]:
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
    if args.folder.exists() and not (args.folder.is_dir() and next(args.folder.iterdir(), None) is None):
        raise UserError(
            f"{args.folder} is there already and not empty", "name a directory that does not exist yet or is empty"
        )
    (synthetic_pairs if args.pairs else synthetic_images).write(args.folder, args.num_train, args.num_test, args.seed)
    return {"out": str(args.folder), "train": args.num_train, "val": args.num_test}


def _check_annotated(argv: list[str]) -> dict[str, Any] | None:
    """Of annotated lines; None for a source of text or tokens."""
    parser = argparse.ArgumentParser(prog="podwright data check")
    parser.add_argument("source", type=Path)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--recipe")
    args, _ = parser.parse_known_args(argv)
    from podwright.data import pairs

    found = pairs.check_lines(args.source, args.recipe, args.fix)
    if found is None:
        for option, given in (("--fix", args.fix), ("--recipe", args.recipe)):
            if given:
                raise UserError(f"{option} is for annotated lines, and {args.source} has none", f"leave {option} out")
    return found


def _compile(argv: list[str]) -> dict[str, Any]:
    from podwright.train import aot

    spec, record = map(Path, argv)
    aot.run(json.loads(spec.read_text()), record)
    return {}


def _memory(argv: list[str]) -> dict[str, Any]:
    from podwright.train.multimodal import memory

    return memory.needs(json.loads(argv[0]))


def _lengths(argv: list[str]) -> dict[str, Any]:
    from podwright.data import lines

    recipe = load.parse(json.loads(argv[0]))
    assert isinstance(recipe, MultimodalRecipe)
    return dataclasses.asdict(lines.lengths(recipe))


def _facts(argv: list[str]) -> dict[str, Any]:
    from podwright.train import facts

    parser = argparse.ArgumentParser(prog="python -m podwright.train facts")
    for name in ("--folder", "--peer", "--file"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--meet", metavar="HOST:PORT")
    parser.add_argument("--patience", type=float, default=60.0)
    args = parser.parse_args(argv)
    told = facts.gather(args.folder, args.peer, args.file)
    if args.meet and len(args.peer) > 1 and "torch" in told["versions"]:
        from podwright.train.multimodal.processes import network

        host, _, port = args.meet.rpartition(":")
        told["network"] = network.measure(args.rank, len(args.peer), host, int(port), args.patience)
    return told


def _measure(argv: list[str]) -> dict[str, Any]:
    from podwright.train import measure

    spec, record = map(Path, argv)
    measure.run(json.loads(spec.read_text()), record)
    return {}


if __name__ == "__main__":
    sys.exit(main())
