"""Makes the environment of `make demo` and `make test` where what decides its packages has changed: `python environment.py VENV EXTRA`.

Its stamp holds a hash of the inputs, because git changes the times of files. The stamp is empty until everything is installed, and an
environment with an empty stamp is made again from nothing.
"""

from __future__ import annotations  # an older Python shall come as far as the message about its age

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CONTAINING = {"jax": ("cuda12", "cuda13", "dev")}  # extras that have all packages of another one


def constraints_file() -> Path:
    """Python 3.11 has no jax that is newer than 0.10.2."""
    return ROOT / ("constraints.txt" if sys.version_info < (3, 12) else "constraints-3.12.txt")


def inputs() -> str:
    """The checkout's path counts too: the environment imports podwright from there."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (ROOT / "pyproject.toml", constraints_file(), Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def install(venv: Path, extra: str) -> None:
    if not (venv / "pyvenv.cfg").exists():
        # In an activated environment sys.executable is a link in the folder that may just have been removed.
        python = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([python, "-m", "venv", str(venv)], check=True)
    python, constraints = str(venv / "bin" / "python"), ["-c", str(constraints_file())]
    # uv takes a third of pip's CPU seconds. torch is left to pip, which can be configured with the place of a build without CUDA.
    packages = ["uv", "torch"] if extra == "dev" else ["uv"]
    quiet = ["-q", "--disable-pip-version-check", "--no-compile"]  # Python compiles a module when it is first imported
    subprocess.run([python, "-m", "pip", "install", *quiet, *constraints, *packages], check=True)
    uv = [str(venv / "bin" / "uv"), "pip", "install", "-q", "--python", python]
    wanted = [*constraints, "-e", f"{ROOT}[{extra}]"]
    # uv does not read pip's configuration, which may name the only mirror that this machine reaches.
    if subprocess.run([*uv, *wanted], check=False).returncode:
        subprocess.run([python, "-m", "pip", "install", *quiet, *wanted], check=True)


def make(venv: Path, extra: str) -> None:
    stamp = venv / "environment.txt"
    # The scripts in an environment name its folder, so a moved one is made again like one of another Python.
    wanted = [f"{venv} {sys.base_prefix} {platform.python_version()}", inputs(), extra]
    if stamp.exists():
        present = stamp.read_text().split("\n")
        if present[:2] == wanted[:2] and present[2] in (extra, *CONTAINING.get(extra, ())):
            return
        if present[0] != wanted[0]:
            shutil.rmtree(venv)
    elif venv.exists():
        sys.exit(f"{venv} was not made by make; remove it, or name another folder: make test VENV=.venv2")
    venv.mkdir(parents=True, exist_ok=True)
    stamp.write_text("")
    install(venv, extra)
    stamp.write_text("\n".join(wanted))


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - ruff assumes the Python of pyproject.toml
        sys.exit(f"Python {platform.python_version()} is older than 3.11; type: make demo PYTHON=python3.12")
    try:
        make(Path(sys.argv[1]).absolute(), sys.argv[2])
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
