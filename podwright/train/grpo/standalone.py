"""What is asked of a finished run or a checkpoint from elsewhere: a test on other data, and the Hugging Face layout."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.attention_kernels import Layout, heads_of
from podwright.counted_steps import read_steps
from podwright.data import gsm8k
from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded, warn
from podwright.models import convert, lora, param, qwen3
from podwright.recipe import hf_config, load, positions, schema
from podwright.recipe.advice import saved_step
from podwright.recipe.paths import give_default_modes, require_new_directory
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import RunDir, part_of, read_events, read_jsonl, recipe_of
from podwright.storage import inputs
from podwright.train import attention_check, checkpoint, compile_cache, data_record, entry, prompt_record
from podwright.train.grpo import evaluate as evaluation
from podwright.train.grpo import program, prompts, start
from podwright.train.mesh import cache_folder, make_mesh
from podwright.train.run_storage import RunStorage

Tree = Any
GENERATED_TRAIN, GENERATED_TEST = 8000, 500  # the demo's sizes
_READ = ("data", "seed", "mesh", "evaluation.batch_size", "rollout.max_prompt_length", "rollout.total_generation_steps")


def evaluate(path: Path, source: str, limit: int, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Greedy accuracy of a run's newest checkpoint, or of a Hugging Face directory, on the test part of `source`; "": of the run's data."""
    own = _recipe_for(path)
    compiled = compile_cache.ProgramCount()
    recipe = load.require(load.override(own, overrides), GrpoRecipe)
    run = RunDir(path)
    is_run = run.recipe.exists()
    read = (*_READ, "model" if is_run else "model.compute_dtype")
    for sentence in load.unused(overrides, read, f"eval of {path}"):
        warn(sentence)
    if not (source or is_run):
        fix = "add --data SRC: a .jsonl file, a directory, or a hub id"
        raise UserError("eval of a directory needs questions", fix, "no-examples")
    original = ""
    if recipe.data.source == own.data.source and is_run:
        original = str(recipe_of(run)["data"]["source"])
    test = _questions(recipe, source, original, run)[: limit or None]
    setup, tokenizer, params, step = _open(path, recipe)
    record = prompt_record.read(path)
    system = start.begun_with(run).get("system", "")
    if record:
        system, tokenizer.date = record.system, record.date
        setup = dataclasses.replace(setup, stop_ids=record.stop_ids)
    elif not is_run:
        print(f"{path} has no {prompt_record.RECORD}: its chat template alone asks", file=sys.stderr)
    test = [dataclasses.replace(e, system=e.system or system) for e in test]
    if refused := positions.exceeded(recipe.rollout, setup.dims.max_positions):
        raise refused
    heads = heads_of(setup.dims, recipe.model.compute_dtype)
    for sentence in attention_check.refused(setup.mesh, heads, [Layout.CAUSAL, Layout.DECODE], cache_folder()):
        warn(sentence)
    encoded = prompts.encode(test, tokenizer, recipe.data, recipe.rollout, setup.dims.max_positions)
    evaluate_program = program.programs(setup, len(encoded))["evaluate"]
    print(f"{len(encoded)} questions, {evaluate_program.arguments[1].shape[0]} at a time", file=sys.stderr)
    outcome = evaluation.Evaluator(setup, evaluate_program, encoded, tokenizer).run(params)
    assert outcome
    figures, _, samples = outcome
    return {
        "checkpoint": str(path),
        "step": step,
        "data": source or original or recipe.data.source,
        "left_out": encoded.left_out,
        "programs": compiled.take(),
        **figures,
        "samples": samples,
    }


def _questions(recipe: GrpoRecipe, source: str, original: str, run: RunDir) -> list[Example]:
    """The test part of `source`: that of `run` when it is the run's own data or "", so that no training question is in it. `original`:
    where the run's own data was before it was copied."""
    data = recipe.data
    path = expanded(source).resolve()
    own = not source or path in [expanded(name).resolve() for name in (data.source, original or data.source)]
    try:
        if not own and path.exists():
            return gsm8k.read(path, data.columns)
        if not own:
            sizes = (GENERATED_TRAIN, GENERATED_TEST) if source == "arithmetic" else (0, 0)
            data = data.model_copy(update={"source": source, "num_train": sizes[0], "num_test": sizes[1]})
        test = gsm8k.parts(data, recipe.seed, data_record.written(run).read if own else {}).test
        if own:
            data_record.require_held_out(run, source or data.source, start.rows_of(test))
        return test
    except UserError as e:  # the words of a recipe, of which the user has typed the option
        key = "data.source="
        option = "--data=" if source else key
        raise UserError(e.what.replace(key, option), e.fix.replace(key, option), e.code) from e


