"""The Python that compiles a plan: this one, or one with another jax and its libtpu, made once for that version and kept.

Such an environment has jax[tpu] of that version and whatever else this package's compute half needs, in the versions that go with
it; this package itself is the one that runs here. Where no release of it is for this Python, a newer one that is found is taken.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from podwright.errors import UserError
from podwright.plan.compiled.cache import Progress
from podwright.plan.findings import InconclusiveCheck
from podwright.recipe.extras import installed_version
from podwright.shell import Shell

PACKAGE = Path(__file__).resolve().parents[2]
PACKAGES = ("jax", "jaxlib", "libtpu", "optax", "tokamax")
"""whose versions a verdict holds for"""
MORE = {"tokamax": "tokamax>=0.0.17"}
"""what a recipe may ask for besides"""
LIMIT_S = 1800
_POLL_S = 0.2
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
        raise UserError(f"--jax {jax} is no version", "type one such as --jax 0.11.2")
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
    log, reason = folder.with_name(f"{folder.name}.log"), ""
    log.unlink(missing_ok=True)
    for python in _interpreters():
        shutil.rmtree(folder, ignore_errors=True)
        begin = time.monotonic()
        wanted = [f"jax[tpu]=={jax}", *_requirements(), *more]
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
        phase = f"installing jax {jax} and its libtpu, once"
        venv = [python, "-m", "venv", str(folder)]
        if all(install_step(argv, log, begin, phase, runner, progress) for argv in (venv, pip)):
            (folder / "source").mkdir()
            (folder / "source" / "podwright").symlink_to(PACKAGE)
            versions = installed_versions(folder, PACKAGES, runner)
            (folder / "made.json").write_text(json.dumps(versions))  # last: an environment without it is made anew
            return
        errors = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        reason = reason or (errors[-1].removeprefix("ERROR: ") if errors else "pip failed")
    shutil.rmtree(folder, ignore_errors=True)
    output = log.read_text(errors="replace")
    newer = "; install a newer python3 beside this one if it is too old for it" if "No matching" in output else ""
    fault = UserError if _is_unreleased(jax, output) else InconclusiveCheck
    raise fault(f"no environment with jax {jax} could be made: {reason}", f"the log is {log}{newer}")


def _is_unreleased(jax: str, output: str) -> bool:
    """Whether pip reached an index that has no such version. Without a network it says that there are none at all; a version that
    needs a newer Python is listed as ignored."""
    refused = f"No matching distribution found for jax[tpu]=={jax}" in output
    return refused and "(from versions: none)" not in output and f" {jax} Requires-Python" not in output


def installed_versions(folder: Path, packages: Iterable[str], runner: Shell) -> dict[str, str]:
    """Of the packages in the environment `folder`; "" for one that is not installed there."""
    code, versions = runner.output([str(folder / "bin" / "python"), "-I", "-c", _PRINT_VERSIONS, *packages])
    assert code == 0, "pip installs what it says it has installed"
    return dict(json.loads(versions))


def install_step(argv: list[str], log: Path, begin: float, phase: str, runner: Shell, progress: Progress) -> bool:
    """Run one command of an installation, at most until LIMIT_S after `begin` (of `time.monotonic`); whether it succeeded."""
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = runner.start(argv, cwd=log.parent, env={}, log=log)
    try:
        while (code := runner.returncode(pid)) is None and (seconds := time.monotonic() - begin) < LIMIT_S:
            progress("compiler", phase, seconds)
            time.sleep(_POLL_S)
        return code == 0
    finally:
        runner.kill(pid)


def _interpreters() -> Iterator[str]:
    """This Python, then newer ones, the oldest of them first."""
    yield sys.executable
    for minor in range(sys.version_info.minor + 1, sys.version_info.minor + 5):
        name = f"python3.{minor}"
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
        path = str(kept[-1]) if kept else shutil.which(name)
        if path:
            yield path


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


def missing_package(error: str) -> str:
    """The package that a process of the compute half did not find, by the last line that it wrote; "" for another error."""
    named = re.search(r"No module named '(\w+)'", error)
    return named[1] if named else ""
