"""Failures as data: what a line of a log says, which ending that is, why it came about, and what to type or do.

Of a line the first rule that matches it counts, so that specific rules stand before general ones. Each has a log in tests/logs.
A remedy may name a field of recipe/advice.py in braces, which has other keys for other kinds of recipe, and RUN.
"""

from __future__ import annotations

from podwright.watch.rules import buckets, cloud, files, gke, gpus, memory, processes, programs, slurm, ssh, tpu
from podwright.watch.rules.rule import Role, Rule

__all__ = ["RULES", "Role", "Rule"]

RULES: tuple[Rule, ...] = (
    *ssh.RULES,
    *buckets.RULES,
    *cloud.RULES,
    *gke.RULES,
    *tpu.RULES,
    *memory.RULES,
    *files.RULES,
    *gpus.RULES,
    *processes.RULES,
    *programs.RULES,
    *slurm.RULES,
)
