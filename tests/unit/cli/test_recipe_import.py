"""PurrSight's phase2_cluster.yaml becomes a recipe; no key of it is lost in silence."""

import functools
import json
import operator
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.cli import app
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
    code = app.main(["recipe", "import", *argv])
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
    assert (
        got["model"] | {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.2, "mixed_precision": "fp16"}
        == got["model"]
    )
    assert got["model"]["lora_target_modules"] == ["q_proj", "v_proj"] and not got["model"]["gradient_checkpointing"]
    assert (
        got["optimizer"] | {"learning_rate": 1e-4, "weight_decay": 0.02, "warmup_steps": 50, "max_grad_norm": 0.5}
        == got["optimizer"]
    )
    assert got["data"] | {"source": "data/p2", "max_text_length": 600, "num_workers": 3} == got["data"]
    assert got["training"] | {"num_epochs": 3, "gradient_accumulation_steps": 2, "compile": True} == got["training"]
    assert got["projector"]["hidden_size"] == 1024 and got["aligner"] == {"source": "ckpt/aligner.pt", "dim": 512}
    for key, value in GIVEN.items():
        if key in purrsight._SAME:
            assert functools.reduce(operator.getitem, purrsight._SAME[key].split("."), got) == value, key
    told = found["notes"]
    keys = {*GIVEN, *(f"cluster.{key}" for key in GIVEN["cluster"])} - {"cluster"}
    assert keys == set(told) | (set(purrsight._SAME) & set(GIVEN)) and not set(told) & set(purrsight._SAME)
    assert [key for key, note in told.items() if not note.startswith("nothing to do: ") and "type " not in note] == []
    words = "kind=slurm partition=gpu time=24:00:00 nodes=2 gpus_per_node=4 cpus_per_task=8 mem=64G tasks_per_node=4"
    assert " ".join(found["target"]) == f"podwright target add cluster {words}"


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("device", "cpu", "for the CPU type --on cpu-1"),
        ("device", "cuda:1", "type CUDA_VISIBLE_DEVICES=1 before podwright"),
        ("device", "cuda", "nothing to do: "),
        ("mlflow_experiment_name", "My Cats", "type name=my-cats"),
        (
            "mlflow_tracking_uri",
            "http://here:5000",
            "nothing is sent to http://here:5000: MLflow's data lies beside the runs; ",
        ),
        ("mlflow_tracking_uri", None, "nothing to do: "),
        ("pin_memory", False, "nothing to do: batches for GPUs are pinned, which changes no result"),
        ("save_every_n_epochs", 1, "nothing to do: "),
        ("save_every_n_epochs", 5, "type checkpoint.every_n_steps=N, where N is 5 x lines / (batch_size x "),
        ("num_gpus", "auto", "nothing to do: a run takes all GPUs that it sees"),
        ("num_gpus", 2, "for 2 of more type CUDA_VISIBLE_DEVICES=0,1 before podwright"),
        ("output_dir", "my runs", "type --runs 'my runs'"),
        ("cluster", {"timeout_minutes": 30}, "nothing to do: a process that is silent for ten minutes is given up"),
        (
            "cluster",
            {"enable_profiling": True},
            "nothing to do: --profile traces kinds that run in JAX, which this is not",
        ),
        ("cluster", {"use_slurm": True}, "type --on cluster, the target below"),
        ("cluster", {"slurm_job_name": "my job"}, "type --name 'my job'"),
    ],
)
def test_what_has_no_key_here_is_told_with_what_to_type(tmp_path: Path, key: str, value: Any, note: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({"llm_model_name": "x", key: value}))
    assert note in " ".join(purrsight.imported(path).notes.values())


