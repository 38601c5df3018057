"""`run --fit` on a target whose hosts have GPUs: the settings that it chooses, and what it says when it chooses none.

The host is this machine: `ssh` is a command that runs what it is given here.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.sshd import stand_in
from podwright.cli.app import main
from podwright.rundir import RunDir
from tests.unit.plan.static import DRAWN_GRPO

STANDIN = Path(__file__).parents[2] / "standin.py"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    command = tmp_path / "bin" / "ssh"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\nfor word; do :; done\nexec sh -c "$word"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def target(home: Path, num_gpus: int, accelerator: str = "", *pairs: str, python: object = sys.executable) -> None:
    smi = home / "bin" / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nfor n in $(seq {num_gpus}); do echo GPU $n; done\n")
    smi.chmod(0o755)
    pairs = (f"gpus_per_node={num_gpus}", *([f"accelerator={accelerator}"] if accelerator else []), *pairs)
    (home / "plugin").mkdir()
    (home / "plugin" / "jax_cuda12_plugin.py").touch()
    pairs = (f"setup=['export PYTHONPATH={home}/plugin:$PYTHONPATH']", *pairs)
    pairs = ("kind=ssh", "hosts=[here]", f"python={python}", f"folder={home}/disk", *pairs)
    assert main(["target", "add", "gpus", *pairs]) == 0


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["run", *DRAWN_GRPO, *argv, "--on", "gpus", "--fit"])
    return code, *capsys.readouterr()


def test_a_dry_run_shows_the_settings_that_it_would_start_with(home: Path, capsys: Any) -> None:
    target(home, 8, "H100-80GB")
    code, out, err = run(capsys, "--dry-run")
    assert (code, err) == (0, "")
    assert "settings fit 8xH100-80GB; the fastest" in out and "compiled" not in out
    typed = next(line for line in out.splitlines() if line.startswith("type: "))
    assert "mesh." in typed and typed.endswith(" --on gpus")


def test_a_run_starts_with_the_chosen_settings_and_says_which(
    home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_STEP_S", "0.01")
    python = stand_in(home / "python", STANDIN)
    target(home, 8, "H100-80GB", "env=[STANDIN_STEP_S]", python=python)
    code, _, err = run(capsys, "training.max_steps=2", "--name", "fitted")
    (chosen,) = [line for line in err.splitlines() if line.startswith("info: --fit chose ")]
    settings = dict(word.split("=") for word in chosen.removeprefix("info: --fit chose ").split())
    recipe = json.loads(RunDir(Path("runs/fitted")).recipe.read_text())
    assert code == 0 and settings
    for key, value in settings.items():
        section, _, name = key.partition(".")
        assert str(recipe[section][name]) == value


def test_gpus_that_hold_no_settings_are_refused_with_how_many_hold_them(home: Path, capsys: Any) -> None:
    target(home, 1, "RTX-3090")
    code, out, err = run(capsys, "--dry-run", "--json")
    (refused,) = [f for f in json.loads(out)["findings"] if f["check"] == "fit"]
    assert code == 3 and refused["message"].endswith(" fit 1xRTX-3090")
    assert re.search(r"--fit \(LoRA\), or use \d+ such GPUs, the fewest that hold it$", refused["fix"])
    code, out, err = run(capsys)
    assert (code, out, err) == (3, "", f"error: {refused['message']}; {refused['fix']}\n")
    assert not Path("runs").exists()


def test_gpus_whose_kind_the_target_does_not_say_are_one_line(home: Path, capsys: Any) -> None:
    target(home, 8)
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert err == (
        "error: --on gpus does not name its GPUs, so --fit has no limit of memory; "
        f"add a line such as accelerator: H100-80GB to gpus in {home}/targets.yaml\n"
    )


@pytest.mark.parametrize(("option", "check"), [("--compile", "compile"), ("--fit", "fit")])
def test_a_search_or_compile_that_a_refusal_left_out_is_said(
    option: str, check: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [
        "plan",
        "almodel-tiny",
        "optimizer.learning_rate=1",
        "data.source=gone",
        "mesh.fsdp=4",
        "--on",
        "v6e-4",
        option,
    ]
    assert main(argv) == 3
    said = f"info: {option} was not done: the plan is refused without it; correct the errors, then type it again"
    assert said in capsys.readouterr().out.splitlines()
    main([*argv, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [f["check"] for f in findings if f["code"] == "not-done"] == [check]


def test_a_run_that_is_refused_says_that_it_was_not_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "almodel-tiny", "data.source=gone", "--compile"]) == 3
    out, err = capsys.readouterr()
    assert "warning: --compile was not done: the plan is refused without it" in err.splitlines() and not out
