"""One row in a process of its own: `python -m gpu_check.part NAME [ARGUMENT ...]`, which prints a line of JSON for each figure.

What a row needs and this machine lacks ends it as skipped, with the reason.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

TINY = bool(os.environ.get("GPU_CHECK_TINY"))
"""sizes for a CPU, by which every line is run and nothing is measured"""
PARTS = {
    "environment": "gpu_check.environment:versions",
    "kernels": "gpu_check.kernels:check",
    "kind": "gpu_check.kinds:run",
    "pretrain": "gpu_check.ours:pretrain",
    "grpo": "gpu_check.ours:grpo",
    "phase2": "gpu_check.phase2:run",
    "transformers": "gpu_check.peers:transformers_loop",
    "trl": "gpu_check.peers:trl_trainer",
}
OPTIONAL = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "timm")


class Skipped(Exception):
    """Why a row cannot run on this machine."""


def put(**figures: Any) -> None:
    """A line for the result; the parent reads lines that begin like this one."""
    print(json.dumps({"figures": figures}), flush=True)


def main() -> int:
    name, *arguments = sys.argv[1:]
    module, _, function = PARTS[name].partition(":")
    try:
        getattr(importlib.import_module(module), function)(*arguments)
    except Skipped as e:
        print(json.dumps({"skipped": str(e)}), flush=True)
    except ModuleNotFoundError as e:
        if str(e.name).partition(".")[0] not in OPTIONAL:
            raise
        print(json.dumps({"skipped": f"the package {e.name} is not installed"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
