"""environment.py: when `make` installs, and when it does not. Nothing is really installed here; `.ci/run` does that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import environment

ROOT = Path(environment.__file__).parent
INPUTS = ("pyproject.toml", "constraints.txt", "constraints-3.12.txt")
# What the newest jax, and a torch without a build for CPUs, bring with them on Python 3.12
DIFFERS = ("jax", "jaxlib", "libtpu", "cuda-", "nvidia-", "triton", "tzdata")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in INPUTS:
        (folder / name).write_text(f"{name}\n")
    monkeypatch.setattr(environment, "ROOT", folder)
    return folder


@pytest.fixture
def installed(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The extras that were installed, in order."""
    extras: list[str] = []

    def install(venv: Path, extra: str) -> None:
        extras.append(extra)
        (venv / f"package-{len(extras)}").touch()

    monkeypatch.setattr(environment, "install", install)
    return extras


def test_unchanged_inputs_install_nothing_whatever_their_times(checkout: Path, installed: list[str]) -> None:
    environment.make(checkout / ".venv", "dev")
    for name in INPUTS:
        os.utime(checkout / name)
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev"]


@pytest.mark.parametrize("name", ["pyproject.toml", "used constraints"])
def test_a_changed_input_installs_again_into_the_same_environment(
    name: str, checkout: Path, installed: list[str]
) -> None:
    environment.make(checkout / ".venv", "dev")
    path = environment.constraints_file() if name == "used constraints" else checkout / name
    path.write_text("changed")
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev", "dev"]
    assert (checkout / ".venv" / "package-1").exists()


def test_constraints_of_another_python_change_nothing(
    checkout: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7))
    environment.make(checkout / ".venv", "dev")
    (checkout / "constraints-3.12.txt").write_text("changed")
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev"]


@pytest.mark.parametrize(
    ("version", "name"),
    [((3, 11, 9), "constraints.txt"), ((3, 12, 0), "constraints-3.12.txt"), ((3, 13, 1), "constraints-3.12.txt")],
)
def test_the_python_chooses_the_constraints(
    version: tuple[int, ...], name: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert environment.constraints_file() == checkout / name


def test_the_environment_of_tests_contains_that_of_the_demo(checkout: Path, installed: list[str]) -> None:
    for extra in ("jax", "dev", "jax", "dev"):
        environment.make(checkout / ".venv", extra)
    assert installed == ["jax", "dev"]


def test_the_environment_of_a_gpu_contains_that_of_the_demo_and_not_that_of_the_tests(
    checkout: Path, installed: list[str]
) -> None:
    for extra in ("cuda13", "jax", "cuda13", "dev", "cuda13"):
        environment.make(checkout / ".venv", extra)
    assert installed == ["cuda13", "dev", "cuda13"]


def test_a_moved_checkout_makes_its_environment_from_nothing(
    checkout: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.make(checkout / ".venv", "dev")
    moved = checkout.rename(checkout.with_name("moved"))
    monkeypatch.setattr(environment, "ROOT", moved)
    environment.make(moved / ".venv", "dev")
    assert installed == ["dev", "dev"]
    assert not (moved / ".venv" / "package-1").exists()


def test_another_checkout_installs_into_the_environment_that_it_names(
    checkout: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.make(tmp_path / "shared", "dev")
    monkeypatch.setattr(environment, "ROOT", checkout.rename(checkout.with_name("moved")))
    environment.make(tmp_path / "shared", "dev")
    assert installed == ["dev", "dev"]


def test_an_interrupted_install_starts_over(
    checkout: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(venv: Path, extra: str) -> None:
        (venv / "half a package").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(environment, "install", interrupted)
        environment.make(checkout / ".venv", "dev")
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev"]
    assert not (checkout / ".venv" / "half a package").exists()
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev"]


def test_another_python_makes_the_environment_from_nothing(
    checkout: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.make(checkout / ".venv", "dev")
    monkeypatch.setattr(sys, "base_prefix", "/opt/another-python")
    environment.make(checkout / ".venv", "dev")
    assert installed == ["dev", "dev"]
    assert not (checkout / ".venv" / "package-1").exists()


def test_a_folder_that_make_did_not_make_is_left_alone(checkout: Path, installed: list[str]) -> None:
    (checkout / "mine").mkdir()
    (checkout / "mine" / "file").touch()
    with pytest.raises(SystemExit, match="mine was not made by make; remove it, or name another folder"):
        environment.make(checkout / "mine", "dev")
    assert installed == []
    assert [path.name for path in (checkout / "mine").iterdir()] == ["file"]


def test_every_command_of_make_uses_the_named_environment() -> None:
    targets = ["demo", "test", "test-long", "check", "help-pages"]
    command = ["make", "--dry-run", "--no-print-directory", *targets, "PYTHON=python9", "VENV=.venv9"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {"python9 environment.py .venv9 jax", "python9 environment.py .venv9 dev"} <= set(lines)
    assert all(line.startswith(("python9 environment.py .venv9 ", ".venv9/bin/")) for line in lines)


def versions(name: str) -> dict[str, str]:
    pairs = [line.split("==") for line in (ROOT / name).read_text().lower().replace("_", "-").split()]
    return {package: version for package, version in pairs if not package.startswith(DIFFERS)}


def test_both_constraints_name_the_same_versions_but_for_jax_and_cuda() -> None:
    assert versions("constraints.txt") == versions("constraints-3.12.txt")
