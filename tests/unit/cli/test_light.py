"""The control half starts fast and never touches the libraries of the compute half."""

import ast
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from podwright.cli.app import app
from tests import verbs

ROOT = Path(__file__).parents[3]
CONTROL = (
    "cli",
    "shell",
    "errors",
    "accelerators",
    "slices",
    "rundir",
    "recipe",
    "plan",
    "targets",
    "run",
    "watch",
    "report",
    "track",
)
HEAVY = ("jax", "jaxlib", "torch", "numpy", "matplotlib", "transformers", "mlflow", "tensorboard", "wandb")
NOT_FOR_HELP = ("pydantic", "rich", "yaml", "psutil", "jinja2", *HEAVY)


def modules() -> list[str]:
    found = []
    for name in CONTROL:
        path = ROOT / "podwright" / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        dotted = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files]
        found += [name for name in dotted if not name.endswith(".detached")]
    return found


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_no_control_module_imports_the_compute_halfs_libraries() -> None:
    names = modules()
    assert {"podwright.run.drive", "podwright.plan.checks.meshes"} <= set(names)
    code = f"import sys, importlib\nfor m in {HEAVY}: sys.modules[m] = None\nfor m in {names}: importlib.import_module(m)\n"
    code += "print([m for m in sys.modules if m.startswith(('podwright.train', 'podwright.models', 'podwright.data', 'podwright.kernels'))])"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_help_imports_nothing_it_does_not_need() -> None:
    code = "import sys\nfrom podwright.cli.app import main\nmain(['--help'])\n"
    code += f"print('LOADED', [m for m in {NOT_FOR_HELP} if m in sys.modules])"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"


def best_cpu_s(*argv: str) -> float:
    """CPU seconds, which another process's work does not lengthen as it does the seconds on the wall."""
    times = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *argv],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            check=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_help_is_there_at_once() -> None:
    assert best_cpu_s("-m", "podwright", "--help") < max(0.2, 4 * best_cpu_s("-c", "pass"))


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words)


VERBS = sorted(leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(verb: str) -> None:
    done = verbs.call(*verb.split(), "--help")
    assert done.code == 0 and "--json" in done.stdout and not done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_starts_and_refuses_an_option_that_it_does_not_have(verb: str) -> None:
    argv = [sys.executable, "-m", "podwright", *verb.split(), "--no-such-option"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: No such option: --no-such-option")


def test_the_installed_program_is_this_command_line() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("podwright"), "list", "--no-such-option"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "") and "No such option: --no-such-option" in done.stderr


FIRST_IMPORTS = """
import importlib, os, sys
import jinja2, psutil, pydantic, rich.console, rich.live, typer, yaml

wrong = []
for name in sys.argv[1:]:
    if not (child := os.fork()):
        importlib.import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        wrong.append(name)
sys.exit(", ".join(wrong) or 0)
"""


def lazy_imports() -> set[str]:
    """Modules that a verb imports when it is called."""
    names = set()
    for path in (ROOT / "podwright" / "cli").glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("podwright."):
                    names.add(str(node.module))
    return names


def test_what_a_verb_imports_when_it_is_called_can_be_imported_first() -> None:
    """Most tests call verbs in processes that have imported nearly everything, which hides imports in a circle."""
    names = sorted(lazy_imports())
    assert len(names) > 20
    done = subprocess.run(
        [sys.executable, "-c", FIRST_IMPORTS, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
