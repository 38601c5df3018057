"""One table of exit codes for all verbs: a usage error, a refusal, an inconclusive plan and a failed run differ."""

import json
from pathlib import Path
from typing import Any

import pytest

from podwright import __version__
from podwright.cli.app import main
from podwright.cli.exit_codes import ExitCode, of_run
from podwright.recipe.load import load
from podwright.run import create, journal, listing, session
from podwright.shell import Shell
from podwright.storage import trial
from podwright.targets.base import Remark
from podwright.targets.slurm import Slurm

RECIPE = "qwen3-tiny-arithmetic-grpo"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PODWRIGHT_RUNS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def ended_run(folder: Path, ending: str, released: bool = True) -> None:
    """A run `r` whose only attempt is over, and released and reported or not."""
    run = create.create(folder / "runs" / "r", load(RECIPE), "local", {})
    journal.append(run, "submitting", attempt=1, handle={})
    journal.append(run, "ended", attempt=1, ending=ending, detail="", fix="", step=2)
    for event in ("released", "reported") if released else ():
        journal.append(run, event, attempt=1)


def test_the_codes_stay_what_they_are() -> None:
    assert [int(code) for code in ExitCode] == [0, 1, 2, 3, 4, 130]


@pytest.mark.parametrize(
    ("verb", "ending", "code"),
    [
        ("watch", "FINISHED", ExitCode.OK),
        ("watch", "CRASHED", ExitCode.FAILED),
        ("watch", "PREEMPTED", ExitCode.FAILED),
        ("watch", "STOPPED", ExitCode.FAILED),
        ("stop", "FINISHED", ExitCode.OK),
        ("stop", "STOPPED", ExitCode.OK),
        ("stop", "CRASHED", ExitCode.FAILED),
        ("resume", "FINISHED", ExitCode.OK),
    ],
)
def test_a_verb_at_a_run_that_has_ended(folder: Path, capsys: Any, verb: str, ending: str, code: ExitCode) -> None:
    ended_run(folder, ending)
    assert main([verb, "r"]) == code
    assert f"r {ending} at step" in capsys.readouterr().out


@pytest.mark.parametrize(("here", "code"), [(True, ExitCode.OK), (False, ExitCode.INTERRUPTED)])
def test_who_leaves_a_run_that_needs_a_launcher_gets_no_0(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, here: bool, code: ExitCode
) -> None:
    """Its trainer has FINISHED, and nobody has asked for the deletion of its machines yet."""
    ended_run(folder, "FINISHED", released=False)
    monkeypatch.setattr(session, "attend", lambda *_: (here, here))
    assert main(["resume", "r"]) == code
    assert "type podwright stop r" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verb", "ending", "interrupted", "code"),
    [
        ("follow", "FINISHED", True, ExitCode.OK),
        ("follow", "STOPPED", True, ExitCode.INTERRUPTED),
        ("watch", None, True, ExitCode.INTERRUPTED),
        ("watch", None, False, ExitCode.FAILED),
        ("submit", None, False, ExitCode.OK),
        ("submit", "CRASHED", False, ExitCode.FAILED),
        ("resume", "NODE_LOST", False, ExitCode.FAILED),
    ],
)
def test_a_verb_at_a_run(verb: str, ending: str | None, interrupted: bool, code: ExitCode) -> None:
    assert of_run(verb, ending, interrupted) == code


@pytest.mark.parametrize(
    "argv",
    [
        ["watc", "r"],
        ["run"],
        ["list", "--jsn"],
        ["logs", "r", "--process", "-1"],
        ["watch", "none"],
        ["stop", "none"],
        ["report", "none"],
        ["diagnose", "none"],
        ["doctor", "none"],
        ["target", "check", "none"],
        ["predict", "none"],
        ["run", RECIPE, "batch_siz=3"],
        ["plan", RECIPE, "--on", "v6e-0"],
    ],
    ids=" ".join,
)
def test_what_is_typed_wrong(argv: list[str]) -> None:
    assert main(argv) == ExitCode.USAGE


def test_a_check_that_finds_something(folder: Path) -> None:
    (folder / "known.txt").write_text("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\n")
    (folder / "unknown.txt").write_text("all is well\n")
    assert main(["diagnose", "known.txt"]) == ExitCode.OK
    assert main(["diagnose", "unknown.txt"]) == ExitCode.FAILED


def test_a_target_that_does_not_answer_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["target", "add", "nowhere", "kind=ssh", "hosts=[nowhere.invalid]"])
    for argv in (["target", "check", "nowhere"], ["doctor", "--on", "nowhere"]):
        assert main(argv) == ExitCode.REFUSED
        assert capsys.readouterr().out.endswith("nowhere: refused: it will not run\n")
    monkeypatch.setattr(Shell, "output", lambda shell, argv: (-9, ""))  # checked, and gone when it is asked
    assert main(["doctor", "--json"]) == ExitCode.REFUSED
    shown = json.loads(capsys.readouterr().out)
    assert (shown["verdict"], shown["machines"]) == ("refused", [])
    assert [f["message"] for f in shown["findings"]] == ["the trainer cannot be asked (exit code -9)"]


