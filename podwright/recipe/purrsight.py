"""Settings of PurrSight's Phase 2 (phase2_cluster.yaml) as a recipe of ours: what becomes of each of its keys.

Settings of a cluster do not belong in a recipe: they become the words to type for a target.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.recipe import llm
from podwright.recipe.load import load, read, settled

_BASE = "phase2-qwen2.5-0.5b-cluster"
_SAME = {
    "llm_model_name": "model.source",
    "lora_r": "model.lora_rank",
    "lora_alpha": "model.lora_alpha",
    "lora_dropout": "model.lora_dropout",
    "lora_target_modules": "model.lora_target_modules",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "phase1_checkpoint_path": "aligner.source",
    "aligner_dim": "aligner.dim",
    "projector_hidden_dim": "projector.hidden_size",
    "data_dir": "data.source",
    "max_text_length": "data.max_text_length",
    "num_workers": "data.num_workers",
    "batch_size": "per_device_batch_size",
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "warmup_steps": "optimizer.warmup_steps",
    "gradient_clip_val": "optimizer.max_grad_norm",
    "num_epochs": "training.num_epochs",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
    "compile_model": "training.compile",
    "seed": "seed",
}
_DERIVED = {
    "log_every_n_steps": "every step is written down",
    "checkpoint_dir": "checkpoints lie in the directory of the run",
    "output_dir": "all that a run leaves lies in its directory; --runs says where that is",
    "mlflow_experiment_name": "runs are mirrored to MLflow under their recipe's name",
    "mlflow_tracking_uri": "MLflow's data lies beside the runs",
    "distributed_backend": "NCCL on GPUs, gloo on CPUs",
    "device": "GPUs where there are any",
    "pin_memory": "batches for GPUs are pinned",
    "persistent_workers": "files are decoded once, before the first step, and no workers are needed after that",
    "llm_hidden_dim": "it is the model's own",
}
_SLURM = {
    "slurm_partition": "partition",
    "slurm_time": "time",
    "slurm_nodes": "nodes",
    "slurm_gpus_per_node": "gpus_per_node",
    "slurm_cpus_per_task": "cpus_per_task",
    "slurm_mem": "mem",
}
_LAUNCHED = {
    "use_slurm": "a target says where a run goes",
    "slurm_job_name": "a job is named after its run",
    "master_addr": "the launcher finds it",
    "master_port": "the launcher finds it",
    "timeout_minutes": "a silent process is given up after ten minutes",
    "enable_profiling": "not done for PyTorch",
    "profile_steps": "not done for PyTorch",
}


@dataclasses.dataclass(frozen=True)
class Imported:
    recipe: dict[str, Any]
    notes: dict[str, str]
    """key of the file -> what became of it, where that is no key of a recipe"""
    target: list[str]
    """words to type for the cluster, [] where the file names none"""


def imported(path: Path) -> Imported:
    given = read(path)
    if "llm_model_name" not in given and "phase1_checkpoint_path" not in given:
        raise UserError(f"{path} is no phase2_cluster.yaml: it has no llm_model_name", "give the settings of PurrSight's Phase 2")
    raw = load(_BASE).model_dump(mode="json")
    notes: dict[str, str] = {}
    for key, value in given.items():
        if key in _SAME:
            *section, last = _SAME[key].split(".")
            (raw[section[0]] if section else raw)[last] = value
        elif key in _DERIVED:
            notes[key] = _DERIVED[key]
        elif key != "cluster":
            _particular(key, value, raw, notes)
    hidden = given.get("llm_hidden_dim")
    name = Path(str(given.get("llm_model_name", raw["model"]["source"]))).name.lower().removesuffix("-instruct")
    if name in llm.MODELS and hidden not in (None, llm.MODELS[name].hidden_size):
        raise UserError(f"llm_hidden_dim={hidden}: {name} has {llm.MODELS[name].hidden_size}", "mend it, or leave it out")
    raw |= {"name": path.stem.lower().replace("_", "-"), "description": f"the settings of {path.name}"}
    raw["model"]["name"] = name if name in llm.MODELS else raw["model"]["name"]
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": "accuracy_after"}
    target = _target(given, notes)
    return Imported(settled(raw), notes, target)


def _particular(key: str, value: Any, raw: dict[str, Any], notes: dict[str, str]) -> None:
    """Keys whose value decides what becomes of them."""
    if key == "mixed_precision":
        raw["model"]["mixed_precision"] = "fp16" if value else "no"
        notes[key] = f"model.mixed_precision={raw['model']['mixed_precision']}; bf16 is the better choice on A100 and newer"
    elif key == "num_gpus":
        notes[key] = "a target says how many"
    elif key == "save_every_n_epochs":
        notes[key] = "a checkpoint at the end of every epoch" + (
            "" if value == 1 else f", not of every {value}; checkpoint.every_n_steps is finer"
        )
    elif key == "projector_num_layers":
        if value != 2:
            raise UserError(f"projector_num_layers={value}: the projector has two layers", "set it to 2")
        notes[key] = "it has two"
    else:
        raise UserError(f"{key} is no key of phase2_cluster.yaml that we know", "take it out; `podwright recipes show` lists ours")


def _target(given: dict[str, Any], notes: dict[str, str]) -> list[str]:
    cluster = given.get("cluster") or {}
    words = [f"{ours}={cluster[key]}" for key, ours in _SLURM.items() if key in cluster]
    for key in cluster:
        if key in _SLURM:
            notes[f"cluster.{key}"] = f"{_SLURM[key]} of a target"
        elif key in _LAUNCHED:
            notes[f"cluster.{key}"] = _LAUNCHED[key]
        else:
            raise UserError(f"cluster.{key} is no key of phase2_cluster.yaml that we know", "take it out")
    if gpus := cluster.get("slurm_gpus_per_node", given.get("num_gpus")):
        words.append(f"tasks_per_node={gpus}")
    return ["podwright", "target", "add", "cluster", "kind=slurm", *words] if cluster else []
