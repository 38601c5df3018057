"""What the table of kernels asks of this process: the versions of its libraries, and the generation of a device."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax

from podwright.attention_kernels import Versions
from podwright.extras import installed_version


@functools.cache
def versions() -> Versions:
    """Of the kernels' libraries."""
    return Versions(_numbers(jax.__version__), _cudnn(), _numbers(installed_version("tokamax")))


def generation(device: Any) -> tuple[int, int] | None:
    """The compute capability of an NVIDIA GPU, also of one that is only compiled for; None for other devices."""
    match = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    return (int(match[1]), int(match[2])) if match else None


def _cudnn() -> tuple[int, ...]:
    """As JAX found it, which need not be a package."""
    from jax._src.lib import cuda_versions

    try:
        number = cuda_versions.cudnn_get_version() if cuda_versions else 0
    except RuntimeError:  # CUDA is there, and cuDNN is not
        number = 0
    return (number // 10000, number // 100 % 100, number % 100) if number else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