def test_the_target_has_the_gpus_that_only_the_trainer_was_told_of(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("llm_model_name: x\nnum_gpus: 4\ncluster: {slurm_partition: gpu}\n")
    assert purrsight.imported(path).target[3:] == [
        "cluster",
        "kind=slurm",
        "partition=gpu",
        "gpus_per_node=4",
        "tasks_per_node=4",
    ]
    path.write_text("llm_model_name: x\nnum_gpus: auto\ncluster: {slurm_partition: gpu}\n")
    assert purrsight.imported(path).target[3:] == ["cluster", "kind=slurm", "partition=gpu"]


def test_epochs_between_checkpoints_are_counted_where_the_lines_are_here(tmp_path: Path) -> None:
    for name, lines in (("train", 100), ("val", 10)):
        (tmp_path / f"{name}.jsonl").write_text("{}\n" * lines)
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | {"save_every_n_epochs": 5, "data_dir": str(tmp_path)}))
    # 12 lines on each of 4 GPUs, twice: 96 a step, 2 steps an epoch
    assert (
        purrsight.imported(path)
        .notes["save_every_n_epochs"]
        .endswith("for every 5 epochs type checkpoint.every_n_steps=10")
    )


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ("true", "fp16"),
        ("false", "no"),
        ("no", "no"),
        ("'true'", "fp16"),
        ("'False'", "no"),
        ("'no'", "no"),
        ("bf16", "bf16"),
        ("fp16", "fp16"),
    ],
)
def test_a_precision_is_what_it_says(tmp_path: Path, given: str, precision: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"llm_model_name: x\nmixed_precision: {given}\n")
    found = purrsight.imported(path)
    assert found.recipe["model"]["mixed_precision"] == precision and f"is {precision}" in found.notes["mixed_precision"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rat": 1}, "learning_rat is no key"),
        ({"llm_hidden_dim": 897}, "llm_hidden_dim=897: qwen2.5-0.5b has 896"),
        ({"projector_num_layers": 3}, "the projector has two layers"),
        ({"batch_size": 0}, "per_device_batch_size=0"),
        ({"cluster": {"nodes": 1}}, "cluster.nodes is no key"),
        (
            {"cluster": "slurm"},
            "cluster='slurm': cluster is a section; write cluster:, and indented below it slurm_partition: gpu",
        ),
        (
            {"mixed_precision": "int8"},
            "mixed_precision='int8' is no precision; write true (which is fp16), false, no, fp16 or bf16",
        ),
        ({"mixed_precision": 1}, "mixed_precision=1 is no precision"),
        ({"mixed_precision": None}, "mixed_precision=None is no precision"),
        ({"save_every_n_epochs": 0}, "save_every_n_epochs=0 is no number of epochs; write 1 or more"),
    ],
)
def test_what_cannot_be_taken_over_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, said: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | changes))
    code, _, err = call(capsys, str(path))
    assert code == 2 and said in err and not list(tmp_path.glob("*.recipe.yaml"))


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: grpo\n")
    assert "is no phase2_cluster.yaml" in call(capsys, str(path))[2]
    for content in ("", "- a\n"):
        path.write_text(content)
        said = call(capsys, str(path))[2]
        assert (
            "a.yaml holds no mapping of keys; give PurrSight's phase2_cluster.yaml" in said and "kind: grpo" not in said
        )
    path.write_text("seed: 1\nllm_model_name: x\ncluster:\n  slurm_nodes: 1\n  slurm_nodes: 2\n")
    assert "a.yaml line 5: slurm_nodes stands there a second time; leave one of them out" in call(capsys, str(path))[2]
    path.write_text("? [seed, seed]\n: 1\n")
    assert "a.yaml line 1 is not YAML: found unhashable key" in call(capsys, str(path))[2]
    assert "there is no file" in call(capsys, str(tmp_path / "b.yaml"))[2]
    assert call(capsys, str(tmp_path))[::2] == (2, f"error: {tmp_path}: that is a directory; name a file\n")
    path.write_text(yaml.safe_dump(GIVEN))
    (tmp_path / "out.yaml").touch()
    assert "exists already" in call(capsys, str(path), "--out", str(tmp_path / "out.yaml"))[2]
    absent = ("none/x.yaml", "there is no such file or directory; check the path")
    for place, said in (absent, ("a.yaml/x.yaml", "part of that path is a file; give another place")):
        assert call(capsys, str(path), "--out", str(tmp_path / place))[::2] == (
            2,
            f"error: {tmp_path / place}: {said}\n",
        )
