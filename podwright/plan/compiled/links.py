"""How fast collectives are over the links of a slice: the torus of a TPU, or the switches between GPUs."""

from __future__ import annotations

import math

from podwright.accelerators import Accelerator
from podwright.plan.compiled.work import Collective


class Links:
    """How fast collectives are on the torus of a slice."""

    def __init__(self, row: Accelerator, topology: tuple[int, ...], efficiency: float):
        self.row, self.efficiency = row, efficiency
        self.axes = tuple(n for n in topology if n > 1)
        axes_of_torus = 3 if row.pod is None or row.pod.max_cubes else 2
        self.one_link = row.ici_bandwidth / 2 / (2 * axes_of_torus)
        """bytes/s in one direction"""

    def seconds(self, collective: Collective) -> float:
        axes = self.spanned(collective.size)
        if collective.kind in ("all-to-all", "ragged-all-to-all"):
            # half of the data crosses the middle of the longest axis
            longest = max(axes)
            return collective.whole_bytes * longest / (8 if self._wraps(axes) else 4) / self.one_link / self.efficiency
        rate = self.one_link * len(axes) * (2 if self._wraps(axes) else 1)
        return collective.sent_bytes / rate / self.efficiency

    def permute(self, collective: Collective) -> float:
        return collective.sent_bytes / self.one_link / self.efficiency

    def spanned(self, size: int) -> tuple[int, ...]:
        """The axes of the torus that a group of `size` devices spans; those not known are taken as one line."""
        chips = max(size // self.row.devices_per_chip, 1)
        for mask in range(1, 1 << len(self.axes)):
            chosen = tuple(n for i, n in enumerate(self.axes) if mask >> i & 1)
            if math.prod(chosen) == chips:
                return chosen
        return (chips,)

    def _wraps(self, axes: tuple[int, ...]) -> bool:
        pod = self.row.pod
        if pod is None:
            return True
        required = self.axes if pod.max_cubes else axes
        return all(n >= pod.wraps_from and n % pod.wraps_from == 0 for n in required)


def torus(row: Accelerator, num_devices: int) -> tuple[int, ...]:
    """The torus of the smallest slice with so many devices, where its name is not known."""
    chips = num_devices // row.devices_per_chip
    for topology in row.pod.topologies if row.pod else ():
        if math.prod(topology) == chips:
            return topology
    return (chips,)
