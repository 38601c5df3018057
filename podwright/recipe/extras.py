"""The extras of podwright's package, by the modules that they bring: what to type where one is missing."""

from __future__ import annotations

from importlib import metadata

_MODULES = {
    "jax": (
        *("jax", "jaxlib", "optax", "orbax", "safetensors", "tokenizers", "huggingface_hub", "grain", "fsspec"),
        *("datasets", "pyarrow"),
    ),
    "torch": ("torch", "transformers", "peft", "timm", "av", "PIL", "pillow", "numpy"),
    "gcs": ("gcsfs",),
}


GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
"""modules without one of which jax sees no NVIDIA GPU; their packages have the same names"""
GPU_FIX = (
    "type pip install -e '.[cuda12]' in podwright's clone there, or cuda13 in its place with a driver of 580 or newer"
)


def of(module: str) -> str:
    """The extra that brings a module; "" for one of nobody's."""
    name = module.partition(".")[0]
    return next((extra for extra, modules in _MODULES.items() if name in modules), "")


def install(extra: str) -> str:
    return f"type pip install -e '.[{extra}]' in podwright's clone"


def installed_version(package: str) -> str:
    """ "" where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
