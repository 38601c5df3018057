"""The timed rows of ours in JAX: steps of pretraining and GRPO, and the memory of each program beside the plan's."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpo_cpu
import jax
import numpy as np

from gpu_check.part import TINY, put
from podwright import slices
from podwright.accelerators import GIB, by_device_kind
from podwright.attention_kernels import Layout, heads_of
from podwright.plan import kinds as plans
from podwright.recipe import load, models
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.pretrain import PretrainRecipe
from podwright.train import attention_check, compile_cache, speed
from podwright.train.grpo import loop
from podwright.train.mesh import cache_folder, make_mesh, start_processes, to_device
from podwright.train.pretrain import loop as pretrain_loop
from podwright.train.pretrain.program import PretrainBatch, PretrainSetup, new_state, programs
from podwright.train.program import Program

SPAWNED = "GPU_CHECK_SPAWNED"
"""the time at which the parent started this process"""


def begin() -> compile_cache.ProgramCount:
    """As a trainer begins: jax's share of the memory, and the cache of compiled programs."""
    start_processes()
    refused = compile_cache.use()
    assert not refused, refused
    return compile_cache.ProgramCount()


def compared(setup: Any, layouts: Sequence[Layout]) -> None:
    """Before anything is traced, as a trainer does: a card without an answer in the cache compares its kernels with the plain form."""
    heads = heads_of(setup.dims, setup.recipe.model.compute_dtype)
    put(instead=attention_check.refused(setup.mesh, heads, layouts, cache_folder()))


def pretrain(documents: str, again: str = "") -> None:
    """Steps of Qwen3-0.6B on 8 rows of 4096 tokens, `documents` in each; `again`: the first step alone is of interest."""
    programs_begun = begin()
    rows, length, steps = (2, 128, 2) if TINY else (8, 4096, 5)
    name = "qwen3-micro" if TINY else "qwen3-0.6b"
    settings = [f"model.name={name}", f"batch_size={rows}", f"sequence_length={length}", "mesh.fsdp=1"]
    settings += ["data.source=arithmetic", "data.tokenizer=bytes"]
    recipe = load.require(load.load("qwen3-0.6b-pretrain", settings), PretrainRecipe)
    setup = PretrainSetup(recipe, models.find(name), make_mesh(recipe.mesh, jax.devices()[:1]))
    compared(setup, pretrain_loop.LAYOUTS)
    built, state, batch = programs(setup), new_state(setup), _rows(setup, int(documents))
    seconds: list[float] = []
    for _ in range(1 if again else steps):
        at = time.perf_counter()
        state, figures = built["update"](state, batch, np.float32(recipe.optimizer.learning_rate))
        loss = float(jax.block_until_ready((state, figures))[1]["loss"])
        seconds.append(time.perf_counter() - at)
        if len(seconds) == 1:
            _put_first_step(programs_begun, seconds[0], again)
    put(loss=round(loss, 4), peak_gib=_peak_gib())
    if again:
        return
    step_s, tokens = statistics.median(seconds[1:]), rows * length
    context = float(np.asarray(batch.positions_BN).mean()) + 1
    put(
        step_s=round(step_s, 4),
        tokens_s=round(tokens / step_s),
        # as research on this card counted them: every row as one document, which a packed row computes less of
        tflops=round(3 * setup.dims.forward_flops(tokens, (length + 1) / 2) / step_s / 1e12, 1),
        tflops_needed=round(3 * setup.dims.forward_flops(tokens, context) / step_s / 1e12, 1),
        steps_s=[round(s, 4) for s in seconds],
    )
    _put_memory(recipe, built)


def _rows(setup: PretrainSetup, documents: int) -> PretrainBatch:
    rng, rows, length = np.random.default_rng(0), setup.recipe.batch_size, setup.recipe.sequence_length
    tokens = rng.integers(0, setup.dims.vocab_size, (rows, length + 1)).astype(np.int32)
    ids, positions = np.zeros((rows, length), np.int32), np.zeros((rows, length), np.int32)
    for row in range(rows):
        begins = np.sort(rng.choice(np.arange(1, length), documents - 1, replace=False))
        ids[row] = np.searchsorted(begins, np.arange(length), "right")
        positions[row] = np.arange(length) - np.concatenate([[0], begins])[ids[row]]
    arrays = (tokens[:, :-1], tokens[:, 1:], positions, ids)
    return PretrainBatch(*(to_device(np.ascontiguousarray(x), setup.mesh) for x in arrays))


