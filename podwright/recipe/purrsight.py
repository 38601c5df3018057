"""PurrsightSettings of PurrSight's Phase 1 and 2 as a recipe of ours: what becomes of each key of its files.

PurrsightSettings of a cluster do not belong in a recipe: they become the words to type for a target.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError, expanded
from podwright.recipe import llm, purrsight_files
from podwright.recipe.load import Raw, load, settled
from podwright.recipe.purrsight_files import PurrsightSettings

_BASES = {1: "phase1-aligner", 2: "phase2-qwen2.5-0.5b-cluster"}
_SECONDS = 2.56  # of a sound: 256 frames
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
    "projector_num_tokens": "projector.num_soft_tokens",
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
_SAME_IN_PHASE_1 = {
    "aligner_dim",
    "data_dir",
    "num_workers",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "warmup_steps",
}
_SAME_IN_PHASE_1 |= {"num_epochs", "seed"}
_AT_LEAST_ONE = {"num_workers"}  # 0 there: no process besides the first
_FACTORS = {"projector_lr": "projector_factor", "lora_lr": "lora_factor"}
_FIXED = {
    "lora_bias": "none",
    "lora_task_type": "CAUSAL_LM",
    "freeze_encoders": True,
    "freeze_projector": False,
    "use_temperature_scaling": True,
}
_NOTHING = "nothing to do: "
_DERIVED = {
    "log_every_n_steps": "every step is written down",
    "persistent_workers": "files are decoded once, before the first step, and no workers are needed after that",
    "pin_memory": "batches for GPUs are pinned, which changes no result",
    "distributed_backend": "NCCL on GPUs, gloo on CPUs",
    "llm_hidden_dim": "it is the model's own",
    "projector_num_layers": "it has two",
    "project_name": "a run has the name of its recipe",
    "lora_enabled": "model.lora_rank says so",
    "freeze_llm": "with adapters the model's own weights are frozen, without them all are trained",
    "input_dim": "widths are those of the encoders",
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
    "timeout_minutes": "a process without output for ten minutes is ended; there is no setting for it here",
}
_PRECISIONS = {"true": "fp16", "false": "no", "no": "no", "bf16": "bf16", "fp16": "fp16"}


def converted(
    path: Path, content: dict[str, Any], phase: int | None = None
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """(recipe, notes, target) of the settings of `phase`; of the last one that the file has, where that is None."""
    settings = purrsight_files.settings(path, content, phase)
    given, keys = settings.values, settings.keys
    raw = load(_BASES[settings.phase]).model_dump(mode="json")
    same = {flat: key for flat, key in _SAME.items() if settings.phase == 2 or flat in _SAME_IN_PHASE_1}
    notes = _as_purrsight(path, settings.phase, raw)
    for flat, value in given.items():
        if flat in _AT_LEAST_ONE and value == 0 and not isinstance(value, bool):
            notes[keys[flat]] = f"{_NOTHING}{same[flat]} is 1: files are decoded one after the other"
            _set(raw, same[flat], 1)
        elif flat == "phase1_checkpoint_path" and value is None:
            notes[keys[flat]] = (
                "there is no aligner, so that features mean nothing; type aligner.source=FILE, the aligner.pt of Phase 1"
            )
            _set(raw, same[flat], "random")
        elif flat in same:
            _set(raw, same[flat], value)
        elif flat != "cluster":
            _particular(flat, settings, raw, notes)
    for other in settings.others:
        notes[f"phase{other}"] = f"type podwright recipe import {shlex.quote(str(path))} --phase {other}"
    if settings.phase == 2:
        _name_model(given, raw)
    tail = f"-phase{settings.phase}" if settings.others else ""
    name = path.stem.lower().replace("_", "-") + tail
    raw |= {"name": name, "description": f"the settings of phase {settings.phase} in {path.name}"}
    metric = {1: "recall_at_1_after", 2: "accuracy_after"}[settings.phase]
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": metric}
    target = _target(given, notes)
    return settled(raw), notes, target


def _set(raw: Raw, key: str, value: Any) -> None:
    *section, last = key.split(".")
    (raw[section[0]] if section else raw)[last] = value


def _as_purrsight(path: Path, phase: int, raw: Raw) -> dict[str, str]:
    """What PurrSight does and no file of settings says, written into `raw`; and what there is to say of it."""
    notes: dict[str, str] = {}
    raw["encoders"] |= dict.fromkeys(("image_preprocessing", "audio_preprocessing", "audio_pooling"), "purrsight")
    raw["encoders"]["audio_seconds"] = _SECONDS
    root = purrsight_files.checkout(path)
    if root is not None:
        raw["encoders"] |= purrsight_files.encoder_weights(root)
        if root != Path.cwd():
            notes["paths"] = (
                f"they are relative to PurrSight's checkout; before you run, type cd {shlex.quote(str(root))}"
            )
    if phase == 1:
        raw["data"]["root"] = "."  # paths in its lines are relative to where it is started
        return notes
    prompt = purrsight_files.system_prompt(root) if root is not None else None
    if prompt is not None:
        raw["data"]["system_prompt"] = prompt
        notes["system prompt"] = f"{_NOTHING}data.system_prompt is that of {root}/purrsight/LLM/prompts.py"
        return notes
    notes["system prompt"] = (
        "PurrSight's is not in this file, and the recipe has Podwright's own in its place; import the file where it lies in a checkout "
        "of PurrSight, or type data.system_prompt='...' with the SYSTEM_PROMPT_V3 of purrsight/LLM/prompts.py"
    )
    return notes


def _name_model(given: dict[str, Any], raw: Raw) -> None:
    hidden = given.get("llm_hidden_dim")
    name = Path(str(given.get("llm_model_name", raw["model"]["source"]))).name.lower().removesuffix("-instruct")
    if name in llm.MODELS and hidden not in (None, llm.MODELS[name].hidden_size):
        raise UserError(
            f"llm_hidden_dim={hidden}: {name} has {llm.MODELS[name].hidden_size}", "fix it, or leave it out"
        )
    raw["model"]["name"] = name if name in llm.MODELS else raw["model"]["name"]
    if given.get("lora_enabled") is False:
        if given.get("freeze_llm") is True:
            raise UserError(
                "lora.enabled=false with freeze_llm=true: the projector alone is not trained",
                "set one of them otherwise",
            )
        raw["model"]["lora_rank"] = 0


def _particular(flat: str, settings: PurrsightSettings, raw: Raw, notes: dict[str, str]) -> None:
    """Keys that are no key of ours: what to type instead, or why nothing has to be done."""
    given, key = settings.values, settings.keys[flat]
    value = given[flat]
    if flat == "mixed_precision":
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
    elif flat == "projector_num_layers" and value != 2:
        raise UserError(f"projector_num_layers={value}: the projector has two layers", "set it to 2")
    elif flat in _FIXED:
        if value != _FIXED[flat]:
            raise UserError(
                f"{key}={value!r} is not implemented", f"set it to {str(_FIXED[flat]).lower()}, or leave it out"
            )
        notes[key] = f"{_NOTHING}it is so here"
    elif flat in _DERIVED:
        notes[key] = _NOTHING + _DERIVED[flat]
    elif flat in _FACTORS:
        _factor(flat, settings, raw, notes)
    elif flat == "warmup_ratio":
        notes[key] = _warmup(settings, raw)
    elif flat == "val_split":
        notes[key] = _held_out(value, given)
    elif flat in _TYPED:
        notes[key] = _TYPED[flat](value)
    elif flat == "num_gpus":
        notes[key] = _gpus(value, bool(given.get("cluster")))
    elif flat == "save_every_n_epochs":
        notes[key] = _saving(value, settings)
    else:
        raise UserError(
            f"{key} is no known key of phase2_cluster.yaml", "take it out; `podwright recipes show` lists ours"
        )


def _factor(flat: str, settings: PurrsightSettings, raw: Raw, notes: dict[str, str]) -> None:
    rate = settings.values.get("learning_rate", raw["optimizer"]["learning_rate"])
    value, key = settings.values[flat], settings.keys[flat]
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and x > 0 for x in (value, rate)):
        raise UserError(f"{key}={value!r} beside learning_rate={rate!r}: rates are numbers above 0", "write 2.0e-4")
    raw["optimizer"][_FACTORS[flat]] = value / rate
    notes[key] = f"{_NOTHING}optimizer.{_FACTORS[flat]} is {value / rate:g}, {value:g} / {rate:g}"


def _steps_per_epoch(given: dict[str, Any]) -> int | None:
    """Of the GPUs that the file names (one, where it names none), where the lines to train on are here."""
    size = [given.get("batch_size", 16), given.get("gradient_accumulation_steps", 1), given.get("num_gpus", 1)]
    place = expanded(str(given.get("data_dir")))
    lines = _lines(place if place.suffix == ".jsonl" else place / "train.jsonl")
    if not lines or not all(map(_is_count, size)):
        return None
    return math.ceil(lines / math.prod(size))


def _warmup(settings: PurrsightSettings, raw: Raw) -> str:
    ratio, given = settings.values["warmup_ratio"], settings.values
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise UserError(f"{settings.keys['warmup_ratio']}={ratio!r} is no share of the steps", "write 0.1")
    limit = "; warm-up lasts at most a tenth of all steps" if ratio > 0.1 else ""
    steps = _steps_per_epoch(given)
    if steps is not None and _is_count(given.get("num_epochs")):
        raw["optimizer"]["warmup_steps"] = round(ratio * steps * given["num_epochs"])
        return f"{_NOTHING}optimizer.warmup_steps is {raw['optimizer']['warmup_steps']}, of one GPU{limit}"
    epoch = "epochs x lines / (batch_size x gradient_accumulation_steps x GPUs)"
    kept = raw["optimizer"]["warmup_steps"]
    return f"optimizer.warmup_steps is {kept}, for the lines are not here; type optimizer.warmup_steps=N, where N is {ratio} x {epoch}{limit}"


def _held_out(share: Any, given: dict[str, Any]) -> str:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise UserError(f"val_split={share!r} is no share of the lines", "write 0.1")
    lines = _lines(expanded(str(given.get("data_dir"))))
    number = str(max(1, round(share * lines))) if lines else f"N, where N is {share} x lines"
    return f"the last lines are held out where there is no val.jsonl, a tenth and 200 at most; for {share} of them type data.num_test={number}"


def _prepared(value: Any) -> str:
    if not value:
        return f"{_NOTHING}files are decoded once, and their features are kept"
    return "its .pt files are not read, but the files that they were made of: type data.source=FILE, lines with text, image and audio"


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
    if device == "mps":
        return "a run takes NVIDIA GPUs or the CPU; for the CPU type --on cpu-1"
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


def _saving(every: Any, settings: PurrsightSettings) -> str:
    given = settings.values
    if not _is_count(every):
        raise UserError(f"{settings.keys['save_every_n_epochs']}={every!r} is no number of epochs", "write 1 or more")
    if every == 1:
        return f"{_NOTHING}a checkpoint is written at the end of every epoch"
    size = [given.get("batch_size", 16), given.get("gradient_accumulation_steps", 1), given.get("num_gpus")]
    counts = [_lines(expanded(str(given.get("data_dir"))) / name) for name in ("train.jsonl", "val.jsonl")]
    if all(counts) and all(map(_is_count, size)):  # without val.jsonl, some lines of the other are held out
        steps = every * math.ceil(counts[0] / math.prod(size))
        return f"a checkpoint is written at the end of every epoch; for every {every} epochs type checkpoint.every_n_steps={steps}"
    epoch = "lines / (batch_size x gradient_accumulation_steps x GPUs)"
    advice = f"type checkpoint.every_n_steps=N, where N is {every} x {epoch}"
    return f"a checkpoint is written at the end of every epoch; for every {every} {advice}"


def _profiling(value: Any) -> str:
    if not value:
        return f"{_NOTHING}there is none"
    return f"{_NOTHING}--profile traces kinds that run in JAX, which this is not; the report shows how busy the GPUs were without it"


_TYPED: dict[str, Callable[[Any], str]] = {
    "checkpoint_dir": _runs,
    "output_dir": _runs,
    "mlflow_experiment_name": _experiment,
    "mlflow_tracking_uri": _tracking,
    "device": _device,
    "use_preprocessed": _prepared,
    "preprocessed_dir": _prepared,
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
            raise UserError(f"cluster.{key} is no known key of phase2_cluster.yaml", "take it out")
    if _is_count(gpus := cluster.get("slurm_gpus_per_node", given.get("num_gpus"))):
        words += [] if "slurm_gpus_per_node" in cluster else [f"gpus_per_node={gpus}"]
        words.append(f"tasks_per_node={gpus}")
    return ["podwright", "target", "add", "cluster", "kind=slurm", *words] if cluster else []
