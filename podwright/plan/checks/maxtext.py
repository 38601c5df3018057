"""What can be said of a MaxText recipe without a compiler: slice, mesh, batch, model, precision, data and profiler."""

from __future__ import annotations

import re
from pathlib import Path

from podwright import slices
from podwright.errors import UserError, counted
from podwright.plan.checks import maxtext_mesh, maxtext_values, meshes
from podwright.plan.findings import Finding, Level, of_error
from podwright.recipe.maxtext import architectures, lint
from podwright.recipe.maxtext import arguments as arguments_of
from podwright.recipe.maxtext.architectures import Architecture
from podwright.recipe.maxtext.arguments import BATCH_AXES, Arguments, RunBatch
from podwright.recipe.maxtext.schema import VARIABLE, MaxTextRecipe
from podwright.slices import Slice

_PRECISIONS = ("fp8", "int8")
_OF_COMMAND = ("secret", "line-break", "unset", "literal", "xla-flags", "syntax")
_OF_TRAINING = re.compile(r"arguments\.(?:model_name|(?!\w*(?:_dir|_directory|_path|_files|_name) )\w+) is ")
"""the beginning of a finding about an argument that is neither a place nor a name"""


def check(recipe: MaxTextRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
    if where is None or where.accelerator.pod is None:
        devices = f"{where.name} is no TPU slice" if where else "the devices here are not known"
        what = f"{recipe.name} is written for {written_for(recipe).name}, and {devices}"
        return [Finding("slice", "error", what, f"type --on {written_for(recipe).typed}", "wrong-accelerator")]
    findings = _slice(recipe, where)
    model, of_model = _model(recipe)
    findings += of_model + ([] if _is_diffusion(recipe) else maxtext_values.keys(recipe.arguments))
    findings += _launch(recipe)
    if _is_diffusion(recipe) or (recipe.launch.module.endswith(".sh") and not recipe.arguments):
        return findings
    try:
        batch = arguments_of.batch(recipe.arguments)
        arguments_of.steps(recipe.arguments)
        findings += maxtext_mesh.check(recipe.arguments, model, where)
        if not any(f.level == "error" and f.check == "mesh" for f in findings):
            findings += _batch(recipe.arguments, batch, where)
        findings += _precision(recipe.arguments, where)
        findings += _data(recipe.arguments, batch, where, cwd) + _profiler(recipe.arguments)
    except UserError as e:
        if not any(f.level == "inconclusive" and _OF_TRAINING.match(f.message) for f in findings):
            findings.append(of_error("batch", e))
    examined = {f.message.partition("=")[0] for f in findings if f.level == "error"}
    return findings + maxtext_values.values(recipe.arguments, examined)


def _launch(recipe: MaxTextRecipe) -> list[Finding]:
    """What stands in the way of a submission: a warning, for it says nothing of whether the training fits. A value of the training that is
    still to be filled in is inconclusive, and what is wrong with the container's command, or a secret, is an error: what a plan accepts is
    written to files."""
    findings = []
    for each in lint.of_recipe(recipe):
        level: Level = "warning" if each.level == "error" else each.level
        if each.check in _OF_COMMAND:
            level = each.level
        if each.check == "placeholder" and _OF_TRAINING.match(each.message):
            level = "inconclusive"
        fix = each.fix
        if each.check == "artifact-dir":
            fix = f"podwright render fills it in; to submit the script itself, {fix}"
        if each.level != "info":
            findings.append(Finding("launch", level, each.message, fix, each.check))
    return findings


def written_for(recipe: MaxTextRecipe) -> Slice:
    """The slices that the recipe names."""
    times = f"{recipe.num_slices}x " if recipe.num_slices > 1 else ""
    return slices.parse(f"{times}{recipe.topology}")


def _slice(recipe: MaxTextRecipe, where: Slice) -> list[Finding]:
    gang = f"; its {where.num_hosts} hosts start together (gang size {where.num_hosts})" if where.num_hosts > 1 else ""
    message = f"{meshes.described(where)}{gang}"
    findings = [Finding("slice", "info", message)]
    own = written_for(recipe)
    if (own.accelerator, own.chips, own.num_slices) != (where.accelerator, where.chips, where.num_slices):
        fixed = "its mesh, batch, XLA flags" + (" and fp8 tiles" if recipe.precision == "fp8" else "")
        what = f"{recipe.name} is written for {own.name}: {fixed} are for that slice, not for {where.name}"
        findings.append(
            Finding(
                "slice", "warning", what, f"type --on {own.typed}, or import the recipe of {where.name}", "other-slice"
            )
        )
    return findings


def _model(recipe: MaxTextRecipe) -> tuple[Architecture | None, list[Finding]]:
    try:
        return architectures.find(recipe.arguments), []
    except architectures.WrongDimension as e:
        return None, [of_error("model", e)]
    except UserError as e:
        if _is_diffusion(recipe):
            return None, [Finding("model", "inconclusive", e.what, f"{e.fix}; type --compile", "unknown-model")]
        what = f"{e.what}, so mesh, memory and step time are not checked"
        checkout = "" if recipe.maxtext else " and maxtext=PATH of the checkout that has them"
        fix = f"{e.fix}; type --compile{checkout}"
        return None, [Finding("model", "inconclusive", what, fix, "unknown-model")]


def _is_diffusion(recipe: MaxTextRecipe) -> bool:
    """MaxDiffusion has arguments of its own."""
    return "diffusion" in recipe.launch.module


def _batch(arguments: Arguments, batch: RunBatch, where: Slice) -> list[Finding]:
    rows = batch.per_device * where.num_devices
    micro = f" x {batch.micro_batches} micro-batches" if batch.micro_batches > 1 else ""
    split = f"per_device_batch_size={batch.per_device:g} x {counted(where.num_devices, 'device')}"
    mesh = maxtext_mesh.resolved(arguments, where)
    shards = mesh.size(*BATCH_AXES)
    if rows % shards:
        size = max(round(rows / shards), 1) * shards / where.num_devices
        typed = int(size) if size.is_integer() else repr(size)
        over = f"cannot be split over {shards} batch shards ({' x '.join(_above_one(mesh, BATCH_AXES))})"
        why = f"{rows:.0f} sequences {over}" if rows.is_integer() else f"{rows:g} is no whole number of sequences"
        return [
            Finding(
                "batch",
                "error",
                f"{split} = {why}",
                f"type arguments.per_device_batch_size={typed}",
                "batch-does-not-divide",
            )
        ]
    context = mesh.size("context", "context_usp_ulysses")
    halves = context
    if context > 1 and arguments_of.flag(arguments, "context_parallel_load_balance", True):
        halves = 2 * context
    if batch.length % halves:
        what = f"max_target_length={batch.length} cannot be split into {halves} parts for context={context}"
        longer = -(-batch.length // halves) * halves
        return [Finding("batch", "error", what, f"type arguments.max_target_length={longer}", "length-does-not-divide")]
    sequences = batch.rows(where.num_devices)
    message = f"a step trains {sequences:,.0f} sequences ({split}{micro}) of {batch.length:,}, {sequences * batch.length / 1e6:.3g} M tokens"
    return [Finding("batch", "info", message)]


def _above_one(mesh: maxtext_mesh.MaxTextMesh, axes: tuple[str, ...]) -> list[str]:
    return [f"{axis}={n}" for axis in axes if (n := mesh.size(axis)) > 1]


def _precision(arguments: Arguments, where: Slice) -> list[Finding]:
    quantization = arguments.get("quantization", "")
    row = where.accelerator
    if not quantization:
        return []
    kind = next((kind for kind in _PRECISIONS if quantization.startswith(kind)), "")
    if not kind:
        what = f"what quantization={quantization} needs of {row.name} is not known here"
        return [Finding("slice", "inconclusive", what, "type --compile", "unknown-precision")]
    peak = {"fp8": row.fp8_flops, "int8": row.int8_flops}[kind]
    if not peak:
        fix = "leave quantization out, or type --on with a chip that has them"
        return [
            Finding(
                "slice",
                "error",
                f"{row.name} has no {kind} units, and quantization={quantization} needs them",
                fix,
                "no-such-units",
            )
        ]
    if peak <= row.bf16_flops:
        what = f"{kind} products are no faster than bf16 on {row.name}"
        return [Finding("slice", "warning", what, "leave quantization out, unless its memory is wanted", "no-effect")]
    return []


def _data(arguments: Arguments, batch: RunBatch, where: Slice, cwd: Path) -> list[Finding]:
    kind = arguments.get("dataset_type", "tfds")
    if kind == "synthetic":
        return [Finding("data", "info", "dataset_type=synthetic: random tokens, so that losses mean nothing")]
    key = {"grain": "grain_train_files", "hf": "hf_train_files", "tfds": "dataset_path"}.get(kind, "")
    path = arguments.get(key, "") or arguments.get("hf_path", "")
    if not path:
        what = f"dataset_type={kind} names no data"
        fix = f"type arguments.{key or 'dataset_path'}=PATH, or arguments.dataset_type=synthetic"
        return [Finding("data", "inconclusive", what, fix, "no-data")]
    file = cwd / path
    if VARIABLE.search(path) or not (file.is_file() and file.suffix == ".jsonl"):
        what = f"data at {path} is read in the container and was not looked at"
        return [
            Finding(
                "data",
                "inconclusive",
                what,
                "check that it is there; arguments.dataset_type=synthetic needs none",
                "not-checked",
            )
        ]
    with file.open("rb") as lines:
        return _enough(path, sum(1 for line in lines if line.strip()), arguments, batch, where)


def _enough(path: str, rows: int, arguments: Arguments, batch: RunBatch, where: Slice) -> list[Finding]:
    """A row is a sequence unless rows are packed, which makes fewer sequences of them."""
    steps = arguments_of.steps(arguments)
    epochs = arguments_of.integer(arguments, "num_epoch", 1)
    sequences = batch.rows(where.num_devices)
    last = steps_of(rows, batch, where.num_devices, epochs)
    if last >= steps:
        message = f"{path}: {rows:,} rows last {last:,} of {steps:,} steps, unless they are packed"
        return [Finding("data", "info", message)]
    needed = -(-steps * int(sequences) // epochs)
    what = f"{path}: {rows:,} rows last {last} of {steps:,} steps of {sequences:,.0f} sequences; the run then ends with StopIteration and exit code 1"
    return [Finding("data", "error", what, f"give {needed:,} rows, or type arguments.steps={last}", "too-few-examples")]


def steps_of(rows: int, batch: RunBatch, num_devices: int, epochs: int = 1) -> int:
    """Whole steps that so many sequences last."""
    return int(rows * epochs // batch.rows(num_devices))


def _profiler(arguments: Arguments) -> list[Finding]:
    if not arguments.get("profiler"):
        return []
    first = arguments_of.integer(arguments, "skip_first_n_steps_for_profiler", 1, least=0)
    number = arguments_of.integer(arguments, "profiler_steps", 5)
    steps = arguments_of.steps(arguments)
    if first + number <= steps:
        return []
    what = f"the profiler is to trace steps {first} to {first + number - 1}, and steps={steps} ends before"
    return [Finding("profiler", "warning", what, f"type arguments.steps={first + number}", "too-few-steps")]
