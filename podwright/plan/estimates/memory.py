"""What an estimate of a program's memory consists of, and which findings follow from it.

The estimates themselves are closed forms: no compiler, no jax, a fraction of a millisecond. `layers.py` has what all kinds share,
`memory_grpo.py` and `memory_pretrain.py` the programs; `bench/plan_estimates.py` compares every total with the compiler's (docs/evidence.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podwright.accelerators import GIB
from podwright.plan.document import MemoryEntry
from podwright.plan.findings import Finding

PARTS = {
    "weights": "what is trained, float32, and frozen weights",
    "optimizer": "both moments of AdamW",
    "reference": "the frozen policy that the KL is measured to",
    "gradients": "of the weights, float32; twice while micro-batches are added up",
    "copies": "weights in the dtype they are computed with, gathered where a program reads them whole",
    "activations": "what the forward pass keeps of every layer for the backward one",
    "layer": "the arrays of one layer while it is computed",
    "vocabulary": "logits of one chunk, and the gradient of the output embedding",
    "cache": "keys and values of prompts and completions",
    "batch": "tokens and their log-probabilities",
}
ERROR = 0.15  # how far from the compiler's total an estimate may be (docs/evidence.md)
FIT = "type --fit, which searches for settings"
"""what to do about programs that are too large"""


@dataclass(frozen=True)
class Estimate:
    """One program; bytes per device by the names of PARTS, those that are not 0."""

    name: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def of_parts(name: str, parts: Mapping[str, float]) -> Estimate:
    """Of program `name`, its parts in the order of PARTS."""
    return Estimate(name, {part: parts[part] for part in PARTS if parts.get(part)})


def entry(estimate: Estimate, limit_bytes: float) -> MemoryEntry:
    return MemoryEntry(
        name=estimate.name,
        estimated_gib=round(estimate.total / GIB, 4),
        limit_gib=round(limit_bytes / GIB, 4),
        parts_gib={name: round(size / GIB, 4) for name, size in estimate.parts.items()},
    )


def findings(entries: Sequence[MemoryEntry], near: str) -> list[Finding]:
    """What the estimates mean; `near`: what to type near the limit. Within the error of an estimate only a compiler, or a run, can tell."""
    listed = []
    for e in entries:
        need, limit = e.estimated_gib, e.limit_gib
        largest = sorted(e.parts_gib.items(), key=lambda part: -part[1])[:3]
        parts = ", ".join(f"{part} {gib:.1f}" for part, gib in largest)
        what = f"{e.name} needs about {need:.1f} of {limit:.1f} GiB per device ({parts})"
        if need > limit * (1 + ERROR):
            listed.append(Finding("memory", "error", what, FIT, "too-large"))
        elif need > limit * (1 - ERROR):
            what = f"{what}, too close to the limit for this estimate"
            listed.append(Finding("memory", "inconclusive", what, near, "near-the-limit"))
    if entries and not listed:
        most = max(entries, key=lambda e: e.estimated_gib)
        message = f"{most.name} needs most memory, about {most.estimated_gib:.1f} of {most.limit_gib:.1f} GiB"
        listed.append(Finding("memory", "info", message))
    return listed
