"""PurrSight's phase2_cluster.yaml becomes a recipe; no key of it is lost in silence."""

import functools
import json
import operator
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.cli import app
from podwright.importers import config_files, purrsight_files
from podwright.importers.purrsight_files import table
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


SAYS = ("nothing to do: ", "type ", " is ")


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
    assert recipe.model_dump(mode="json") == found["recipe"] and found["command"] == ["podwright", "run", found["out"]]
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
    assert got["projector"]["hidden_size"] == 1024 and got["aligner"] == {
        "source": "ckpt/aligner.pt",
        "dim": 512,
        "features": "unit",
    }
    for key, value in GIVEN.items():
        if key in table().same:
            assert functools.reduce(operator.getitem, table().same[key].split("."), got) == value, key
    told = found["notes"]
    assert "import the file where it lies in a checkout of PurrSight, or type data.system_prompt=" in told.pop(
        "system prompt"
    )
    ways = ("image_preprocessing", "audio_preprocessing", "audio_pooling")
    assert {got["encoders"][way] for way in ways} == {"purrsight"} and got["encoders"]["audio_seconds"] == 2.56
    keys = {*GIVEN, *(f"cluster.{key}" for key in GIVEN["cluster"])} - {"cluster"}
    assert keys == set(told)
    assert [key for key, note in told.items() if not any(words in note for words in SAYS)] == []
    words = "kind=slurm partition=gpu time=24:00:00 nodes=2 gpus_per_node=4 cpus_per_task=8 mem=64G"
    assert " ".join(found["target"]) == f"podwright target add cluster {words}"


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("device", "cpu", "for the CPU type --on cpu-1"),
        ("mlflow_experiment_name", "My Cats", "type name=NAME for 'My Cats'"),
        ("mlflow_tracking_uri", "http://here:5000", "type MLFLOW_TRACKING_URI=http://here:5000 before podwright"),
        ("mlflow_tracking_uri", None, "nothing to do: "),
        ("pin_memory", False, "nothing to do: batches for GPUs are pinned, which changes no result"),
        ("save_every_n_epochs", 1, "nothing to do: "),
        ("save_every_n_epochs", 5, "type checkpoint.every_n_steps=N, where N is 5 x the steps of an epoch"),
        ("num_gpus", "auto", "a run takes the GPUs that it sees"),
        ("num_gpus", None, "nothing to do: "),
        ("output_dir", "my runs", "type --runs 'my runs'"),
        ("cluster", {"timeout_minutes": 30}, "nothing to do: a process without output for ten minutes is ended"),
        (
            "cluster",
            {"enable_profiling": True},
            "nothing to do: --profile traces kinds that run in JAX",
        ),
        ("cluster", {"use_slurm": True}, "type --on cluster, the target below"),
        ("cluster", {"slurm_job_name": "my job"}, "type --name 'my job'"),
    ],
)
def test_what_has_no_key_here_is_told_with_what_to_type(tmp_path: Path, key: str, value: Any, note: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({"llm_model_name": "x", key: value}))
    assert note in " ".join(config_files.imported(path).notes.values())


def test_the_target_has_the_gpus_that_only_the_trainer_was_told_of(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("llm_model_name: x\nnum_gpus: 4\ncluster: {slurm_partition: gpu}\n")
    assert config_files.imported(path).target[3:] == [
        "cluster",
        "kind=slurm",
        "partition=gpu",
        "gpus_per_node=4",
    ]
    for other in ("auto", "true", "0"):
        path.write_text(f"llm_model_name: x\nnum_gpus: {other}\ncluster: {{slurm_partition: gpu}}\n")
        assert config_files.imported(path).target[3:] == ["cluster", "kind=slurm", "partition=gpu"]


def test_epochs_between_checkpoints_are_counted_where_the_lines_are_here(tmp_path: Path) -> None:
    for name, lines in (("train", 100), ("val", 10)):
        (tmp_path / f"{name}.jsonl").write_text("{}\n" * lines)
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | {"save_every_n_epochs": 5, "data_dir": str(tmp_path)}))
    # 12 lines on each of 4 GPUs, twice: 96 a step, 2 steps an epoch
    assert (
        config_files.imported(path)
        .notes["save_every_n_epochs"]
        .endswith("for every 5 epochs type checkpoint.every_n_steps=N, where N is 5 x the steps of an epoch")
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
    found = config_files.imported(path)
    assert found.recipe["model"]["mixed_precision"] == precision and f"is {precision}" in found.notes["mixed_precision"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rat": 1}, "learning_rat is no known key"),
        ({"llm_hidden_dim": 897}, "llm_hidden_dim=897: qwen2.5-0.5b has 896"),
        ({"projector_num_layers": 3}, "projector_num_layers=3 is not implemented; set it to 2"),
        ({"batch_size": 0}, "per_device_batch_size=0"),
        ({"cluster": {"nodes": 1}}, "cluster.nodes is no known key"),
        (
            {"cluster": "slurm"},
            "cluster='slurm': cluster is a section; write cluster:, and its keys indented below it",
        ),
        ({"mixed_precision": "int8"}, "mixed_precision='int8' has no counterpart; write "),
        ({"mixed_precision": 1}, "mixed_precision=1 has no counterpart"),
        ({"mixed_precision": None}, "mixed_precision=None has no counterpart"),
        ({"save_every_n_epochs": 0}, "save_every_n_epochs=0 must be a whole number from 1"),
    ],
)
def test_what_cannot_be_taken_over_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict, said: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | changes))
    code, _, err = call(capsys, str(path))
    assert code == 2 and said in err and not list(tmp_path.glob("*.recipe.yaml"))


