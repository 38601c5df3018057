"""How well one modality finds another among held-out lines: the share of queries whose right answer is among the nearest.

Equal contents are one answer, and every answer that belongs to an equal query is right; so chance is counted, not 1 / N.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from podwright.train.multimodal.data.paired import PairedLines

NEAREST = (1, 5)
_ROWS = 1024  # queries at a time


def retrieval(units: Mapping[str, Tensor], lines: PairedLines) -> dict[str, Any]:
    """Figures of every direction, and their means. `units` [N, D] of each modality, of length 1."""
    directions = []
    for query, target in itertools.permutations(units, 2):
        if direction := _direction(query, target, units, lines):
            directions.append(direction)
    means: dict[str, Any] = {}
    for figure in ("recall", "chance"):
        for k in NEAREST:
            name = f"{figure}_at_{k}"
            means[name] = sum(d[name] for d in directions) / len(directions) if directions else None
    return means | {"directions": directions}


def _direction(query: str, target: str, units: Mapping[str, Tensor], lines: PairedLines) -> dict[str, Any] | None:
    """None where there are not two answers to choose from."""
    both = (lines.present[query] & lines.present[target]).nonzero()[:, 0]
    if not len(both):
        return None
    queries, answers = (torch.unique(lines.features[m][both], dim=0, return_inverse=True)[1] for m in (query, target))
    count = int(answers.max()) + 1
    if count < 2:
        return None
    first = torch.zeros(count, dtype=torch.long).scatter_(0, answers, torch.arange(len(both)))  # a line for each answer
    right = torch.zeros(int(queries.max()) + 1, count, dtype=torch.bool)
    right[queries, answers] = True
    keys = units[target][both[first]]
    nearer = []  # wrong answers that are as near as the nearest right one
    for start in range(0, len(both), _ROWS):
        part = slice(start, start + _ROWS)
        near, good = units[query][both[part]] @ keys.T, right[queries[part]]
        best = near.masked_fill(~good, -math.inf).amax(1, keepdim=True)
        nearer.append(((near >= best) & ~good).sum(1))
    ranks = torch.cat(nearer)
    numbers = right[queries].sum(1).tolist()
    figures: dict[str, Any] = {"query": query, "target": target, "num": len(both), "answers": count}
    for k in NEAREST:
        figures[f"recall_at_{k}"] = float((ranks < k).double().mean())
        figures[f"chance_at_{k}"] = sum(_chance(count, n, k) for n in numbers) / len(numbers)
    return figures


def _chance(count: int, right: int, k: int) -> float:
    """That one of `right` answers is among `k` drawn from `count`."""
    return 1 - math.comb(count - right, min(k, count)) / math.comb(count, min(k, count))
