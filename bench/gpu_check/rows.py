"""The rows of a check, in the order in which they run, each with the seconds that it may take on a GPU."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    name: str
    part: str
    """the function of part.py that runs it"""
    arguments: tuple[str, ...]
    limit_s: int
    least_s: int
    """with less time left it is not begun"""


KERNEL_PARTS = 9  # processes that share the cases
KINDS = ("grpo", "pretrain", "pretrain-hybrid", "phase1", "phase2")

# Correctness comes first and at once: it is bound by the CPUs that compile. What is timed has the card for itself.
AT_ONCE = (
    *(Row(f"{kind} killed and resumed", "kind", (kind,), 120, 60) for kind in KINDS),
    *(
        Row(f"kernels {n + 1}/{KERNEL_PARTS}", "kernels", (str(n), str(KERNEL_PARTS)), 110, 20)
        for n in range(KERNEL_PARTS)
    ),
)
TIMED = (
    Row("pretrain packed", "pretrain", ("8",), 60, 30),
    Row("pretrain one document", "pretrain", ("1",), 45, 25),
    Row("grpo", "grpo", ("0.6b",), 70, 35),
    Row("pretrain packed, second start", "pretrain", ("8", "again"), 30, 12),
    Row("grpo, second start", "grpo", ("0.6b", "again"), 30, 12),
    Row("phase2", "phase2", ("ours",), 70, 25),
    Row("phase2 trainer", "phase2", ("trainer",), 70, 25),
    Row("pretrain transformers", "transformers", (), 60, 25),
    Row("grpo 1.7b", "grpo", ("1.7b",), 90, 45),
    Row("grpo trl", "trl", (), 90, 70),
    Row("phase2 compiled", "phase2", ("compiled",), 150, 50),
)
ALL = (*AT_ONCE, *TIMED)
