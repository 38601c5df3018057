"""The Python that compiles a plan: this one, or one with another jax and its libtpu, made once for that version and kept.

Such an environment has jax[tpu] of that version and whatever else this package's compute half needs, in the versions that go with
it; this package itself is the one that runs here. Where no release of it is for this Python, a newer one that is found is taken.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from podwright.errors import UserError
from podwright.extras import installed_version
from podwright.plan.compiled import child
from podwright.plan.compiled.cache import Progress, exclusive
from podwright.plan.findings import InconclusiveCheck
from podwright.rundir import write_json
from podwright.shell import Shell

PACKAGE = Path(__file__).resolve().parents[2]
PACKAGES = ("jax", "jaxlib", "libtpu", "optax", "tokamax")
"""whose versions a verdict holds for"""
MORE = {"tokamax": "tokamax>=0.0.17"}
"""what a recipe may ask for besides"""
LIMIT_S = 1800
_PRINT_VERSIONS = (
    "import json, sys; from importlib.metadata import distributions; known = {d.name: d.version for d in distributions()}; "
    "print(json.dumps({name: known.get(name, '') for name in sys.argv[1:]}))"
)


@dataclasses.dataclass(frozen=True)
class Compiler:
    python: str
    env: dict[str, str]
    versions: dict[str, str]
    """of PACKAGES; "" where one is not installed"""


def here() -> Compiler:
    return Compiler(sys.executable, {}, {name: installed_version(name) for name in PACKAGES})


def find(jax: str, cache: Path, runner: Shell, progress: Progress, more: str = "") -> Compiler:
    """The compiler with this version of jax, "" for what is installed, and the library `more`.

    UserError for a version that does not exist, InconclusiveCheck where its environment cannot be made here.
    """
    if known := ready(jax, cache, more):
        return known
    if not re.fullmatch(r"\d+(\.\d+){1,2}", jax):
        raise UserError(f"--jax {jax} is no version", "type one such as --jax 0.11.2", "not-a-version")
    with exclusive("compiler", progress):
        if known := ready(jax, cache, more):  # another plan may have made it meanwhile
            return known
        folder = _folder(jax, cache, more)
        _make(jax, folder, runner, progress, [MORE[more]] if more else [])
        return _in(folder)


def ready(jax: str, cache: Path, more: str = "") -> Compiler | None:
    """The compiler that `find` has without making an environment; None where it would have to."""
    own = here()
    if jax in ("", own.versions["jax"]) and (not more or own.versions[more] or not jax):
        return own
    folder = _folder(jax, cache, more)
    return _in(folder) if (folder / "made.json").exists() else None


def _folder(jax: str, cache: Path, more: str) -> Path:
    return cache / "-".join(filter(None, ("jax", jax, more)))


def _in(folder: Path) -> Compiler:
    versions = json.loads((folder / "made.json").read_text())
    return Compiler(str(folder / "bin" / "python"), {"PYTHONPATH": str(folder / "source")}, versions)


def _make(jax: str, folder: Path, runner: Shell, progress: Progress, more: list[str]) -> None:
    log = log_of(folder)
    reason = ""
    log.unlink(missing_ok=True)
    install = ["pip", "install", "-q", "--disable-pip-version-check", f"jax[tpu]=={jax}", *_requirements(), *more]
    phase = f"installing jax {jax} and its libtpu, once"
    for python in _interpreters():
        if make(folder, python, [install], PACKAGES, phase, runner, progress):
            return
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        reason = reason or (errors[-1].removeprefix("ERROR: ") if errors else "pip failed")
    output = log.read_text(errors="replace")
    newer = "; install a newer python3 beside this one if it is too old for it" if "No matching" in output else ""
    fault = UserError if _is_unreleased(jax, output) else InconclusiveCheck
    raise fault(f"no environment with jax {jax} could be made: {reason}", f"the log is {log}{newer}", "not-installed")


def _is_unreleased(jax: str, output: str) -> bool:
    """Whether pip reached an index that has no such version. Without a network it says that there are none at all; a version that
    needs a newer Python is listed as ignored."""
    refused = f"No matching distribution found for jax[tpu]=={jax}" in output
    return refused and "(from versions: none)" not in output and f" {jax} Requires-Python" not in output


def make(
    folder: Path,
    python: str,
    installs: Sequence[Sequence[str]],
    packages: Sequence[str],
    phase: str,
    runner: Shell,
    progress: Progress,
) -> bool:
    """Make an environment of `python` in `folder` by modules of its own, each with arguments; whether all of them succeeded.

    Its made.json, which is written last, has the versions of `packages`; `source` has this package. Where it fails only its log is left.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    own = str(folder / "bin" / "python")
    steps = [[python, "-m", "venv", str(folder)], *([own, "-m", *install] for install in installs)]
    try:
        for argv in steps:
            run = child.run(
                runner,
                argv,
                cwd=folder.parent,
                env={},
                log=log_of(folder),
                limit_s=LIMIT_S,
                tick=lambda seconds, pid: progress("compiler", phase, seconds),
            )
            if run.ended != 0:
                return False
        (folder / "source").mkdir()
        (folder / "source" / "podwright").symlink_to(PACKAGE)
        code, versions = runner.output([own, "-I", "-c", _PRINT_VERSIONS, *packages])
        assert code == 0, "pip installs what it says it has installed"
        write_json(folder / "made.json", json.loads(versions))
        return True
    finally:
        if not (folder / "made.json").exists():
            shutil.rmtree(folder, ignore_errors=True)


def log_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _interpreters() -> Iterator[str]:
    """This Python, then newer ones, the oldest of them first."""
    yield sys.executable
    minors = range(sys.version_info.minor + 1, sys.version_info.minor + 5)
    yield from filter(None, map(interpreter, (f"3.{minor}" for minor in minors)))


def interpreter(version: str) -> str | None:
    """The path of a Python of this version, such as 3.12, that runs: pyenv has a shim for each version, also where no Python is behind it."""
    name = f"python{version}"
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"), reverse=True)
    on_path = (shutil.which(name, path=folder) for folder in os.get_exec_path())
    paths = filter(None, (*map(str, kept), *on_path))
    return next((path for path in paths if Shell().ask([path, "-c", ""])[0] == 0), None)


def _requirements() -> list[str]:
    """What this package's compute half needs besides jax, out of its own metadata."""
    requirements = []
    for line in importlib.metadata.requires("podwright") or []:
        requirement, _, marker = line.partition(";")
        name = re.split(r"[^A-Za-z0-9_-]", requirement.strip())[0]
        if name not in ("jax", "podwright", "matplotlib", "datasets") and marker.strip() in (
            "",
            "extra == 'jax'",
            'extra == "jax"',
        ):
            requirements.append(requirement.strip())
    return requirements
