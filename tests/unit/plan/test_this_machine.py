"""What a run on this machine would lack is found by its plan, whichever words it is typed with; elsewhere it does not matter."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from podwright import cgroup
from podwright.accelerators import GIB
from podwright.cli.app import main
from podwright.plan.checks import this_machine
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe.load import load
from podwright.rundir import Ending, RunDir
from podwright.slices import parse
from podwright.train.attempt import explain

DEMO = "qwen3-tiny-arithmetic-grpo"
LARGE = ["model.name=qwen3-8b", "rollout.total_generation_steps=64"]


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for most users; the tests of meshes have several."""
    monkeypatch.setenv("XLA_FLAGS", "")


def planned(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["plan", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    find = this_machine.importlib.util.find_spec
    monkeypatch.setattr(this_machine.importlib.util, "find_spec", lambda m, *a: None if m in modules else find(m, *a))


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    ("recipe", "module", "extra"),
    [
        (DEMO, "jax", "jax"),
        (DEMO, "tokenizers", "jax"),
        ("almodel-tiny", "grain", "jax"),
        ("qwen3-tiny-gsm8k-grpo", "datasets", "jax"),
        ("phase2-tiny", "peft", "torch"),
        ("phase1-tiny", "av", "torch"),
    ],
)
def test_a_package_that_is_missing_here_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, recipe: str, module: str, extra: str
) -> None:
    without(monkeypatch, module)
    for on in ("local", "cpu-1"):
        code, plan = planned(capsys, recipe, "--on", on)
        (finding,) = (f for f in plan["findings"] if f["check"] == "packages")
        assert (
            code == 3
            and module in finding["message"]
            and finding["fix"].startswith(f"type pip install -e '.[{extra}]'")
        )
    _, plan = planned(capsys, recipe, "--on", "8xH100-80GB")
    assert not [f for f in plan["findings"] if f["check"] == "packages"]


def test_a_run_without_a_package_is_told_to_install_it_and_not_to_resume(tmp_path: Path) -> None:
    missing = ModuleNotFoundError("No module named 'jax'", name="jax")
    ending, what, fix = explain(missing, RunDir(tmp_path))
    assert ending == Ending.BAD_INPUT and "jax is not installed" in what
    assert (
        fix.startswith("type pip install -e '.[jax]'")
        and "'.[torch]'" in explain(ModuleNotFoundError("No module named 'peft'", name="peft"), RunDir(tmp_path))[2]
    )


def test_a_model_that_this_machine_cannot_hold_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: False)
    monkeypatch.setattr(this_machine.cgroup, "memory_bytes", lambda: 16 * GIB)
    for on in ("local", "cpu-1", "cpu-4"):
        code, plan = planned(capsys, DEMO, *LARGE, "mesh.fsdp=-1", "--on", on)
        (finding,) = (f for f in plan["findings"] if f["check"] == "memory")
        assert (
            code == 3
            and "weights, optimizer and reference need 122.1 GiB, and this machine has 16.0" in finding["message"]
        )
    code, plan = planned(capsys, DEMO)
    assert code == 0 and not [f for f in plan["findings"] if f["check"] == "memory"]


def test_a_step_that_may_not_fit_is_inconclusive_and_accelerators_are_left_to_themselves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: False)
    monkeypatch.setattr(this_machine.cgroup, "memory_bytes", lambda: 135 * GIB)
    code, plan = planned(capsys, DEMO, *LARGE)
    assert (code, [f["level"] for f in plan["findings"] if f["check"] == "memory"]) == (4, ["inconclusive"])
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: True)
    assert planned(capsys, DEMO, *LARGE)[0] == 0


@pytest.mark.parametrize(
    ("own", "limits", "gib"),
    [
        ("0::/\n", {"memory.max": "max"}, 0),
        ("0::/\n", {"memory.max": str(GIB)}, 1),  # a container
        ("0::/of-the-host/x\n", {"memory.max": str(GIB)}, 1),
        ("0::/job/step/task\n", {"job/step/task/memory.max": "max", "job/memory.max": str(2 * GIB)}, 2),  # SLURM
        ("0::/a/b\n", {"a/b/memory.max": str(3 * GIB), "a/memory.max": str(2 * GIB)}, 2),
        ("5:cpu,memory:/y\n0::/\n", {"memory/y/memory.limit_in_bytes": str(GIB)}, 1),
        ("5:memory:/y\n0::/\n", {"memory/y/memory.limit_in_bytes": "9223372036854771712"}, 0),
        ("", {}, 0),
    ],
)
def test_the_memory_of_a_container_or_job_counts(
    own: str, limits: dict[str, str], gib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GIB))
    (tmp_path / "own").write_text(own)
    for name, text in limits.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text + "\n")
    assert cgroup.memory_bytes(tmp_path / "own", tmp_path / "cgroup") == (gib or 64) * GIB