@pytest.mark.parametrize(("stem", "name"), [("train config", "train-config"), ("_x", "x"), ("猫", "purrsight")])
def test_any_name_of_a_file_becomes_that_of_a_recipe(tmp_path: Path, stem: str, name: str) -> None:
    path = tmp_path / f"{stem}.yaml"
    path.write_text(yaml.safe_dump(GIVEN))
    assert config_files.imported(path).recipe["name"] == name


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
    assert "a.yaml line 5 is not YAML: at column 3, the key slurm_nodes is there twice" in call(capsys, str(path))[2]
    path.write_text("? [seed, seed]\n: 1\n")
    assert "a.yaml line 1 is not YAML: at column 3, " in call(capsys, str(path))[2]
    for content in ("day: 2026-02-30\n", "[" * 2000):
        path.write_text(content)
        code, _, err = call(capsys, str(path))
        assert code == 2 and err.startswith(f"error: {path} ") and err.count("\n") == 1
    assert "there is no file" in call(capsys, str(tmp_path / "b.yaml"))[2]
    what = f"error: no script in {tmp_path} calls xpk workload create or starts MaxText; name a launch script or a configuration file\n"
    assert call(capsys, str(tmp_path))[::2] == (2, what)
    path.write_text(yaml.safe_dump(GIVEN))
    (tmp_path / "out.yaml").write_bytes(b"caf\xe9")
    assert "exists already" in call(capsys, str(path), "--out", str(tmp_path / "out.yaml"))[2]
    fix = "check that path, or give another one"
    for place, said in (
        ("none/x.yaml", f"No such file or directory; {fix}"),
        ("a.yaml/x.yaml", f"Not a directory; {fix}"),
    ):
        assert call(capsys, str(path), "--out", str(tmp_path / place))[::2] == (
            2,
            f"error: {tmp_path / place}: {said}\n",
        )


CHECKOUT = {
    "purrsight/LLM/prompts.py": 'import absent\nSYSTEM_PROMPT_V3 = """### Role\nA cat \'expert\'.\n"""\n',
    "models/panns/cnn14_light_16k.pth": "",
    "models/mobilenetv4/pytorch_model.bin": "",
}
# the layout of PurrSight's train_config.yaml and phase2_example.yaml
COMMON = {"seed": 7, "project_name": "P", "output_dir": "o", "device": "mps", "log_every": 50, "save_every": 1}
PHASE_1 = {
    "experiment_name": "a", "data_path": "data/a.jsonl", "batch_size": 12, "epochs": 20, "learning_rate": 1e-3, "weight_decay": 0.02,
    "warmup_steps": 100, "num_workers": 0, "val_split": 0.2, "use_preprocessed": True, "preprocessed_dir": "p", "input_dim": 512,
    "output_dim": 256, "use_temperature_scaling": True,
}  # fmt: skip
PHASE_2 = {
    "experiment_name": "b", "llm_model_path": "models/Qwen2.5-0.5B-Instruct", "adapter_path": "c/aligner.pt", "data_path": "data/p2",
    "batch_size": 2, "gradient_accumulation_steps": 4, "epochs": 3, "learning_rate": 5e-5, "projector_lr": 2e-4, "lora_lr": 2.5e-5,
    "weight_decay": 0.01, "warmup_ratio": 0.03, "gradient_clip_val": 0.5, "num_workers": 0, "max_length": 2048,
    "projector": {"hidden_dim": 1024, "num_tokens": 6},
    "lora": {
        "enabled": True, "r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "bias": "none", "task_type": "CAUSAL_LM",
        "target_modules": ["q_proj", "up_proj"],
    },
    "freeze_encoders": True, "freeze_projector": False, "freeze_llm": False,
}  # fmt: skip


