"""Packages for a machine without a network: `python -m gpu_check.wheels DIR --have FILE` downloads what it lacks, `--wheels DIR` there uses it.

FILE is what `python3 -m pip list --format=freeze` prints on that machine; nothing of it is carried or replaced.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
EXTRAS = ("jax", "cuda13", "torch")
# What only the compared rows need; where it is not carried, these are skipped.
PEERS = ("accelerate", "trl")


def required() -> list[str]:
    """The names of all that the project and these extras of it need. Versions are those of the other machine, where it has them."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    return sorted({name_of(line) for line in lines} - {project["name"], "jax"} | set(PEERS))


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


def missing(python: str, processor: str, have: list[str], cuda: str) -> list[str]:
    """NAME==VERSION of all that the required packages need and `have` has not, as uv resolves it; nothing is downloaded for it."""
    there = {name_of(line) for line in have}
    wanted = [*required(), "jax" if "jax" in there else f"jax[cuda{cuda}]"]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "have.txt"
        # Versions with a local part, such as torch's +cu130, are on no index.
        pinned = [line.strip() for line in have if "==" in line and "+" not in line]
        constraints.write_text("\n".join(pinned) + "\n")
        argv = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "compile",
            "-q",
            "-",
            "--no-header",
            "--no-annotate",
            "-c",
            str(constraints),
        ]
        where = [
            "--only-binary",
            ":all:",
            "--python-version",
            python,
            "--python-platform",
            f"{processor}-manylinux_2_28",
        ]
        done = subprocess.run([*argv, *where], input="\n".join(wanted), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"uv finds no packages for Python {python} on {processor} beside what that machine has; is uv installed here?"
        )
    # With torch its libraries are there, also where they are no packages.
    of_torch = ("nvidia-", "cuda-", "triton") if {"torch", "jax"} <= there else ()
    return [
        line for line in done.stdout.split() if name_of(line) not in there and not name_of(line).startswith(of_torch)
    ]


def download(packages: list[str], out: Path, python: str, processor: str) -> int:
    """pip takes a platform to the letter: wheels for an older C library are named too."""
    platforms = [
        *(f"manylinux_2_{minor}" for minor in range(28, 4, -1)),
        "manylinux2014",
        "manylinux2010",
        "manylinux1",
    ]
    named = [word for platform in platforms for word in ("--platform", f"{platform}_{processor}")]
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(out), "--only-binary", ":all:"]
    return subprocess.run([*argv, "--python-version", python, *named, *packages], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser("python -m gpu_check.wheels", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--have", type=Path, help="pip list --format=freeze of that machine; default: it has nothing")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--processor", choices=("x86_64", "aarch64"), default="x86_64")
    parser.add_argument("--cuda", default="13", help="of jax, where that machine has none")
    parser.add_argument("--list", action="store_true", help="print what would be downloaded")
    options = parser.parse_args()
    have = options.have.read_text().splitlines() if options.have else []
    packages = missing(options.python, options.processor, have, options.cuda)
    if options.list:
        print("\n".join(packages))
        return 0
    return download(packages, options.out, options.python, options.processor)


if __name__ == "__main__":
    sys.exit(main())
