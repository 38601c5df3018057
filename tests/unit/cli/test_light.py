"""The control half starts fast and never touches the libraries of the compute half."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "word",
    [
        "recipes",
        "plan",
        "run",
        "list",
        "watch",
        "logs",
        "stop",
        "resume",
        "report",
        "eval",
        "export",
        "ui",
        "clean",
        "checkpoints",
        "target exec",
        "target show",
        "data check",
    ],
)
def test_every_verb_has_help_and_json(word: str) -> None:
    verb = ["recipes", "list"] if word == "recipes" else word.split()
    done = subprocess.run(
        [sys.executable, "-m", "podwright", *verb, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--json" in done.stdout
