"""Packages for a machine without a network: `python -m gpu_check.wheels DIR --have FILE` downloads what it lacks, `--wheels DIR` there uses it.

FILE is what `python3 -m pip list --format=freeze` prints on that machine; nothing of it is carried or replaced.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# By the extras of pyproject.toml that a check uses; peers that are not carried are left out by their rows.
REQUIRED = {
    "jax": (
        "optax",
        "orbax-checkpoint",
        "safetensors",
        "tokenizers",
        "grain",
        "fsspec",
        "tokamax",
        "nvidia-ml-py",
    ),
    "control": ("typer", "rich", "pydantic", "pyyaml", "jinja2", "psutil", "matplotlib", "huggingface_hub"),
    "peers": ("transformers", "peft", "accelerate", "datasets", "trl"),
}


def name_of(line: str) -> str:
    return re.split(r"[=<>! @;\[]", line.strip(), maxsplit=1)[0].lower().replace("_", "-")


def unpacked(wheels: Path | None, folder: Path) -> Path | None:
    """A folder for the module path with what the wheels hold; None without wheels. Nothing is installed into this Python."""
    if not wheels:
        return None
    files = sorted(map(str, wheels.glob("*.whl")))
    if not files:
        sys.exit(
            f"{wheels} holds no wheels; python -m gpu_check.wheels {wheels} downloads them, where there is a network"
        )
    site = folder / "site"
    quiet = ["-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", str(site), *files], check=True)
    return site


def missing(python: str, platform: str, have: list[str], cuda: str) -> list[str]:
    """NAME==VERSION of all that the required packages need and `have` has not, as pip resolves it; nothing is downloaded for it."""
    there = {name_of(line) for line in have}
    wanted = [package for packages in REQUIRED.values() for package in packages]
    wanted.append("jax" if "jax" in there else f"jax[cuda{cuda}]")
    with tempfile.TemporaryDirectory() as folder:
        constraints, report = Path(folder) / "have.txt", Path(folder) / "report.json"
        # Versions with a local part, such as torch's +cu130, are on no index.
        pinned = [line.strip() for line in have if "==" in line and "+" not in line and "torch" not in name_of(line)]
        constraints.write_text("\n".join(pinned) + "\n")
        argv = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--dry-run",
            "--ignore-installed",
            "--report",
            str(report),
        ]
        where = ["--target", folder, *_machine(python, platform), "-c", str(constraints)]
        subprocess.run([*argv, *where, *wanted], check=True)
        packages = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return [f"{p['name']}=={p['version']}" for p in packages if name_of(p["name"]) not in there]


def _machine(python: str, platform: str) -> list[str]:
    return ["--only-binary", ":all:", "--python-version", python, "--platform", platform]


def main() -> int:
    parser = argparse.ArgumentParser("python -m gpu_check.wheels", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--have", type=Path, help="pip list --format=freeze of that machine; default: it has nothing")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--platform", default="manylinux_2_28_x86_64")
    parser.add_argument("--cuda", default="13", help="of jax, where that machine has none")
    parser.add_argument("--list", action="store_true", help="print what would be downloaded")
    options = parser.parse_args()
    have = options.have.read_text().splitlines() if options.have else []
    packages = missing(options.python, options.platform, have, options.cuda)
    if options.list:
        print("\n".join(packages))
        return 0
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(options.out)]
    return subprocess.run([*argv, *_machine(options.python, options.platform), *packages], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
