"""Facts about accelerators, each row with its source. One device is what jax.devices() counts."""

from __future__ import annotations

import dataclasses

GIB = 1024**3


@dataclasses.dataclass(frozen=True)
class Accelerator:
    name: str
    hbm_bytes: float
    """memory a program can use, per device"""
    bf16_flops: float
    """peak dense FLOP/s per device"""
    hbm_bandwidth: float
    """bytes/s per device"""
    source: str
    kinds: tuple[str, ...]
    """what jax's Device.device_kind calls it"""


# TPU: cloud.google.com/tpu/docs (one page a generation); usable HBM as libtpu's own out-of-memory message states it.
# GPU: NVIDIA's data sheets, dense bf16 without sparsity.
ACCELERATORS = (
    Accelerator("v5e", 15.75 * GIB, 197e12, 0.82e12, "docs/tpu/v5e", ("TPU v5 lite", "TPU v5e")),
    Accelerator("v5p", 95.73 * GIB, 459e12, 2.77e12, "docs/tpu/v5p", ("TPU v5", "TPU v5p")),
    Accelerator("v6e", 31.24 * GIB, 918e12, 1.64e12, "docs/tpu/v6e", ("TPU v6 lite", "TPU v6e")),
    Accelerator("tpu7x", 94.74 * GIB, 1153.5e12, 3.69e12, "docs/tpu/tpu7x, two devices a chip", ("TPU7x", "TPU v7x")),
    Accelerator("A100-40GB", 39.4 * GIB, 312e12, 1.56e12, "A100 data sheet", ("NVIDIA A100-SXM4-40GB",)),
    Accelerator("A100-80GB", 79.1 * GIB, 312e12, 2.04e12, "A100 data sheet", ("NVIDIA A100-SXM4-80GB",)),
    Accelerator("H100-80GB", 79.1 * GIB, 989e12, 3.35e12, "H100 SXM data sheet", ("NVIDIA H100 80GB HBM3",)),
    Accelerator("H200", 139.8 * GIB, 989e12, 4.8e12, "H200 data sheet", ("NVIDIA H200",)),
)


def by_device_kind(kind: str) -> Accelerator | None:
    """The row for what jax calls a device, or None when its peak is not known (a CPU, say)."""
    return next((a for a in ACCELERATORS if kind in a.kinds), None)
