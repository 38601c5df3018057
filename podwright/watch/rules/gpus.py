"""GPUs and their drivers."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import RESUME, rule

RULES = (
    rule(
        "old-driver",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|forward compatibility was attempted",
        Ending.BAD_INPUT,
        "the node's NVIDIA driver is older than what this PyTorch was built for",
        "install a PyTorch for an older CUDA, or have the driver updated",
    ),
    rule(
        "no-cuda",
        r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|no NVIDIA driver on your system",
        Ending.BAD_INPUT,
        "PyTorch sees no GPU here",
        "look at nvidia-smi and CUDA_VISIBLE_DEVICES; a PyTorch for CPUs alone is replaced by pip install torch of a CUDA index",
    ),
    rule(
        "gpu-broken",
        r"uncorrectable ECC error|GPU has fallen off the bus|NVRM: Xid|CUDA error: (unspecified launch failure|an illegal instruction)",
        Ending.NODE_LOST,
        "a GPU has failed",
        f"leave its node out (sbatch: [--exclude=NODE] in the target's file; over ssh take it out of hosts), {RESUME}",
    ),
)
