"""Machine types of GKE with TPUs, and which one the hosts of a slice have. Source: kubernetes-engine/docs/concepts/plan-tpus."""

from __future__ import annotations

import re

from podwright.errors import counted
from podwright.slices import Slice
from podwright.targets.gke import xpk_shape

_CHIPS = {
    "tpu7x-standard": (1, 4),
    "tpu7x-ultranet": (4,),
    "ct6e-standard": (1, 4, 8),
    "ct5p-hightpu": (1, 2, 4),
    "ct5lp-hightpu": (1, 4, 8),
}
"""of a host, by series; tpu7x-ultranet is in no table of Google's, and in settings of users"""
MACHINE_TYPES = tuple(f"{series}-{chips}t" for series, sizes in _CHIPS.items() for chips in sizes)


def of_slice(slice_: Slice) -> str:
    """Of the hosts of a slice. They have 4 chips wherever the slice has as many, as xpk makes them."""
    return re.sub(r"\d+t$", f"{xpk_shape.chips_per_vm(slice_)}t", str(slice_.names()["machine_type"]))


def fault(machine_type: str, slice_: Slice) -> str:
    """Why hosts of a slice cannot be of a machine type, and which one is right; "" where they can."""
    chips = xpk_shape.chips_per_vm(slice_)
    right = of_slice(slice_)
    generation, own_generation = machine_type.partition("-")[0], right.partition("-")[0]
    if generation == own_generation and machine_type.endswith(f"-{chips}t"):
        return ""
    hosts = f"whose hosts have {counted(chips, 'chip')}"
    return f"machine_type={machine_type} is not for {slice_.name}, {hosts}; set machine_type={right}"
