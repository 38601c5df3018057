"""The timed rows of Phase 2: ours, and transformers' Trainer with peft on the same lines and model, as bench/phase2_cpu.py has them."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import phase2_cpu
import torch

from gpu_check.part import TINY, put


def run(side: str, batch: str) -> None:
    """`side`: ours or trainer."""
    steps = 2 if TINY else 12
    size = phase2_cpu.Size(int(batch), int(batch) * (steps + 2), 24, "cuda", "bf16")
    if TINY:
        size = phase2_cpu.Size(2, 8, 1, vocabulary=512)
    with tempfile.TemporaryDirectory() as folder:
        seconds = {"ours": phase2_cpu.ours, "trainer": phase2_cpu.trainer}[side](Path(folder), steps, size)
    step_s = statistics.median(seconds)
    put(
        step_s=round(step_s, 4),
        samples_s=round(size.batch / step_s, 1),
        peak_gib=None if TINY else round(torch.cuda.max_memory_allocated() / 2**30, 2),
        reserved_gib=None if TINY else round(torch.cuda.max_memory_reserved() / 2**30, 2),
        steps_s=[round(s, 4) for s in seconds],
    )
