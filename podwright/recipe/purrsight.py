"""Settings of PurrSight's Phase 2 (phase2_cluster.yaml) as a recipe of ours: what becomes of each of its keys.

Settings of a cluster do not belong in a recipe: they become the words to type for a target.
"""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Callable
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
_NOTHING = "nothing to do: "
_DERIVED = {
    "log_every_n_steps": "every step is written down",
    "persistent_workers": "files are decoded once, before the first step, and no workers are needed after that",
    "pin_memory": "batches for GPUs are pinned, which changes no result",
    "distributed_backend": "NCCL on GPUs, gloo on CPUs",
    "llm_hidden_dim": "it is the model's own",
    "projector_num_layers": "it has two",
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
    "master_addr": "the launcher finds it",
    "master_port": "the launcher finds it",
    "timeout_minutes": "a process that is silent for ten minutes is given up, which is no setting here",
}
_PRECISIONS = {"true": "fp16", "false": "no", "no": "no", "bf16": "bf16", "fp16": "fp16"}
_IMPORTABLE = "give PurrSight's phase2_cluster.yaml, with lines such as 'llm_model_name: models/Qwen2.5-0.5B-Instruct'"


@dataclasses.dataclass(frozen=True)
class Imported:
    recipe: dict[str, Any]
    notes: dict[str, str]
    """key of the file -> what became of it, where that is no key of a recipe"""
    target: list[str]
    """words to type for the cluster, [] where the file names none"""


def imported(path: Path) -> Imported:
    given = read(path, _IMPORTABLE)
    if "llm_model_name" not in given and "phase1_checkpoint_path" not in given:
        raise UserError(f"{path} is no phase2_cluster.yaml: it has no llm_model_name", _IMPORTABLE)
    raw = load(_BASE).model_dump(mode="json")
    notes: dict[str, str] = {}
    for key, value in given.items():
        if key in _SAME:
            *section, last = _SAME[key].split(".")
            (raw[section[0]] if section else raw)[last] = value
        elif key != "cluster":
            _particular(key, given, raw, notes)
    hidden = given.get("llm_hidden_dim")
    name = Path(str(given.get("llm_model_name", raw["model"]["source"]))).name.lower().removesuffix("-instruct")
    if name in llm.MODELS and hidden not in (None, llm.MODELS[name].hidden_size):
        raise UserError(
            f"llm_hidden_dim={hidden}: {name} has {llm.MODELS[name].hidden_size}", "fix it, or leave it out"
        )
    raw |= {"name": path.stem.lower().replace("_", "-"), "description": f"the settings of {path.name}"}
    raw["model"]["name"] = name if name in llm.MODELS else raw["model"]["name"]
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": "accuracy_after"}
    target = _target(given, notes)
    return Imported(settled(raw), notes, target)


def _particular(key: str, given: dict[str, Any], raw: dict[str, Any], notes: dict[str, str]) -> None:
    """Keys that are no key of ours: what to type instead, or why nothing has to be done."""
    value = given[key]
    if key == "mixed_precision":
        precision = _PRECISIONS.get(str(value).lower()) if isinstance(value, bool | str) else None
        if precision is None:
            raise UserError(
                f"mixed_precision={value!r} is no precision", "write true (which is fp16), false, no, fp16 or bf16"
            )
        raw["model"]["mixed_precision"] = precision
        better = (
            "; bf16 is the better choice on A100 and newer: type model.mixed_precision=bf16"
            if precision == "fp16"
            else ""
        )
        notes[key] = f"{_NOTHING}model.mixed_precision is {precision}{better}"
    elif key == "projector_num_layers" and value != 2:
        raise UserError(f"projector_num_layers={value}: the projector has two layers", "set it to 2")
    elif key in _DERIVED:
        notes[key] = _NOTHING + _DERIVED[key]
    elif key in _TYPED:
        notes[key] = _TYPED[key](value)
    elif key == "num_gpus":
        notes[key] = _gpus(value, bool(given.get("cluster")))
    elif key == "save_every_n_epochs":
        notes[key] = _saving(value, given)
    else:
        raise UserError(
            f"{key} is no key of phase2_cluster.yaml that we know", "take it out; `podwright recipes show` lists ours"
        )


def _runs(value: Any) -> str:
    return f"all that a run leaves, checkpoints too, lies in its directory; to have runs in there, type --runs {shlex.quote(str(value))}"


def _experiment(value: Any) -> str:
    if not value:
        return f"{_NOTHING}MLflow's experiment is named after the recipe"
    slug = re.sub(r"[^a-z0-9.-]+", "-", str(value).lower()).strip("-.") or "phase2"
    return f"MLflow's experiment is named after the recipe; type name={slug}"


