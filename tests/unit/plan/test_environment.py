"""Compilers of other versions: an environment is really made with pip where a test may take minutes; the rest is refusals."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from podwright.cli.app import main
from podwright.errors import UserError
from podwright.plan.compiled import child, environment
from podwright.plan.findings import InconclusiveCheck
from podwright.shell import Shell

RECIPE = ["plan", "qwen3-tiny-gsm8k-grpo", "batch_size=8", "mesh.fsdp=-1", "--on", "v6e-8"]


def find(jax, cache, seen=None):
    return environment.find(jax, cache, Shell(), lambda *told: seen.append(told) if seen is not None else None)


def test_the_installed_version_needs_no_environment(tmp_path):
    own = environment.here()
    assert own.python == sys.executable and own.versions["jax"]
    assert find("", tmp_path) == find(own.versions["jax"], tmp_path) == own
    assert not list(tmp_path.iterdir())


def test_a_compiler_takes_the_libtpu_of_its_own_packages(tmp_path, monkeypatch):
    """jax puts the path of the one that it has imported into the environment of its process."""
    monkeypatch.setenv("TPU_LIBRARY_PATH", "/of/another/libtpu.so")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--flag")
    log = tmp_path / "log.txt"
    run = child.run(Shell(), ["env"], cwd=tmp_path, env={"A": "1"}, log=log, limit_s=30, tick=lambda *_: None)
    assert run.ended == 0 and {"A=1", "LIBTPU_INIT_ARGS=--flag"} <= set(log.read_text().split("\n"))
    assert "TPU_LIBRARY_PATH" not in log.read_text()


def test_what_it_needs_besides_jax_is_in_the_metadata_of_the_package():
    names = {line.split(">")[0] for line in environment._requirements()}
    assert {"pydantic", "pyyaml", "optax", "orbax-checkpoint", "safetensors", "tokenizers"} <= names
    assert not names & {"jax", "torch", "mlflow", "pytest", "podwright"}


@pytest.mark.long
def test_a_version_that_nobody_released_is_one_line_and_leaves_only_its_log(tmp_path, capsys):
    assert main([*RECIPE, "--compile", "--jax", "0.0.1", "--cache", str(tmp_path)]) == 2
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        "no environment with jax 0.0.1 could be made: " in err
        and "jax[tpu]==0.0.1" in err
        and f"{tmp_path}/jax-0.0.1.log" in err
    )
    assert {path.name for path in tmp_path.iterdir()} == {"jax-0.0.1.log"}


@pytest.mark.parametrize("version", ["newest", "0.11.2; rm -rf x", "-r", "../x"])
def test_what_is_no_version_is_refused(version, tmp_path):
    with pytest.raises(UserError, match=r"is no version.*type one such as --jax 0\.11\.2"):
        find(version, tmp_path)


def test_a_version_without_a_compile_is_refused(capsys):
    assert main([*RECIPE, "--jax", "0.11.2"]) == 2
    assert "--jax 0.11.2 needs --compile; add --compile" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "is_newer_python_advised"),
    [
        (
            "ERROR: Ignored 9.9.9 Requires-Python >=3.12\nERROR: No matching distribution found for jax[tpu]==9.9.9",
            True,
        ),
        ("ERROR: Could not install packages: [Errno 28] No space left on device", False),
    ],
    ids=["needs a newer Python", "full disk"],
)
def test_a_newer_python_is_advised_where_this_one_may_be_too_old(
    tmp_path, monkeypatch, output, is_newer_python_advised
):
    def fails(folder, *rest):
        environment.log_of(folder).write_text(output)
        return False

    monkeypatch.setattr(environment, "make", fails)
    with pytest.raises(InconclusiveCheck) as refused:
        find("9.9.9", tmp_path)
    assert refused.value.what.endswith(output.rpartition("ERROR: ")[2])
    assert ("install a newer python3" in refused.value.fix) is is_newer_python_advised


@pytest.mark.long
def test_an_environment_is_made_once_and_one_that_was_cut_short_again(tmp_path, monkeypatch):
    """With a pip that installs what is here already."""
    monkeypatch.setattr(environment, "_requirements", lambda: [])
    made = tmp_path / "jax-9.9.9"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").write_text("half of it")
    with pytest.raises(UserError):
        find("9.9.9", tmp_path)
    assert not made.exists(), "made anew, in vain"
    made.mkdir()
    (made / "made.json").write_text(json.dumps({"jax": "9.9.9"}))
    seen = []
    found = find("9.9.9", tmp_path, seen)
    assert found.python == str(made / "bin" / "python") and found.versions == {"jax": "9.9.9"} and not seen


def test_a_library_that_a_recipe_asks_for_has_an_environment_of_its_own(tmp_path):
    own = environment.here()
    for name, more in (("jax-9.9.9", ""), ("jax-9.9.9-tokamax", "tokamax")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "made.json").write_text(json.dumps({"jax": "9.9.9", "tokamax": more and "0.0.17"}))
        assert environment.find("9.9.9", tmp_path, Shell(), lambda *told: None, more).python == str(
            tmp_path / name / "bin" / "python"
        )
    assert environment.find("", tmp_path, Shell(), lambda *told: None, "tokamax") == own, "it says itself what it lacks"


@pytest.mark.long
@pytest.mark.skipif(
    not (shutil.which("python3.12") or shutil.which("python3.13")), reason="no newer Python beside this one"
)
def test_a_plan_compiles_with_another_jax_and_a_newer_python(tmp_path):
    argv = [
        sys.executable,
        "-m",
        "podwright",
        *RECIPE,
        "--compile",
        "--jax",
        "0.11.2",
        "--cache",
        str(tmp_path),
        "--json",
    ]
    first = json.loads(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    assert {p["verdict"] for p in first["programs"]} == {"fits"}
    versions = json.loads((tmp_path / "jax-0.11.2" / "made.json").read_text())
    assert versions["jax"] == "0.11.2" and versions["libtpu"].startswith("0.0.48")
    inside = os.path.realpath(tmp_path / "jax-0.11.2" / "source" / "podwright")
    assert inside == str(environment.PACKAGE)
    again = json.loads(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    assert all(p["cached"] for p in again["programs"])