def test_a_device_file_is_an_accelerator(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert this_machine.has_accelerator(tmp_path) and not this_machine.has_accelerator(tmp_path / "none")


@pytest.mark.parametrize("on", ["1xV100-16GB", "8xV100-32GB"])
@pytest.mark.parametrize("recipe", [DEMO, "almodel-tiny"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gpu_without_bfloat16_has_no_figure_for_it_and_is_no_crash(on: str, recipe: str, dtype: str) -> None:
    plan = make(
        load(recipe, [f"model.compute_dtype={dtype}", "mesh.fsdp=1", "mesh.data=1"]), Destination(on, parse(on))
    )
    if on.startswith("1x"):
        assert plan.verdict == ("ok" if dtype == "float32" else "inconclusive")
        assert dtype == "float32" or plan.step is None
    assert dtype == "float32" or any(f.fix == "type model.compute_dtype=float32" for f in plan.findings)


GENERATED = [
    "qwen3-1.7b-gsm8k-grpo",
    "model.source=random",
    "data.source=arithmetic",
    "data.num_train=900",
    "data.num_test=90",
]


def test_only_has_the_verdict_of_the_checks_that_it_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = [*GENERATED, "mesh.fsdp=7", "--on", "v6e-8", "--cache", str(tmp_path)]
    for option in ("--compile", "--fit"):
        code, refused = planned(capsys, *wrong, option, "--only", "data")
        assert code == 2 and refused["fix"] == f"type --only data,memory, or leave {option} out"
    code, plan = planned(capsys, *wrong, "--only", "data")
    assert code == 0 and {f["check"] for f in plan["findings"]} == {"data"}
    assert plan["findings"][0]["message"] == "data alone was checked"
    for check in ("mesh", "memory"):  # which is not known without a mesh
        code, plan = (
            planned(capsys, *wrong, "--compile", "--only", "memory")
            if check == "memory"
            else planned(capsys, *wrong, "--only", check)
        )
        assert plan["programs"] == [] and not list(tmp_path.iterdir()), "no compiler was started"
        (error,) = (f for f in plan["findings"] if f["level"] == "error")
        assert code == 3 and error["message"].startswith("mesh.data x fsdp x tensor = 7")
    large = [*GENERATED, "batch_size=256", "model.remat=none", "--on", "v6e-8"]
    code, plan = planned(capsys, *large, "--only", "mesh")
    assert code == 0 and plan["memory"] == [] and plan["step"] == {}
    code, plan = planned(capsys, *large, "--only", "memory")
    assert code == 3 and plan["memory"] and all(f["check"] == "memory" for f in plan["findings"])


def test_a_mesh_that_cannot_be_held_against_a_model_is_not_ok(capsys: pytest.CaptureFixture[str]) -> None:
    unknown = [DEMO, "model.source=someone/other", "model.name=other"]
    code, plan = planned(capsys, *unknown, "--only", "mesh")
    assert code == 4 and plan["findings"][-1]["code"] == "unknown-dimensions"
    code, plan = planned(capsys, DEMO, "model.name=other", "--only", "mesh")
    assert code == 3 and plan["findings"][-1]["check"] == "model"


def test_an_id_without_dimensions_is_said_to_leave_mesh_and_context_unchecked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, plan = planned(capsys, DEMO, "model.source=someone/other", "model.name=qwen3-1.7", "--only", "model")
    assert code == 4
    (unknown,) = (f for f in plan["findings"] if "dimensions" in f["message"])
    assert "model.source=someone/other" in unknown["message"] and "config.json" in unknown["fix"]


FOUR = "--xla_force_host_platform_device_count=4"


@pytest.mark.parametrize(
    ("recipe", "flags", "axes", "refused"),
    [
        (DEMO, "", ("mesh.fsdp=2",), "mesh.data x fsdp x tensor = 2, not 1 device; type mesh.fsdp=1"),
        (DEMO, "", ("mesh.data=2", "mesh.fsdp=-1"), "mesh.data x mesh.tensor = 2 does not divide 1 device; type mesh."),
        (DEMO, "", ("mesh.fsdp=-1",), ""),
        (DEMO, FOUR, ("mesh.fsdp=4",), ""),
        (DEMO, FOUR, ("mesh.fsdp=2",), "mesh.data x fsdp x tensor = 2, not 4 devices; type mesh."),
        (DEMO, FOUR, ("mesh.fsdp=-1", "batch_size=6"), "batch_size=6 cannot be split over 4 batch shards"),
        ("almodel-tiny", "", ("mesh.fsdp=2",), "= 2, not 1 device; type mesh.fsdp=1"),
    ],
)
def test_a_mesh_that_is_not_of_all_devices_of_this_machine_is_refused(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recipe: str,
    flags: str,
    axes: tuple[str, ...],
    refused: str,
) -> None:
    monkeypatch.setattr(this_machine, "has_accelerator", lambda: False)
    monkeypatch.setenv("XLA_FLAGS", flags)
    code, plan = planned(capsys, recipe, *axes)
    errors = [f"{f['message']}; {f['fix']}" for f in plan["findings"] if f["level"] == "error"]
    assert [refused in error for error in errors] == [True] * bool(refused), errors
    assert (code == 3) is bool(refused)


def test_jax_without_its_plugin_is_named_where_there_are_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert this_machine.gpu_plugin(tmp_path) == []
    (tmp_path / "0000:01:00.0").mkdir()
    (finding,) = this_machine.gpu_plugin(tmp_path)
    assert finding.level == "error" and "'.[cuda12]'" in finding.fix and "--on cpu-1" in finding.fix
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert this_machine.gpu_plugin(tmp_path) == []
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr(this_machine.importlib.util, "find_spec", lambda name: name == "jax_cuda13_plugin" or None)
    assert this_machine.gpu_plugin(tmp_path) == []
    monkeypatch.undo()
    monkeypatch.setattr(this_machine, "gpu_plugin", lambda: [finding])
    assert finding in make(load(DEMO), Destination("local", here=True)).findings
    assert finding not in make(load(DEMO), Destination("cpu-1", parse("cpu-1"), here=True)).findings
