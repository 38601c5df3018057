"""A package or a network that is missing here makes a plan inconclusive: its other checks are shown, with what to type."""

import json
import os
import sys
from pathlib import Path

import pytest

from podwright import extras
from podwright.cli.app import main
from podwright.plan.compiled import environment
from tests.unit.plan.static import DRAWN_GRPO

pytestmark = pytest.mark.usefixtures("counting_process")
GRPO = ["plan", *DRAWN_GRPO]
NO_LIBTPU = {
    "check": "compile",
    "level": "inconclusive",
    "code": "not-installed",
    "message": "the TPU compiler was not run: libtpu is not installed here",
    "fix": "type pip install -e '.[tpu-compile]' in podwright's clone",
}


@pytest.fixture
def without_libtpu(monkeypatch):
    versions = environment.installed_version
    monkeypatch.setattr(
        environment, "installed_version", lambda package: "" if package == "libtpu" else versions(package)
    )


def without(package, folder, monkeypatch):
    """Python processes that are started from now on cannot import `package`."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(Path(__file__).parents[3]), *sys.path]))


def planned(capsys, tmp_path, *argv):
    code = main([*argv, "--cache", str(tmp_path / "cache"), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_without_libtpu_a_plan_has_its_other_checks_and_the_estimate(capsys, tmp_path, without_libtpu):
    code, plan = planned(capsys, tmp_path, *GRPO, "--on", "v6e-8", "--compile")
    assert (code, plan["verdict"], plan["programs"]) == (4, "inconclusive", [])
    assert plan["findings"][-1] == NO_LIBTPU
    assert {"model", "data", "memory"} <= {finding["check"] for finding in plan["findings"]}
    assert plan["memory"] and plan["step"]["estimated"]
    assert main([*GRPO, "--on", "v6e-8", "--compile", "--cache", str(tmp_path)]) == 4
    out, err = capsys.readouterr()
    assert f"inconclusive: {NO_LIBTPU['message']}; {NO_LIBTPU['fix']}\n" in out and not err
    assert out.endswith("inconclusive: not everything could be checked\n")


def test_without_libtpu_an_estimate_beyond_the_limit_still_refuses(capsys, tmp_path, without_libtpu):
    code, plan = planned(capsys, tmp_path, *GRPO, "model.remat=none", "--on", "v6e-8", "--compile")
    assert code == 3 and NO_LIBTPU in plan["findings"]


def test_without_libtpu_settings_are_chosen_by_estimate_and_the_plan_says_so(capsys, tmp_path, without_libtpu):
    code, plan = planned(capsys, tmp_path, *GRPO, "--on", "v6e-8", "--fit")
    assert code == 4 and NO_LIBTPU in plan["findings"]
    assert plan["fit"]["typed"] and not any(row["compiled"] for row in plan["fit"]["settings"])


def test_without_libtpu_settings_near_the_limit_are_not_refused(capsys, tmp_path, without_libtpu):
    tight = ["rollout.total_generation_steps=5000"]
    code, plan = planned(capsys, tmp_path, *GRPO, "model.name=qwen3-4b", *tight, "--on", "v6e-8", "--fit")
    (near,) = [finding for finding in plan["findings"] if finding["check"] == "fit"]
    assert code == 4 and near["level"] == "inconclusive" and "that an estimate needs" in near["message"]


def test_a_library_of_the_recipe_that_is_not_installed(capsys, tmp_path, monkeypatch):
    versions = environment.installed_version
    monkeypatch.setattr(
        environment, "installed_version", lambda package: "" if package == "tokamax" else versions(package) or "1"
    )
    argv = ["plan", "almodel-tiny", "model.kda=tokamax", "mesh.fsdp=-1", "--on", "v6e-1", "--compile"]
    code, plan = planned(capsys, tmp_path, *argv)
    assert code == 4 and "the library tokamax, which this recipe needs, is not installed" in str(plan["findings"][-1])


def test_without_jax_nothing_is_compiled_for_cpu_devices(capsys, tmp_path, monkeypatch):
    without("jax", tmp_path, monkeypatch)
    code, plan = planned(capsys, tmp_path, "plan", "qwen3-tiny-arithmetic-grpo", "--on", "cpu-1", "--compile")
    assert code == 4 and plan["findings"][-1] == {
        "check": "compile",
        "level": "inconclusive",
        "code": "not-installed",
        "message": "the compiler was not run: jax is not installed here",
        "fix": "type pip install -e '.[jax]' in podwright's clone",
    }


def test_without_torch_the_memory_of_multimodal_training_is_not_counted(capsys, tmp_path, monkeypatch):
    without("torch", tmp_path, monkeypatch)
    small = ["phase2-tiny", "data.num_train=64", "--on", "1xRTX-3090"]
    code, plan = planned(capsys, tmp_path, "plan", *small, "--compile")
    assert code == 4 and plan["findings"][-1] == {
        "check": "compile",
        "level": "inconclusive",
        "code": "missing-package",
        "message": "the memory of an update was not counted: the package torch is not installed here",
        "fix": "type pip install -e '.[torch]' in podwright's clone",
    }


@pytest.mark.parametrize("option", ["--compile", "--fit"])
def test_dimensions_that_only_the_hub_knows(capsys, tmp_path, option):
    argv = [*GRPO, "model.name=other", "model.source=someone/other", "--on", "v6e-8", option]
    code, plan = planned(capsys, tmp_path, *argv)
    assert code == 4 and "the dimensions of " in plan["findings"][-1]["message"]
    assert plan["findings"][-1]["fix"] == "give model.source as a directory with a config.json"


def test_an_environment_whose_packages_cannot_be_fetched(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_interpreters", lambda: iter([sys.executable]))
    offline = {
        "INDEX_URL": "http://127.0.0.1:9",
        "EXTRA_INDEX_URL": "",
        "CONFIG_FILE": os.devnull,
        "RETRIES": "0",
    }
    for name, value in offline.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    code, plan = planned(capsys, tmp_path, *GRPO, "--on", "v6e-8", "--compile", "--jax", "0.11.2")
    assert code == 4 and plan["memory"]
    assert plan["findings"][-1]["message"].startswith("no environment with jax 0.11.2 could be made: ")
    assert f"the log is {tmp_path}/cache/jax-0.11.2.log" in plan["findings"][-1]["fix"]


@pytest.mark.parametrize(
    ("output", "unreleased"),
    [
        ("ERROR: Could not find a version that satisfies (from versions: none)\n{refused}", False),
        ("ERROR: Could not find a version that satisfies (from versions: 0.4.1, 0.10.2)\n{refused}", True),
        (
            "ERROR: Ignored the following versions: 0.11.2 Requires-Python >=3.12\n(from versions: 0.4.1)\n{refused}",
            False,
        ),
        ("OSError: [Errno 28] No space left on device", False),
    ],
    ids=["no network", "no such version", "needs a newer Python", "full disk"],
)
def test_only_a_version_that_nobody_released_is_a_wrong_one(output, unreleased):
    refused = "ERROR: No matching distribution found for jax[tpu]==0.11.2"
    assert environment._is_unreleased("0.11.2", output.format(refused=refused)) is unreleased


def test_a_verb_that_needs_a_package_that_is_missing_names_its_extra(capsys, tmp_path, monkeypatch):
    """As in a wheel without extras: eval, export and predict of a run, and the verbs of data."""
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "drawn.jsonl").write_text('{"text": "a", "image": "a.png"}\n')
    (tmp_path / "a.png").write_bytes(b"x")
    for package, extra, argv in (
        ("jax", "jax", ["eval", str(tmp_path), "--data", str(tmp_path / "a.jsonl")]),
        ("tokenizers", "jax", ["data", "count", str(tmp_path / "a.jsonl"), "--tokenizer", "bytes"]),
        ("PIL", "torch", ["data", "check", str(tmp_path / "drawn.jsonl")]),
    ):
        without(package, tmp_path, monkeypatch)
        assert main(argv) == 2
        err = capsys.readouterr().err
        assert err == f"error: the package {package} is not installed here; {extras.install(extra)}\n", argv


def test_without_numpy_data_and_tokenizer_are_not_checked(capsys, tmp_path, monkeypatch):
    """As in a wheel without extras."""
    without("numpy", tmp_path, monkeypatch)
    rows = [json.dumps({"question": f"{n}+1?", "answer": f"#### {n + 1}"}) for n in range(200)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    argv = ["plan", "qwen3-tiny-arithmetic-grpo", f"data.source={tmp_path}/rows.jsonl", "--on", "cpu-1"]
    code, plan = planned(capsys, tmp_path, *argv)
    named = [f for f in plan["findings"] if f["code"] == "missing-package"]
    assert code == 4 and [f["level"] for f in named] == ["inconclusive"]
    assert "numpy" in named[0]["message"] and named[0]["fix"].startswith("type pip install -e")
