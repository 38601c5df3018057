"""What a check ran on: card, driver and the versions of the libraries."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from typing import Any

from gpu_check.part import put

PACKAGES = ("jax", "tokamax", "torch", "transformers", "peft", "trl")


def card() -> dict[str, Any]:
    """As nvidia-smi names it; {} where there is none. Asked without a framework, so that the parent can."""
    argv = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.strip().splitlines()
    if not lines:
        return {}
    name, memory, driver = (word.strip() for word in lines[0].split(","))
    return {"name": name, "memory": memory, "driver": driver, "cards": len(lines)}


def versions() -> None:
    import jax

    from podwright.accelerators import by_device_kind
    from podwright.kernels.installed import versions as libraries

    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cudnn = libraries().cudnn
    if cudnn:
        installed["cudnn"] = ".".join(map(str, cudnn))
    kind = jax.devices()[0].device_kind
    row = by_device_kind(kind)
    put(versions=installed, device_kind=kind, accelerator=row.name if row else "")
