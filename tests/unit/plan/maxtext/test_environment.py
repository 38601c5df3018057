"""Which MaxText is installed for a recipe, and how an installation ends. A real one is made in test_real.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.plan.compiled import maxtext_environment as maxtext
from podwright.plan.findings import InconclusiveCheck
from tests.unit.plan.maxtext.conftest import VERSIONS, StandIn

TEXTS = Path(__file__).with_name("texts")
REQUIREMENTS = "src/dependencies/requirements/generated_requirements/tpu-requirements.txt"


def environment(own: StandIn, pin: str = "0.2.5", checkout: str = "") -> maxtext.MaxText:
    return maxtext.environment(pin, checkout, own.state.parent, own.context)


@pytest.mark.parametrize("pin", ["0.2.5", "v0.2.5", "maxtext-v0.2.5", "maxtext==0.2.5"])
def test_a_release_has_an_environment_of_its_own(pin: str, stand_in: StandIn) -> None:
    folder = stand_in.installed("maxtext-0.2.5")
    ready = environment(stand_in, pin)
    assert ready.python == str(folder / "bin" / "python") and ready.versions == VERSIONS and ready.is_pinned
    assert ready.env == {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}, "nothing of this process is imported there"
    assert not stand_in.announced


@pytest.mark.parametrize("pin", ["maxtext-tutorial-v1.5.0", "a0fceb5", "maxtext-tutorial-v1.1.0-1109-gcf051eb03"])
def test_a_tag_or_a_commit_needs_a_checkout(pin: str, stand_in: StandIn) -> None:
    with pytest.raises(InconclusiveCheck) as refusal:
        environment(stand_in, pin)
    assert f"MaxText {pin} is not on PyPI" in refusal.value.what
    assert f"maxtext=PATH of a checkout: git clone {maxtext._REPOSITORY}" in refusal.value.fix
    assert refusal.value.fix.endswith(f"git -C maxtext checkout {pin}") and not stand_in.starts()


def test_a_recipe_without_a_version_is_inconclusive(stand_in: StandIn) -> None:
    with pytest.raises(InconclusiveCheck, match=r"names no version of MaxText; type versions\.maxtext=0\.2\.5"):
        environment(stand_in, "")


def test_size_and_time_are_announced_before_anything_is_installed(stand_in: StandIn) -> None:
    stand_in.says(install="fail", log="error: x")
    with pytest.raises(InconclusiveCheck):
        environment(stand_in)
    folder = stand_in.cache / "maxtext-0.2.5"
    assert stand_in.announced == [f"installing maxtext 0.2.5 in {folder}, once: {maxtext.ANNOUNCED}"]
    assert "GB" in maxtext.ANNOUNCED and "minutes" in maxtext.ANNOUNCED


def test_a_release_is_installed_once_with_its_newest_packages(stand_in: StandIn) -> None:
    ready = environment(stand_in)
    assert ready.versions == dict.fromkeys(maxtext.PACKAGES, "9.9") and Path(ready.python).exists()
    own = str(stand_in.cache / "maxtext-0.2.5" / "bin" / "python")
    assert [s["argv"] for s in stand_in.starts()][:3] == [
        ["-m", "venv", str(stand_in.cache / "maxtext-0.2.5")],
        ["-m", "pip", "install", "-q", "--disable-pip-version-check", maxtext.UV],
        ["-m", "uv", "pip", "install", "-q", "--python", own, "maxtext[tpu]==0.2.5"],
    ]
    count = len(stand_in.starts())
    assert environment(stand_in) == ready and len(stand_in.starts()) == count
    assert stand_in.announced[-1] == "installed maxtext 0.2.5"


def test_a_failed_installation_leaves_only_its_log(stand_in: StandIn) -> None:
    stand_in.says(install="fail", log=(TEXTS / "no_release.txt").read_text())
    with pytest.raises(InconclusiveCheck, match=r"PyPI has no release 0\.2\.5 of MaxText; .*maxtext=PATH"):
        environment(stand_in)
    assert {path.name for path in stand_in.cache.iterdir()} == {"maxtext-0.2.5.log"}


def test_an_interrupted_installation_is_removed(stand_in: StandIn) -> None:
    def interrupt(program: str, phase: str, seconds: float) -> None:
        raise KeyboardInterrupt

    stand_in.context = maxtext.CompileContext(stand_in.cache, interrupt)
    with pytest.raises(KeyboardInterrupt):
        environment(stand_in)
    assert not (stand_in.cache / "maxtext-0.2.5").exists()


def test_half_an_environment_is_made_anew(stand_in: StandIn) -> None:
    """As a killed installation leaves it: everything but made.json."""
    folder = stand_in.installed("maxtext-0.2.5")
    (folder / "made.json").unlink()
    (folder / "rest").write_text("")
    assert environment(stand_in).versions["jax"] == "9.9"
    assert not (folder / "rest").exists()


def test_two_plans_at_once_install_once(stand_in: StandIn) -> None:
    stand_in.says(install="wait")
    code = (
        "import sys; from pathlib import Path; from podwright.plan.compiled import maxtext_environment as m;"
        "m._interpreter = lambda: sys.argv[1]; context = m.CompileContext(Path(sys.argv[2]), lambda *a: None);"
        "print(m.environment('0.2.5', '', Path(), context).versions['jax'])"
    )
    argv = [sys.executable, "-c", code, str(stand_in.python), str(stand_in.cache)]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [child.communicate()[0] for child in both] == ["9.9\n", "9.9\n"]
    assert sum(start["argv"][:2] == ["-m", "uv"] for start in stand_in.starts()) == 1


def test_a_machine_without_python_3_12_is_inconclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        InconclusiveCheck, match=r"needs Python 3\.12, and python3\.12 is not installed here; install it"
    ):
        maxtext._interpreter()
    shim = tmp_path / "python3.12"  # of pyenv, for a version that is not installed
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    with pytest.raises(InconclusiveCheck, match=r"python3\.12 is not installed here"):
        maxtext._interpreter()
    later = tmp_path / "later" / "python3.12"
    later.parent.mkdir()
    later.write_text("#!/bin/sh\n")
    later.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{later.parent}")
    assert maxtext._interpreter() == str(later)
    shim.write_text("#!/bin/sh\n")
    assert maxtext._interpreter() == str(shim)


def test_the_installer_s_own_words_decide_what_to_type() -> None:
    """A text of uv 0.13.9."""
    reason, fix = maxtext.install_fault((TEXTS / "no_release.txt").read_text(), "9.9.9")
    assert reason == "PyPI has no release 9.9.9 of MaxText" and fix == maxtext.checkout_fix("9.9.9")


def test_an_unknown_fault_of_the_installer_is_quoted() -> None:
    log = "x\nerror: Failed to build aqtp\n  cause: no compiler\nhint: see above\n"
    assert maxtext.install_fault(log, "0.2.5")[0] == "cause: no compiler"
    assert maxtext.install_fault("", "0.2.5")[0] == "the installer was ended"


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "maxtext"
    for name, text in {
        REQUIREMENTS: "jax>=0.8.1\n",
        "src/maxtext/train.py": "1\n",
        "src/maxtext/base.yml": "a: 1\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "a")
    git(folder, "tag", "v1")
    return folder


def test_a_checkout_is_used_in_place_of_a_release(checkout: Path, stand_in: StandIn) -> None:
    """With the lowest versions of its own list, which are those that it was tested with."""
    ready = environment(stand_in, "v1", "maxtext")
    install = next(s["argv"] for s in stand_in.starts() if s["argv"][:2] == ["-m", "uv"])
    assert install[-4:] == ["--resolution", "lowest-direct", "-r", str(checkout / REQUIREMENTS)]
    assert ready.env["PYTHONPATH"] == str(checkout / "src") and ready.name == f"the checkout {checkout}"
    assert ready.is_pinned and ready.digest and "maxtext-packages-" in ready.python


def test_an_edit_of_a_checkout_is_another_program_but_not_another_environment(
    checkout: Path, stand_in: StandIn
) -> None:
    before = environment(stand_in, "v1", str(checkout))
    (checkout / "src/maxtext/train.py").write_text("2\n")
    after = environment(stand_in, "v1", str(checkout))
    assert after.python == before.python and after.digest != before.digest
    assert before.is_pinned and not after.is_pinned, "an edited checkout is not at its tag"


def test_a_checkout_of_another_version_is_not_the_recipe_s(checkout: Path, stand_in: StandIn) -> None:
    assert not environment(stand_in, "a0fceb5", str(checkout)).is_pinned
    git(checkout, "commit", "--allow-empty", "-qm", "b")
    assert not environment(stand_in, "v1", str(checkout)).is_pinned


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path, stand_in: StandIn) -> None:
    with pytest.raises(UserError, match=r"is no checkout of MaxText: it has no tpu-requirements.txt") as refusal:
        environment(stand_in, "v1", str(tmp_path))
    assert not isinstance(refusal.value, InconclusiveCheck)


def test_versions_are_kept_as_json(stand_in: StandIn) -> None:
    environment(stand_in)
    assert set(json.loads((stand_in.cache / "maxtext-0.2.5" / "made.json").read_text())) == set(maxtext.PACKAGES)
