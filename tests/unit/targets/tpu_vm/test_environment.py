"""The environment that is brought to the machines: installed once, never half, and from the versions that are tested here."""

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.targets.tpu_vm import environment

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "podwright/targets/tpu_vm/environment.sh"


@functools.cache
def unreachable() -> str:
    """Why the file of uv cannot be had here; "" when it can."""
    (url,) = re.findall(r"^uv_url=(\S+)", SCRIPT.read_text(), re.MULTILINE)
    asked = subprocess.run(["curl", "-sSfI", "-m", "20", url], capture_output=True, text=True, check=False)
    return asked.stderr.strip()


def install(place: Path, python: str = sys.executable, package: str = "six==1.17.0") -> "subprocess.Popen[str]":
    if unreachable():
        pytest.skip(f"uv cannot be downloaded: {unreachable()}")
    requirements = place.parent / "requirements.txt"
    requirements.write_text(f"{package}\n")
    argv = ["bash", str(SCRIPT), str(place), str(requirements), python]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_one_environment_is_installed_by_several_at_once_and_then_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "environments" / "1"
    place.mkdir(parents=True)
    (place / "half").touch()  # of an installation that was cut off
    both = [install(place) for _ in range(2)]
    assert [(each.wait(), each.communicate()[0]) for each in both] == [(0, ""), (0, "")]
    assert not (place / "half").exists(), "what was not whole is not used"
    code = "import six, sys; print(six.__version__, sys.version_info[:2] >= (3, 11))"
    assert subprocess.check_output([place / "bin/python", "-c", code], text=True) == "1.17.0 True\n"
    before = (place / "complete").stat().st_mtime_ns
    (place / "mark").touch()
    assert install(place).wait() == 0
    assert (place / "complete").stat().st_mtime_ns == before and (place / "mark").exists()
    assert list(place.parent.glob("*tools*")) == []


@pytest.mark.parametrize(
    ("python", "package", "reason"),
    [
        ("2.6", "six==1.17.0", "podwright: no environment: there is no Python 2.6"),
        (sys.executable, "six==99.0", "podwright: no environment: the packages could not be installed"),
    ],
)
def test_what_cannot_be_installed_is_one_line_and_no_environment(
    tmp_path: Path, python: str, package: str, reason: str
) -> None:
    place = tmp_path / "1"
    failed = install(place, python, package)
    output = failed.communicate()[0]
    assert failed.returncode == 1 and output.splitlines()[-1] == reason
    assert not (place / "complete").exists()


def test_the_versions_are_those_that_are_tested_here() -> None:
    def pinned(path: Path) -> dict[str, str]:
        lines = re.findall(r"^([\w.-]+)(?:\[\w+\])?==(\S+)", path.read_text(), re.MULTILINE)
        return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}

    brought, tested = pinned(SCRIPT.with_name("requirements.txt")), pinned(ROOT / "constraints.txt")
    assert {"jax", "jaxlib", "libtpu", "gcsfs", "orbax-checkpoint"} <= set(brought)
    assert {name: version for name, version in brought.items() if tested.get(name, version) != version} == {}


def test_other_contents_are_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = environment.python()
    for name in ("requirements.txt", "environment.sh"):
        (tmp_path / name).write_text((SCRIPT.with_name(name)).read_text() + "\n")
    monkeypatch.setattr(environment, "_FILES", tmp_path)
    assert environment.python() != before and environment.python().startswith("~/.podwright-environments/")
    folder = environment.python().removeprefix("~/").removesuffix("/bin/python")
    assert f'"$HOME/{folder}"' in environment.setup_line()