def _tracking(value: Any) -> str:
    if not value:
        return f"{_NOTHING}MLflow's data lies beside the runs, and `podwright ui` opens it"
    return f"nothing is sent to {value}: MLflow's data lies beside the runs; to look at it, type podwright ui"


def _device(value: Any) -> str:
    device, _, number = str(value).partition(":")
    if device == "cpu":
        return "a run takes GPUs where there are any; for the CPU type --on cpu-1"
    if number:
        return f"a run takes all GPUs that it sees; for this one type CUDA_VISIBLE_DEVICES={number} before podwright"
    return f"{_NOTHING}a run takes GPUs where there are any"


def _gpus(value: Any, cluster: bool) -> str:
    if cluster:
        return "a target says how many: type the line for the cluster below"
    if not _is_count(value):
        return f"{_NOTHING}a run takes all GPUs that it sees"
    visible = ",".join(map(str, range(value)))
    return (
        f"a run takes all GPUs that it sees; for {value} of more type CUDA_VISIBLE_DEVICES={visible} before podwright"
    )


def _saving(every: Any, given: dict[str, Any]) -> str:
    if not _is_count(every):
        raise UserError(f"save_every_n_epochs={every!r} is no number of epochs", "write 1 or more")
    if every == 1:
        return f"{_NOTHING}a checkpoint is written at the end of every epoch"
    size = [given.get("batch_size", 16), given.get("gradient_accumulation_steps", 1), given.get("num_gpus")]
    counts = [_lines(Path(str(given.get("data_dir"))).expanduser() / name) for name in ("train.jsonl", "val.jsonl")]
    if all(counts) and all(map(_is_count, size)):  # without val.jsonl, some lines of the other are held out
        steps = every * math.ceil(counts[0] / math.prod(size))
        return f"a checkpoint is written at the end of every epoch; for every {every} epochs type checkpoint.every_n_steps={steps}"
    epoch = "lines / (batch_size x gradient_accumulation_steps x GPUs)"
    advice = f"type checkpoint.every_n_steps=N, where N is {every} x {epoch}"
    return f"a checkpoint is written at the end of every epoch; for every {every} {advice}"


def _profiling(value: Any) -> str:
    if not value:
        return f"{_NOTHING}there is none"
    return f"{_NOTHING}--profile traces kinds that run in JAX, which this is not; the report tells how busy the GPUs were without it"


_TYPED: dict[str, Callable[[Any], str]] = {
    "checkpoint_dir": _runs,
    "output_dir": _runs,
    "mlflow_experiment_name": _experiment,
    "mlflow_tracking_uri": _tracking,
    "device": _device,
}
_TYPED_LAUNCHED: dict[str, Callable[[Any], str]] = {
    "use_slurm": lambda value: (
        "type --on cluster, the target below" if value else f"{_NOTHING}a run is on SLURM with --on alone"
    ),
    "slurm_job_name": lambda value: f"a job is named after its run: type --name {shlex.quote(str(value))}",
    "enable_profiling": _profiling,
    "profile_steps": lambda _: f"{_NOTHING}--profile traces kinds that run in JAX, which this is not",
}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _lines(path: Path) -> int:
    """0 where there is no such file to be read."""
    try:
        return sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
    except OSError:
        return 0


def _target(given: dict[str, Any], notes: dict[str, str]) -> list[str]:
    cluster = given.get("cluster") or {}
    if not isinstance(cluster, dict):
        raise UserError(
            f"cluster={cluster!r}: cluster is a section", "write cluster:, and indented below it slurm_partition: gpu"
        )
    words = [f"{ours}={cluster[key]}" for key, ours in _SLURM.items() if key in cluster]
    for key, value in cluster.items():
        if key in _SLURM:
            notes[f"cluster.{key}"] = f"{_SLURM[key]} of a target: type the line for the cluster below"
        elif key in _LAUNCHED:
            notes[f"cluster.{key}"] = _NOTHING + _LAUNCHED[key]
        elif key in _TYPED_LAUNCHED:
            notes[f"cluster.{key}"] = _TYPED_LAUNCHED[key](value)
        else:
            raise UserError(f"cluster.{key} is no key of phase2_cluster.yaml that we know", "take it out")
    if _is_count(gpus := cluster.get("slurm_gpus_per_node", given.get("num_gpus"))):
        words += [] if "slurm_gpus_per_node" in cluster else [f"gpus_per_node={gpus}"]
        words.append(f"tasks_per_node={gpus}")
    return ["podwright", "target", "add", "cluster", "kind=slurm", *words] if cluster else []