def export(path: Path, out: Path) -> dict[str, Any]:
    """The run's newest weights as a directory that transformers loads."""
    require_new_directory(str(out), out)
    recipe = _recipe_for(path)
    setup, tokenizer, params, step = _open(path, recipe)
    params = lora.merge(params, setup.lora_scale, setup.dtype)
    run = RunDir(path)
    record = prompt_record.PromptRecord(
        instruction=recipe.data.instruction,
        system=start.begun_with(run).get("system", ""),
        date=tokenizer.date,
        enable_thinking=recipe.data.enable_thinking,
        stop_ids=setup.stop_ids,
        max_prompt_length=recipe.rollout.max_prompt_length,
        max_new_tokens=recipe.rollout.total_generation_steps,
        compute_dtype=recipe.model.compute_dtype,
    )
    with part_of(out, f".{out.name}") as part:
        convert.write(
            part, setup.dims, params, setup.mesh, recipe.model.compute_dtype, tokenizer.stop_ids, tokenizer.pad_id
        )
        prompt_record.write(part, tokenizer, record)
        give_default_modes(part)
    sample = next(read_jsonl(run.samples), {})
    turns = tokenizer.turns(sample.get("question", "1 + 1?"), record.instruction, sample.get("system", record.system))
    return {
        "directory": str(out),
        "step": step,
        "dtype": recipe.model.compute_dtype,
        "num_params": setup.dims.num_params(),
        "python": prompt_record.python_lines(out, turns, record),
    }


def _recipe_for(path: Path) -> GrpoRecipe:
    """The run's own recipe on the devices that are here; for a Hugging Face directory, the shipped GSM8K recipe cut to its positions."""
    run = RunDir(path)
    if run.recipe.exists():
        raw = inputs.localized(run, recipe_of(run))
        with entry.naming(run.recipe):
            parsed = load.parse(raw)
        return load.require(parsed, GrpoRecipe).model_copy(update={"mesh": schema.GrpoMesh()})
    hf_config.refuse_adapter(path)
    if not (path / "config.json").exists():
        raise UserError(
            f"{path} is neither a run nor a Hugging Face model directory",
            "`podwright list` shows the runs",
            "not-a-model",
        )
    recipe = load.load("qwen3-1.7b-gsm8k-grpo").model_dump()
    recipe["mesh"] = {}
    recipe["model"]["source"] = str(path)
    lengths = recipe["rollout"]
    record = prompt_record.read(path)
    if record:
        recipe["model"]["compute_dtype"] = record.compute_dtype
        recipe["data"] |= record.model_dump(include={"instruction", "enable_thinking"})
        lengths |= {"max_prompt_length": record.max_prompt_length, "total_generation_steps": record.max_new_tokens}
    else:
        recipe["data"] |= {"instruction": "", "enable_thinking": None}
        room = convert.read_config(path).max_positions - lengths["max_prompt_length"]
        lengths["total_generation_steps"] = min(lengths["total_generation_steps"], room)
    return load.require(load.parse(recipe), GrpoRecipe)


def _open(path: Path, recipe: GrpoRecipe) -> tuple[program.GrpoSetup, Tokenizer, Tree, int | None]:
    """Setup, tokenizer, weights, and the step they are from (None for a Hugging Face directory)."""
    if uncached := compile_cache.use():
        warn(uncached)
    run = RunDir(path)
    is_run = run.recipe.exists()
    mesh = make_mesh(recipe.mesh)
    source = start.Source(path)
    begun = start.begun_with(run)
    if is_run:
        source = start.find_source(recipe, begun.get("model_revision"))
    dims = start.dimensions(recipe, source) if is_run else convert.read_config(path)
    tokenizer = prompts.load_tokenizer(source.path or run.tokenizer, dims.vocab_size)
    tokenizer.date = start.date_of(begun)
    setup = program.GrpoSetup(recipe, dims, mesh, tokenizer.stop_ids, tokenizer.pad_id)
    if not is_run:
        return setup, tokenizer, convert.read(path, dims, mesh), None
    storage = RunStorage.of(run)
    checkpoints = checkpoint.Checkpoints(storage, None)
    trained = _last_step(run)
    if checkpoints.latest() is None:
        if trained:
            raise UserError(
                f"run {run.name} was trained to step {trained}, and there is no checkpoint in {storage.root}/checkpoints",
                f"bring one back from a copy, or train from step 0: type {run.without_checkpoints}",
                "no-checkpoint",
            )
        if not storage.exists("start"):
            raise UserError(
                f"run {run.name} has no checkpoint yet", f"type: podwright resume {run.typed}", "no-checkpoint"
            )
        return setup, tokenizer, checkpoint.load_weights(storage, param.abstract(qwen3.declare(dims), mesh)), 0
    restored = checkpoints.restore({"params": param.abstract(setup.declared, mesh)}, part=True)
    if restored.step < trained:
        fix = f"type podwright resume {run.typed} to train on"
        if run.is_finished:
            fix = "bring a later one back from a copy of the run"
        what = f"the newest checkpoint in {storage.root}/checkpoints is of step {restored.step}"
        warn(f"{what}, and the run was trained to step {trained}; {fix}")
    return setup, tokenizer, lora.policy(restored.state["params"], start.base(storage, source, setup)), restored.step


def _last_step(run: RunDir) -> int:
    """That was trained by the run's own records; 0 before the first one."""
    steps = [record["step"] for record in read_steps(run, "grpo")]
    return max([*steps, saved_step(read_events(run.events)) or 0])
