"""What a step cost: rates, the share of the hardware's peak, memory; and what it ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from podwright.accelerators import GIB
from podwright.recipe.models import Qwen3Dims, step_flops
from podwright.recipe.schema import GrpoRecipe
from podwright.train import devices
from podwright.train.mesh import memory_fraction

if TYPE_CHECKING:
    from podwright.train.grpo.collect import Clock


def environment() -> dict[str, Any]:
    fraction = memory_fraction()
    return ({} if fraction is None else {"memory_fraction": fraction}) | {
        "devices": jax.device_count(),
        "device_kind": jax.devices()[0].device_kind,
        "processes": jax.process_count(),
        "compile_cache": jax.config.values["jax_compilation_cache_dir"] or "",
        "versions": devices.versions("jax", "jaxlib", "libtpu", "optax", "orbax-checkpoint", "podwright"),
    }


def figures(
    dims: Qwen3Dims, recipe: GrpoRecipe, prompt_tokens: int, lengths_PG: np.ndarray, clock: Clock, updates: bool = True
) -> dict[str, Any]:
    """Seconds by phase, sequences/s, generated tokens/s, MFU (null where the peak is not known), peak memory.

    `updates`: False of a step that only sampled.
    """
    seconds = clock.total()
    flops = step_flops(dims, recipe, prompt_tokens, int(lengths_PG.sum()), updates)
    done = {
        "step_s": seconds,
        "sequences_per_s": lengths_PG.size / seconds,
        "tokens_per_s": int(lengths_PG.sum()) / seconds,
    }
    return clock.seconds | done | rates(flops, seconds)


def rates(flops: float, seconds: float) -> dict[str, float | None]:
    """TFLOP/s a device, MFU (null where the peak is not known), peak memory."""
    of_devices = devices.rates(flops / seconds / jax.device_count(), jax.devices()[0].device_kind)
    return of_devices | {"peak_memory_gib": peak_memory_bytes() / GIB}


def peak_memory_bytes() -> int:
    """Of the fullest local device; of the process where devices keep no count (a CPU)."""
    counts = [(d.memory_stats() or {}).get("peak_bytes_in_use", 0) for d in jax.local_devices()]
    return max(counts) or devices.peak_process_bytes()
