"""What saves and preemptions cost a run, and which interval between saves costs least. Pure.

Young (1974) and Daly (2006) balance the wait for saves against the steps that are computed again. A save here is asynchronous: training waits
only while a state is copied to the hosts, and the state counts once it is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

COPY = 32e9
"""bytes/s from a chip to its host, PCIe Gen5: what training waits for in a save
(https://orbax.readthedocs.io/en/latest/guides/checkpoint/v1/maximizing_performance.html, read on 2026-11-23)"""
WRITE = 0.13e9
"""bytes/s that a host writes: measured with the trainer's own writer on two busy cores, which is less than a host with TPUs has
(bench/checkpoint_save.py, bench/results/checkpoint_save-2026-11-23.json)"""
MOST_LOSS = 0.02
DAY_S = 86400.0


@dataclass(frozen=True)
class SaveTime:
    """Of one checkpoint."""

    wait_s: float
    """that training stands still"""
    write_s: float
    """until the state counts; training goes on meanwhile, and the next save waits for it"""


def save_time(num_bytes: float, num_chips: int, num_hosts: int) -> SaveTime:
    """`num_bytes`: of a training state that is split over chips, and written by hosts that each write their share."""
    return SaveTime(num_bytes / num_chips / COPY, num_bytes / num_hosts / WRITE)


def expected_loss(interval_s: float, save: SaveTime, between_s: float) -> float:
    """Share of the training time that is spent on saves and on steps that are computed again.

    `interval_s`: of training between saves; `between_s`: mean time between preemptions, much longer. A preemption loses half an interval
    in the mean, and what was trained while the last state was not yet written.
    """
    waits_s = save.wait_s + max(0.0, save.write_s - interval_s)
    return waits_s / interval_s + (interval_s / 2 + save.write_s) / between_s


def best_interval(step_s: float, max_steps: int, save: SaveTime, between_s: float) -> int:
    """Steps between saves that lose least: the optimum of Young, and no save begins before the last one is written."""
    wanted_s = max(math.sqrt(2 * save.wait_s * between_s), save.write_s)
    steps = [math.floor(wanted_s / step_s), math.ceil(wanted_s / step_s)]
    allowed = sorted({min(max(1, n), max_steps) for n in steps})
    return min(allowed, key=lambda n: expected_loss(n * step_s, save, between_s))
