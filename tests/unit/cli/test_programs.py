"""A run cannot begin where this machine lacks a program that its target needs: whatever is typed, nothing is left behind."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.cli.app import main
from podwright.run import drive, journal, listing
from podwright.rundir import RunDir, write_json
from podwright.targets import kinds
from podwright.targets.base import identity

GKE = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": ["us-central1-a"],
    "bucket": "gs://my-bucket/runs",
    "topology": "v6e-16",
}
TARGETS: dict[str, dict[str, Any]] = {
    "queue": GKE,
    "pools": GKE | {"provisioning": "spot"},
    "vm": {
        "kind": "tpu-vm",
        "project": "my-project",
        "zones": ["us-east5-b"],
        "accelerator_type": "v6e-16",
        "storage": "gs://my-bucket/runs",
    },
    "boxes": {"kind": "ssh", "hosts": ["a", "b"]},
    "lab": {"kind": "slurm", "nodes": 2},
}
NEEDED = {
    "queue": ["kubectl"],
    "pools": ["kubectl", "gcloud"],
    "vm": ["gcloud", "ssh", "ssh-keygen"],
    "boxes": ["ssh"],
    "lab": ["sbatch", "squeue", "scancel"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With programs in bin/ alone, each of which fails."""
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump(TARGETS))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def there(folder: Path, *programs: str) -> None:
    for name in programs:
        (folder / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / "bin" / name).chmod(0o755)


@pytest.mark.brief(2)
@pytest.mark.parametrize(("target", "missing"), [(name, each) for name, some in NEEDED.items() for each in some])
def test_a_run_without_a_program_of_its_target_leaves_nothing(
    folder: Path, target: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("podwright.targets.google.gcloud.LOGIN_PAUSE_S", 0.0)
    monkeypatch.setattr("podwright.targets.ResolvedTarget.look_at_storage", lambda *_: [])
    there(folder, *(name for name in NEEDED[target] if name != missing))
    code = main(["run", "qwen3-tiny-arithmetic-grpo", "mesh.fsdp=16", "--on", target, "--name", "r", "--force"])
    err = capsys.readouterr().err
    assert code == 2 and f"error: command {missing} not found on this machine; " in err, err
    assert not (folder / "runs").exists() or not any((folder / "runs").iterdir())


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("pools", "gcloud, kubectl not found on this machine; install the Google Cloud CLI: https://cloud.google.com/"),
        ("lab", "sbatch, squeue, scancel not found on this machine; type podwright on a login node of the cluster\n"),
    ],
)
def test_all_programs_that_are_missing_are_named_in_one_line(
    folder: Path, target: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("podwright.targets.ResolvedTarget.look_at_storage", lambda *_: [])
    code = main(["run", "qwen3-tiny-arithmetic-grpo", "mesh.fsdp=16", "--on", target, "--name", "r", "--force"])
    err = capsys.readouterr().err
    assert code == 2 and f"error: commands {said}" in err, err


@pytest.mark.parametrize("target", ["queue", "pools"])
def test_a_check_names_each_program_that_is_missing(
    folder: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["target", "check", target]) == 3
    out = capsys.readouterr().out
    assert all(f"error: command {each} not found on this machine; " in out for each in ("kubectl", "gcloud")), out


@pytest.mark.parametrize("target", ["queue", "pools", "lab"])
def test_a_run_whose_target_this_shell_cannot_ask_is_listed_with_what_to_do(
    folder: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run, settings = (
        RunDir(folder / "runs" / "r"),
        kinds.settings_class(TARGETS[target]["kind"]).model_validate(TARGETS[target]),
    )
    write_json(run.recipe, {"kind": "grpo", "name": "r", "training": {"max_steps": 1}})
    handle = {
        "run_dir": str(run.path),
        "attempt": 1,
        "job_name": "j",
        "jobset": "j",
        "tag": "t",
        "kinds": ["jobsets"],
        "pods": 1,
    }
    journal.append(run, "created", recipe="r", target=target, cwd=str(folder), retries=0)
    for event in ("submitting", "submitted"):
        journal.append(run, event, attempt=1, handle=handle | identity(target, settings))
    run.attempt(1).mkdir(parents=True)
    row = listing.row(run)
    missing = NEEDED[target][0] if target != "lab" else "squeue"
    assert row["state"] == "waiting" and row["detail"].startswith(
        f"NoProgram: command {missing} not found on this machine; "
    )
    assert row["ending"] is None and row["fix"]
    assert main(["list"]) == 0
    out, err = capsys.readouterr()
    assert "waiting (NoProgram)" in out and f"r: {row['detail']}" in err and "unreadable" not in out + err
    with pytest.raises(Exception, match=f"command {missing} not found"):
        drive.Driver(run, lambda *_: None, lambda _: None).step()
