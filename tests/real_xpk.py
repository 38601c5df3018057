"""The real xpk, of any version that PyPI has: installed once in a cache, and asked for the manifest of a workload without a cloud.

A dry run of `xpk workload create` needs no kubectl, no gcloud and no network. Its telemetry is off, and it has a home of its own.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

CACHE = Path(os.environ.get("PODWRIGHT_CACHE", "~/.cache/podwright")).expanduser() / "xpk"
_PRINTED = re.compile(r"Temp file \(\w+\) content: \n(.*?)^\[XPK\]", re.DOTALL | re.MULTILINE)


def installed(version: str) -> Path:
    """The program. About 220 MB and 10 s to a minute, the first time; tests in other processes wait for it."""
    place = CACHE / version
    program = place / "bin" / "xpk"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            # Most of its modules are never imported: Python compiles those that are.
            pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            # setuptools: some of its packages import pkg_resources, which newer ones lack
            subprocess.run([*pip, "--no-compile", f"xpk=={version}", "setuptools<81"], check=True)
            (place / "complete").touch()
    return program


def dry(program: Path, shim: Path, home: Path) -> None:
    """Writes `shim`, which has the program print the manifest of each workload that it is to create, and create none."""
    words = f"HOME={home} TELEMETRY_ENABLED=false DEPENDENCY_AUTO_DOWNLOAD=false PIP_NO_INDEX=1 {program}"
    shim.write_text(f'#!/bin/sh\nexec env {words} "$@" --dry-run --skip-validation\n')
    shim.chmod(0o755)


def printed(output: str) -> Any:
    """The manifest in the output of a dry run."""
    match = _PRINTED.search(output)
    if not match:
        raise RuntimeError(f"xpk printed no manifest: {output[-500:]}")
    return yaml.safe_load(match[1])


def manifest(program: Path, argv: Sequence[str], home: Path) -> Any:
    """Of a call of `xpk workload create` with the words `argv` after it."""
    (home / ".config").mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(home), "PATH": f"{program.parent}:/usr/bin:/bin", "TELEMETRY_ENABLED": "false"}
    command = [str(program), "workload", "create", *argv, "--dry-run", "--skip-validation"]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise RuntimeError(f"xpk ended with {done.returncode}: {done.stderr[-500:] or done.stdout[-500:]}")
    return printed(done.stdout)


def differences(ours: Any, theirs: Any, at: str = "") -> list[str]:
    """Every field in which two manifests differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys, absent = list(dict.fromkeys([*ours, *theirs])), "(absent)"
        pairs = [(ours.get(key, absent), theirs.get(key, absent), f"{at}.{key}") for key in keys]
        return [line for pair in pairs for line in differences(*pair)]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = [(*both, f"{at}[{number}]") for number, both in enumerate(zip(ours, theirs, strict=True))]
        return [line for pair in pairs for line in differences(*pair)]
    return [] if ours == theirs and type(ours) is type(theirs) else [f"{at}: {ours!r} is not {theirs!r}"]
