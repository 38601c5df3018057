"""The timed rows of Phase 2: ours, and transformers' Trainer with peft on the same lines and model, as bench/phase2_cpu.py has them."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import phase2_cpu
import torch

from gpu_check.part import TINY, put


def run(side: str) -> None:
    """`side`: ours, compiled (ours with training.compile=true) or trainer. Batches of 16 and of 32, on one model and its lines."""
    steps, batches = (2, (2,)) if TINY else (16, (16, 32))
    most = max(batches)
    size = phase2_cpu.Size(most, most * (steps + 2), 24, "cuda", "bf16", compile=side == "compiled")
    if TINY:
        size = size._replace(lines=8, layers=1, device="cpu", precision="no", vocabulary=512)
    with tempfile.TemporaryDirectory() as folder:
        prepared = phase2_cpu.prepared(Path(folder), size)
        for batch in batches:
            if not TINY:
                torch.cuda.reset_peak_memory_stats()
            steps_of = phase2_cpu.trainer if side == "trainer" else phase2_cpu.ours
            seconds = steps_of(Path(folder), steps, size._replace(batch=batch), prepared)
            step_s = statistics.median(seconds)
            put(
                variant=str(batch),
                step_s=round(step_s, 4),
                samples_s=round(batch / step_s, 1),
                # without the steps in which lengths are new
                fastest_half_s=round(statistics.median(sorted(seconds)[: -(-len(seconds) // 2)]), 4),
                peak_gib=None if TINY else round(torch.cuda.max_memory_allocated() / 2**30, 2),
                reserved_gib=None if TINY else round(torch.cuda.max_memory_reserved() / 2**30, 2),
                steps_s=[round(s, 4) for s in seconds],
            )
