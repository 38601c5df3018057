"""`python -m podwright.train facts`: what this machine is, as one JSON document. It judges nothing; plan/checks/machines.py does.

No framework is loaded for it: versions are those of the installed packages, GPUs are asked for through NVIDIA's own library.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from podwright import cgroup
from podwright.errors import UserError, expanded
from podwright.storage import trial

Facts = dict[str, Any]
_NVIDIA = [f"{name}-cu{cuda}" for cuda in (12, 13) for name in ("nvidia-cudnn", "nvidia-nccl")] + [
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
]
PACKAGES = ("podwright", "jax", "jaxlib", "libtpu", "torch", "transformers", "peft", "timm", "av", "pillow", *_NVIDIA)


def gather(folders: list[str], peers: list[str], files: list[str], storage: str = "") -> Facts:
    """Of this machine; whether `folders` can be written, `peers` and itself among them have an address here, `files` are here,
    and what is wrong with `storage`, if one is named."""
    installed = {}
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in PACKAGES:
            installed[name] = distribution.version
    gpus, fault, driver = _gpus()
    hosts = [*peers, socket.gethostname()] if len(peers) > 1 else peers
    return {
        "host": socket.gethostname(),
        "time": time.time(),
        "python": platform.python_version(),
        "versions": {name: installed[name] for name in PACKAGES if name in installed},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count(),
        "memory_bytes": cgroup.memory_bytes(),
        "shm_bytes": _free("/dev/shm"),
        "open_files": _open_files(),
        "driver": driver,
        "gpus": gpus,
        "gpus_fault": fault,
        "folders": {folder: _folder(Path(folder)) for folder in folders},
        "peers": {peer: _address(peer) for peer in hosts},
        "files": {file: expanded(file).exists() for file in files},
        "storage": _storage(storage) if storage else None,
    }


def _open_files() -> int:
    """That a trainer may open: it raises its limit to the one that only an administrator can raise."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if most >= 0 else sys.maxsize  # RLIM_INFINITY


def _gpus() -> tuple[list[Facts], str, str]:
    """Each GPU, why none could be looked at, and the driver's version."""
    try:
        import pynvml
    except ImportError:
        return [], "the package nvidia-ml-py is not installed" if Path("/proc/driver/nvidia").exists() else "", ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        return [], str(e) if Path("/proc/driver/nvidia").exists() else "", ""
    gpus = []
    for i in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(i)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        gpus.append({"name": pynvml.nvmlDeviceGetName(handle), "memory_bytes": memory.total, "used_bytes": memory.used})
    return gpus, "", str(pynvml.nvmlSystemGetDriverVersion())


def _folder(path: Path) -> Facts:
    """Of `path`, or of the nearest above it that is there; written to, for permissions alone do not tell."""
    there = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    fault = ""
    try:
        with tempfile.NamedTemporaryFile(dir=there):
            pass
    except OSError as e:
        fault = e.strerror or str(e)
    return {"there": str(there), "fault": fault, "free_bytes": _free(str(there))}


def _storage(url: str) -> Facts:
    try:
        trial.require_usable(url)
    except UserError as e:
        return {"url": url, "fault": e.what, "fix": e.fix}
    return {"url": url, "fault": "", "fix": ""}


def _free(path: str) -> int | None:
    try:
        return psutil.disk_usage(path).free
    except OSError:
        return None


def _address(name: str) -> str | None:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None