def test_a_doctor_says_which_machines_it_has_not_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["target", "add", "bare", "kind=slurm"])
    monkeypatch.setattr(Slurm, "check", lambda _: [Remark("error", "no such partition", "take another")])
    capsys.readouterr()
    assert main(["doctor", "--on", "bare"]) == main(["target", "check", "bare"]) == ExitCode.REFUSED
    assert "inconclusive: the machines of bare were not looked at: the target has a fault" in capsys.readouterr().out
    monkeypatch.setattr(Shell, "output", lambda shell, argv: (0, ""))
    assert main(["doctor"]) == ExitCode.INCONCLUSIVE
    assert "inconclusive: no machine of local has said what it is" in capsys.readouterr().out


def test_a_target_whose_hosts_have_not_tried_its_storage_is_never_ok(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Slurm, "check", lambda _: [])  # no cluster is needed for this
    main(["target", "add", "kept", "kind=slurm", f"storage={folder}"])
    main(["target", "add", "bare", "kind=slurm"])
    main(["target", "add", "lost", "kind=slurm", f"storage={folder}/none"])
    capsys.readouterr()
    assert main(["target", "check", "bare"]) == ExitCode.OK
    assert capsys.readouterr().out == "bare: OK: no problems found\n"
    assert main(["target", "check", "kept"]) == ExitCode.INCONCLUSIVE
    assert capsys.readouterr().out.splitlines() == [
        f"info: this machine can write, read, list and delete in storage={folder}",
        f"inconclusive: the hosts of kept were not checked for access to storage={folder}; "
        "type podwright doctor --on kept, which checks them",
        "kept: inconclusive: not everything could be checked",
    ]
    assert main(["target", "check", "kept", "--json"]) == ExitCode.INCONCLUSIVE
    shown = json.loads(capsys.readouterr().out)
    assert (shown["verdict"], shown["ok"]) == ("inconclusive", None)
    assert main(["target", "check", "lost"]) == ExitCode.REFUSED
    assert f"error: there is no folder {folder}/none; type mkdir -p {folder}/none, or" in capsys.readouterr().out


def test_a_plan_and_a_run_look_at_the_storage_and_write_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Slurm, "check", lambda _: [])
    monkeypatch.setattr(trial, "_PATIENCE_S", 1.0)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")  # nobody answers there
    (folder / "kept").mkdir()
    for name, url in (("kept", f"{folder}/kept"), ("lost", f"{folder}/none"), ("far", "gs://pod-test/runs")):
        main(["target", "add", name, "kind=slurm", f"storage={url}"])
    assert main(["plan", RECIPE, "--on", "kept", "--only", "storage,target"]) == ExitCode.OK
    assert not list((folder / "kept").iterdir())
    capsys.readouterr()
    for verb in ("plan", "run"):
        assert main([verb, RECIPE, "--on", "lost"]) == ExitCode.REFUSED
        told = capsys.readouterr()
        assert f"there is no folder {folder}/none; type mkdir -p {folder}/none, or" in told.out + told.err
    assert not (folder / "none").exists() and not (folder / "runs").exists()
    assert main(["plan", RECIPE, "--on", "far"]) == ExitCode.INCONCLUSIVE
    assert "storage gs://pod-test/runs failed (network: " in capsys.readouterr().out
    assert main(["target", "check", "far"]) == ExitCode.INCONCLUSIVE, "what a plan cannot tell, a check cannot either"
    assert "inconclusive: storage gs://pod-test/runs failed (network: " in capsys.readouterr().out
    assert main(["plan", "phase1-tiny", "--on", "lost"]) == ExitCode.OK, "this kind does not use the storage"


def test_a_plan_counts_the_warnings_of_its_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(Slurm, "check", lambda _: [])
    main(["target", "add", "kept", "kind=slurm", f"storage={folder}"])
    for recipe, kind in (("phase1-tiny", "contrastive"), ("phase2-tiny", "multimodal")):
        capsys.readouterr()
        assert main(["plan", recipe, "--on", "kept"]) == ExitCode.OK
        out = capsys.readouterr().out
        assert (
            f"warning: kind={kind} does not use storage={folder}: checkpoints and records stay in the directory" in out
        )
        assert out.endswith(f"{recipe} on kept: OK, with 1 warning\n")
    assert main(["plan", RECIPE, "--on", "kept"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith(f"{RECIPE} on kept: OK: no problems found\n")


@pytest.mark.parametrize(("num_faults", "code"), [(0, ExitCode.OK), (2, ExitCode.FAILED)])
def test_data_check(monkeypatch: pytest.MonkeyPatch, num_faults: int, code: ExitCode) -> None:
    record = {"source": "x.jsonl", "lines": 3, "valid": 3 - num_faults, "num_faults": num_faults, "faults": []}
    said = json.dumps(record)
    monkeypatch.setattr(Shell, "answer", lambda shell, program, words: (0, said))
    assert main(["data", "check", "x.jsonl"]) == code


@pytest.mark.parametrize("code", [1, -9, 137])
def test_a_compute_half_that_dies_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    (folder / "x").mkdir()
    monkeypatch.setattr(Shell, "answer", lambda shell, program, words: (code, ""))
    assert main(["eval", "x"]) == ExitCode.FAILED
    assert main(["data", "count", "x"]) == ExitCode.FAILED
    assert main(["data", "check", "x"]) == ExitCode.FAILED


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(runs: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(listing, "rows", interrupted)
    assert main(["list"]) == ExitCode.INTERRUPTED


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out == f"podwright {__version__}\n"
    assert main([]) == ExitCode.USAGE and "--version" in capsys.readouterr().err
