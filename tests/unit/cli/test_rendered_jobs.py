"""`run --dry-run` renders the scripts of every kind of target, with and without GPUs; a variable that a template lacks is an error."""

import json
import subprocess
from pathlib import Path

import pytest

from podwright import targets
from podwright.cli.app import main
from podwright.recipe.load import load
from podwright.run import drive
from podwright.targets import kinds, scripts

ENTRIES = {
    "slurm-cpus": "kind: slurm, nodes: 2",
    "slurm-gpus": "kind: slurm, gpus_per_node: 8, tasks_per_node: 8, setup: [module load cuda]",
    "ssh-cpus": "kind: ssh, hosts: ['127.0.0.1:9'], tasks_per_node: 2",
    "ssh-gpus": "kind: ssh, hosts: ['127.0.0.1:9', '127.0.0.2:9'], gpus_per_node: 8, setup: [module load cuda]",
    "tpus": "kind: tpu-vm, accelerator_type: v6e-8, zones: [us-east5-b], project: lab-12345",
}


@pytest.fixture
def entries_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "targets.yaml"
    path.write_text("".join(f"{name}: {{{entry}}}\n" for name, entry in ENTRIES.items()))
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(path))
    monkeypatch.chdir(tmp_path)
    return path


def require_scripts(files: dict[str, str]) -> None:
    texts = {Path(path).name: text for path, text in files.items() if path.endswith(".sh")}
    assert texts and set(texts) < {path.name for path in Path(scripts.__file__).with_name("templates").iterdir()}
    for text in texts.values():
        assert "{%" not in text and subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize("name", [name for name in ENTRIES if name != "tpus"])
def test_a_dry_run_renders_the_scripts_of_a_target(
    entries_file: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    main(["run", "phase1-tiny", "--on", name, "--name", "r", "--dry-run", "--force", "--json"])
    require_scripts(json.loads(capsys.readouterr().out)["files"])


def test_the_scripts_of_tpu_machines_are_rendered_without_asking_a_cloud(entries_file: Path) -> None:
    require_scripts(drive.preview(Path("runs/r"), targets.resolve("tpus"), load("qwen3-tiny-arithmetic-grpo"))["files"])


def test_there_is_an_entry_of_every_kind() -> None:
    """Of GKE `podwright render` writes the scripts; a run on it is refused."""
    shown = {entry.split(",")[0].removeprefix("kind: ") for entry in ENTRIES.values()}
    assert shown | {"gke"} == set(kinds.configured())
