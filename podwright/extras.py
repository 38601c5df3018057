"""The extras of podwright's package, by the modules that they bring: what to type where one is missing."""

from __future__ import annotations

import json
from importlib import metadata

_MODULES = {
    "jax": (
        *("jax", "jaxlib", "optax", "orbax", "safetensors", "tokenizers", "huggingface_hub", "grain", "fsspec"),
        *("datasets", "pyarrow", "array_record", "numpy"),
    ),
    "torch": ("torch", "transformers", "peft", "timm", "av", "PIL", "pillow"),
    "gcs": ("gcsfs", "google"),
}


GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
"""modules without one of which jax sees no NVIDIA GPU; their packages have the same names"""


def of(module: str) -> str:
    """The extra that brings a module; "" for one of nobody's."""
    name = module.partition(".")[0]
    return next((extra for extra, modules in _MODULES.items() if name in modules), "")


def pip(extra: str) -> str:
    """The command that installs this package with an extra: in its clone where it runs from one."""
    if _is_editable():
        return f"pip install -e '.[{extra}]' in podwright's clone"
    return f"pip install 'podwright[{extra}]'"


def install(extra: str) -> str:
    return f"type {pip(extra)}"


def gpu_fix(place: str = "") -> str:
    """What to type at a `place`, such as " there", whose jax has no plugin for NVIDIA GPUs."""
    return f"{install('cuda12')}{place}, or cuda13 in its place with a driver of 580 or newer"


def _is_editable() -> bool:
    """Whether pip installed this package as a link to a clone of its repository (`pip install -e`)."""
    try:
        origin = json.loads(metadata.distribution("podwright").read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return False
    return bool(origin.get("dir_info", {}).get("editable"))


def installed_version(package: str) -> str:
    """ "" where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
