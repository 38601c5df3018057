"""PurrSight's phase2_cluster.yaml becomes a recipe; no key of it is lost in silence."""

import json
from pathlib import Path

import pytest
import yaml

from podwright import cli
from podwright.recipe import purrsight
from podwright.recipe.load import load

GIVEN = {
    "llm_model_name": "models/Qwen2.5-0.5B-Instruct", "phase1_checkpoint_path": "ckpt/aligner.pt", "aligner_dim": 512,
    "llm_hidden_dim": 896, "projector_hidden_dim": 1024, "projector_num_layers": 2, "lora_r": 8, "lora_alpha": 16,
    "lora_dropout": 0.2, "lora_target_modules": ["q_proj", "v_proj"], "learning_rate": 0.0001, "weight_decay": 0.02,
    "batch_size": 12, "num_epochs": 3, "warmup_steps": 50, "gradient_clip_val": 0.5, "data_dir": "data/p2",
    "max_text_length": 600, "num_workers": 3, "log_every_n_steps": 10, "save_every_n_epochs": 1, "checkpoint_dir": "c",
    "output_dir": "o", "mlflow_experiment_name": "e", "mlflow_tracking_uri": None, "num_gpus": 4,
    "distributed_backend": "nccl", "device": "cuda", "seed": 7, "gradient_accumulation_steps": 2, "mixed_precision": True,
    "compile_model": True, "gradient_checkpointing": False, "pin_memory": True, "persistent_workers": True,
    "cluster": {
        "use_slurm": False, "slurm_job_name": "p", "slurm_partition": "gpu", "slurm_time": "24:00:00", "slurm_nodes": 2,
        "slurm_gpus_per_node": 4, "slurm_cpus_per_task": 8, "slurm_mem": "64G", "master_addr": "localhost",
        "master_port": 29500, "timeout_minutes": 1440, "enable_profiling": False, "profile_steps": 100,
    },
}  # fmt: skip


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["recipe", "import", *argv])
    return (code, *capsys.readouterr())


def test_every_key_becomes_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phase2_cluster.yaml"
    path.write_text(yaml.safe_dump(GIVEN))
    code, out, err = call(capsys, str(path), "--json")
    assert code == 0, err
    found = json.loads(out)
    recipe = load(found["out"])
    assert recipe.model_dump(mode="json") == found["recipe"] and found["argv"] == ["podwright", "run", found["out"]]
    got = found["recipe"]
    assert (got["per_device_batch_size"], got["seed"], got["model"]["name"]) == (12, 7, "qwen2.5-0.5b")
    assert got["model"] | {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.2, "mixed_precision": "fp16"} == got["model"]
    assert got["model"]["lora_target_modules"] == ["q_proj", "v_proj"] and not got["model"]["gradient_checkpointing"]
    assert got["optimizer"] | {"learning_rate": 1e-4, "weight_decay": 0.02, "warmup_steps": 50, "max_grad_norm": 0.5} == got["optimizer"]
    assert got["data"] | {"source": "data/p2", "max_text_length": 600, "num_workers": 3} == got["data"]
    assert got["training"] | {"num_epochs": 3, "gradient_accumulation_steps": 2, "compile": True} == got["training"]
    assert got["projector"]["hidden_size"] == 1024 and got["aligner"] == {"source": "ckpt/aligner.pt", "dim": 512}
    told = set(found["notes"]) | set(purrsight._SAME)
    assert {*GIVEN, *(f"cluster.{key}" for key in GIVEN["cluster"])} - {"cluster"} <= told
    words = "kind=slurm partition=gpu time=24:00:00 nodes=2 gpus_per_node=4 cpus_per_task=8 mem=64G tasks_per_node=4"
    assert " ".join(found["target"]) == f"podwright target add cluster {words}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rat": 1}, "learning_rat is no key"),
        ({"llm_hidden_dim": 897}, "llm_hidden_dim=897: qwen2.5-0.5b has 896"),
        ({"projector_num_layers": 3}, "the projector has two layers"),
        ({"batch_size": 0}, "per_device_batch_size=0"),
        ({"cluster": {"nodes": 1}}, "cluster.nodes is no key"),
    ],
)
def test_what_cannot_be_taken_over_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, said: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | changes))
    code, _, err = call(capsys, str(path))
    assert code == 2 and said in err and not list(tmp_path.glob("*.recipe.yaml"))


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: grpo\n")
    assert "is no phase2_cluster.yaml" in call(capsys, str(path))[2]
    assert "there is no file" in call(capsys, str(tmp_path / "b.yaml"))[2]
    assert call(capsys, str(tmp_path))[::2] == (2, f"error: {tmp_path}: that is a directory; name a file\n")
    path.write_text(yaml.safe_dump(GIVEN))
    (tmp_path / "out.yaml").touch()
    assert "is there already" in call(capsys, str(path), "--out", str(tmp_path / "out.yaml"))[2]
    absent = ("none/x.yaml", "there is no such file or directory; check the path")
    for place, said in (absent, ("a.yaml/x.yaml", "part of that path is a file; give another place")):
        assert call(capsys, str(path), "--out", str(tmp_path / place))[::2] == (2, f"error: {tmp_path / place}: {said}\n")