def grpo(size: str, again: str = "") -> None:
    """Steps of GRPO as bench/grpo_cpu.py takes them, `size` 0.6b (8 x 8 completions of 256 tokens) or 1.7b (16 x 8 of 512)."""
    programs_begun = begin()
    planned = 3  # which the rate of the optimizer follows, so that the programs of both starts are the same
    collector, reference, state = grpo_cpu.prepared(config(size), planned)
    compared(collector.setup, loop.LAYOUTS)
    cursor, seconds, figures = {"step": 0, "used": 0, "rollouts": 0}, [], []
    for _ in range(1 if again else planned):
        at = time.perf_counter()
        done = loop.step(collector, state, reference, cursor)
        assert done, "nothing hurries it"
        state, cursor, measured = done
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - at)
        figures.append(measured)
        if len(seconds) == 1:
            _put_first_step(programs_begun, seconds[0], again)
    put(peak_gib=_peak_gib())
    if again:
        return
    medians = {
        key: round(statistics.median(f[key] for f in figures[1:]), 4) for key in ("rollout_s", "score_s", "update_s")
    }
    mfu = figures[-1]["mfu"]
    put(
        # the time that the prompts take is in it
        ms_a_token=round(1000 * medians["rollout_s"] / config(size)["new_tokens"], 3),
        step_s=round(statistics.median(seconds[1:]), 4),
        **medians,
        tokens_s=round(figures[-1]["tokens_per_s"]),
        mfu=mfu and round(mfu, 4),
        kl=[float(f["kl"]) for f in figures],
        steps_s=[round(s, 4) for s in seconds],
    )
    _put_memory(collector.setup.recipe, collector.programs, collector.setup.dims)


def config(size: str) -> dict[str, Any]:
    """In the keys of bench/grpo_cpu.py."""
    dims = models.find("qwen3-micro" if TINY else f"qwen3-{size}")
    prompts, generations, prompt_len, new_tokens = {"0.6b": (8, 8, 128, 256), "1.7b": (16, 8, 256, 512)}[size]
    if TINY:
        prompts, generations, prompt_len, new_tokens = 2, 2, 16, 24
    return {
        "layers": dims.num_layers,
        "embed_dim": dims.hidden_size,
        "hidden_dim": dims.intermediate_size,
        "heads": dims.num_heads,
        "kv_heads": dims.num_kv_heads,
        "head_dim": dims.head_dim,
        # of 0.6b as TRL was measured with: its own vocabulary is half of such a model
        "vocab": dims.vocab_size if TINY or size == "1.7b" else 32768,
        "tie_embeddings": dims.tie_word_embeddings,
        "rope_theta": dims.rope_theta,
        "norm_eps": dims.norm_eps,
        "dtype": "float32" if TINY else "bfloat16",
        "prompts": prompts,
        "generations": generations,
        "prompt_len": prompt_len,
        "new_tokens": new_tokens,
        "temperature": 1.0,
        "beta": 0.04,
        "learning_rate": 1e-6,
        "seed": 0,
        "overrides": ["model.remat=layer"] if size == "1.7b" else ["model.remat=none"],
    }


def _put_first_step(programs_begun: compile_cache.ProgramCount, seconds: float, again: str) -> None:
    """Seconds of the step, and of the process up to its end."""
    process_s = round(time.time() - float(os.environ[SPAWNED]), 2)
    second = {"second_start_s": round(seconds, 2)} if again else {}
    put(first_step_s=round(seconds, 2), process_to_first_step_s=process_s, programs=programs_begun.take(), **second)


def _peak_gib() -> float:
    return round(speed.peak_memory_bytes() / GIB, 2)


def _put_memory(recipe: Any, built: Mapping[str, Program], dims: Qwen3Dims | None = None) -> None:
    """What the compiler gave each program, beside the plan's closed form for this card; `dims`: of a model without a name."""
    card = by_device_kind(jax.devices()[0].device_kind)
    where = slices.parse(f"1x{card.name}" if card and card.node else "1xH100-80GB")
    if dims:
        models.MODELS["gpu-check"] = dims
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"name": "gpu-check"})})
    for entry in plans.of(recipe).memory(recipe, where, Path.cwd()):
        if entry.name == "evaluate":  # not compiled by these rows, whose time it would take
            continue
        memory = built[entry.name].lower().compile().memory_analysis()
        assert memory
        total = memory.argument_size_in_bytes + memory.temp_size_in_bytes
        total += memory.output_size_in_bytes - memory.alias_size_in_bytes
        # The reference and the optimizer's moments stay on the device while another program runs.
        resident = sum(
            x.size * x.dtype.itemsize for tree in built[entry.name].resident.values() for x in jax.tree.leaves(tree)
        )
        compiled_gib = round((total + resident) / GIB, 3)
        put(
            program=entry.name,
            compiled_gib=compiled_gib,
            planned_gib=round(entry.estimated_gib, 3),
            planned_for=where.name,
            planned_to_compiled=round(entry.estimated_gib / compiled_gib, 3) if compiled_gib else None,
        )