def leaves(given: dict[str, Any], prefix: str = "") -> set[str]:
    names: set[str] = set()
    for key, value in given.items():
        names |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}"}
    return names


def test_a_file_with_sections_is_imported_phase_by_phase(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train_config.yaml"
    given = {"common": COMMON, "phase1": PHASE_1, "phase2": PHASE_2}
    path.write_text(yaml.safe_dump(given))
    found = {
        n: json.loads(call(capsys, "train_config.yaml", *words, "--json")[1])
        for n, words in ((2, []), (1, ["--phase", "1"]))
    }
    assert "type podwright recipe import train_config.yaml --phase 1" in found[2]["notes"].pop("phase1")
    assert found[1]["notes"].pop("phase2").endswith("--phase 2") and "SYSTEM_PROMPT_V3" in found[2]["notes"].pop(
        "system prompt"
    )
    got = found[2]["recipe"]
    assert load(found[2]["out"]).model_dump(mode="json") == got and got["name"] == "train-config-phase2"
    assert got["model"] | {"lora_rank": 8, "lora_alpha": 16.0, "lora_dropout": 0.05} == got["model"]
    assert got["model"]["lora_target_modules"] == ["q_proj", "up_proj"] and got["projector"]["num_soft_tokens"] == 6
    assert (
        got["optimizer"] | {"learning_rate": 5e-5, "projector_factor": 4.0, "lora_factor": 0.5, "max_grad_norm": 0.5}
        == got["optimizer"]
    )
    assert got["data"] | {"source": "data/p2", "max_text_length": 2048, "num_workers": 1, "root": ""} == got["data"]
    assert (
        got["training"]["gradient_accumulation_steps"] == 4 and got["per_device_batch_size"] == 2 and got["seed"] == 7
    )
    one = found[1]["recipe"]
    assert load(found[1]["out"]).model_dump(mode="json") == one and one["kind"] == "contrastive"
    assert (
        one["data"] | {"source": "data/a.jsonl", "root": ".", "num_workers": 1} == one["data"]
        and one["aligner"]["dim"] == 256
    )
    assert one["optimizer"] | {"learning_rate": 1e-3, "weight_decay": 0.02, "warmup_steps": 100} == one["optimizer"]
    assert (one["per_device_batch_size"], one["training"]["num_epochs"], one["seed"]) == (12, 20, 7)
    assert one["encoders"]["audio_pooling"] == got["encoders"]["audio_pooling"] == "purrsight"
    for n, section in ((1, PHASE_1), (2, PHASE_2)):
        settings = purrsight_files.settings(path, given, n)
        notes, keys = found[n]["notes"], leaves(COMMON, "common.") | leaves(section, f"phase{n}.")
        assert keys == set(settings.keys.values()) == set(notes) and "is 1" in notes[f"phase{n}.num_workers"]
        assert [key for key, note in notes.items() if not any(words in note for words in SAYS)] == []


def test_what_a_file_with_sections_leaves_open_is_counted_or_said(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}\n" * 100)
    path = tmp_path / "a.yaml"

    def imported(phase: int, **changes: Any) -> config_files.Imported:
        base = {1: PHASE_1, 2: PHASE_2}[phase]
        path.write_text(yaml.safe_dump({"common": {}, f"phase{phase}": base | {"data_path": str(tmp_path)} | changes}))
        return config_files.imported(path)

    # 2 lines, 4 times a step: 13 steps an epoch, 39 in all
    assert imported(2, warmup_ratio=0.1).recipe["optimizer"]["warmup_steps"] == 4
    elsewhere = imported(2, data_path="nowhere", warmup_ratio=0.03)
    assert elsewhere.recipe["optimizer"]["warmup_steps"] == 500
    assert "optimizer.warmup_steps is 500, for the lines are not here" in elsewhere.notes["phase2.warmup_ratio"]
    without = imported(2, adapter_path=None)
    assert (
        without.recipe["aligner"]["source"] == "random"
        and "aligner.source=FILE" in without.notes["phase2.adapter_path"]
    )
    assert imported(2, lora={"enabled": False}).recipe["model"]["lora_rank"] == 0
    assert "data.num_test=N" in imported(1, data_path=str(tmp_path / "train.jsonl")).notes["phase1.val_split"]
    assert "its .pt files are not read" in imported(1).notes["phase1.use_preprocessed"]


def test_the_system_prompt_comes_from_the_checkout_in_which_the_file_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in CHECKOUT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "phase2_cluster.yaml"
    path.write_text(yaml.safe_dump(GIVEN))
    found = config_files.imported(path)
    assert found.recipe["data"]["system_prompt"] == "### Role\nA cat 'expert'.\n"
    assert (
        "data.system_prompt is that of" in found.notes["system prompt"]
        and f"type cd {tmp_path}" in found.notes["paths"]
    )
    encoders = {
        "image_weights": "models/mobilenetv4/pytorch_model.bin",
        "audio_weights": "models/panns/cnn14_light_16k.pth",
    }
    assert found.recipe["encoders"] | encoders == found.recipe["encoders"]
    monkeypatch.chdir(tmp_path)
    assert "paths" not in config_files.imported(path).notes
    for text in ("SYSTEM_PROMPT_V3 = make()", "x = 1", "(", "\0"):
        (tmp_path / "purrsight/LLM/prompts.py").write_text(text)
        assert "is not in this file" in config_files.imported(path).notes["system prompt"]


@pytest.mark.parametrize(
    ("given", "words", "message"),
    [
        ({"phase2": PHASE_2 | {"top_p": 1}}, (), "phase2.top_p is no known key of PurrSight's files"),
        ({"phase2": PHASE_2 | {"lora": {"rank": 1}}}, (), "phase2.lora.rank is no known key"),
        ({"phase2": PHASE_2 | {"lora": 8}}, (), "phase2.lora=8: phase2.lora is a section"),
        ({"phase2": 3}, (), "phase2=3: phase2 is a section"),
        ({"phase2": PHASE_2, "phase3": {}}, (), "phase3 is no known section"),
        ({"phase2": PHASE_2}, ("--phase", "1"), "has no section phase1; type --phase 2"),
        (GIVEN, ("--phase", "1"), "has no settings of phase 1; leave --phase 1 out"),
        (
            {"phase2": PHASE_2 | {"freeze_encoders": False}},
            (),
            "phase2.freeze_encoders=False is not implemented; set it to true",
        ),
        ({"phase2": PHASE_2 | {"freeze_projector": True}}, (), "phase2.freeze_projector=True is not implemented"),
        (
            {"phase2": PHASE_2 | {"lora": {"enabled": False}, "freeze_llm": True}},
            (),
            "the projector alone is not trained",
        ),
        ({"phase2": PHASE_2 | {"projector_lr": 0}}, (), "phase2.projector_lr=0 must be a number from 1e-12"),
        ({"phase2": PHASE_2 | {"warmup_ratio": "much"}}, (), "phase2.warmup_ratio='much' must be a number from 0 to 1"),
        ({"phase2": PHASE_2 | {"num_workers": -1}}, (), "data.num_workers=-1"),
        ({"common": {"save_every": 0}, "phase2": PHASE_2}, (), "common.save_every=0 must be a whole number from 1"),
        (
            {"phase1": PHASE_1 | {"use_temperature_scaling": False}},
            (),
            "phase1.use_temperature_scaling=False is not implemented",
        ),
        ({"phase1": PHASE_1 | {"val_split": 2}}, (), "val_split=2 must be a number from 0 to 1"),
    ],
)
def test_what_a_file_with_sections_cannot_have_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: dict, words: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(given))
    code, _, err = call(capsys, str(path), *words)
    assert code == 2 and message in err and not list(tmp_path.glob("*.recipe.yaml"))


def test_no_workers_of_the_flat_file_is_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(GIVEN | {"num_workers": 0}))
    found = config_files.imported(path)
    assert found.recipe["data"]["num_workers"] == 1 and "data.num_workers is 1" in found.notes["num_workers"]


def test_a_file_that_says_where_to_launch_becomes_the_words_of_a_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    raw = {"project_id": "my-project", "cluster_name": "pod", "default_zone": "us-east5-b", "jax_version": "0.8.1"}
    raw |= {"reservations": [{"name": "block", "zone": "us-east5-a"}], "owner": "me"}
    path.write_text(yaml.safe_dump(raw))
    code, out, _ = call(capsys, str(path))
    words = shlex.split(out.splitlines()[-1])
    assert (code, words[:6]) == (0, ["type:", "podwright", "target", "add", "pod", "kind=gke"])
    assert set(words[6:]) == {
        *("project=my-project", "cluster=pod", "zones=[us-east5-b, us-east5-a]", "reservations=[block]", "jax=0.8.1"),
    }
    assert "owner: a target has no such key: not used" in out
