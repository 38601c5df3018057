"""Settings of PurrSight's Phase 1 and 2 as a recipe, and as the words to type for a target where they are those of a cluster.

What the table of keys cannot say is here: rates, warm-up and held-out examples, whose meaning depends on other keys or on the data.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.errors import UserError, expanded
from podwright.importers import purrsight_files
from podwright.importers.key_table import NOTHING, Settings, count, number
from podwright.importers.purrsight_files import PurrsightSettings, table
from podwright.recipe import llm
from podwright.recipe.load import Raw, load, settled
from podwright.recipe.schema import recipe_name

_BASES = {1: "phase1-aligner", 2: "phase2-qwen2.5-0.5b-cluster"}
_SECONDS = 2.56  # of a sound: 256 frames


def converted(path: Path, content: Settings, phase: int | None = None) -> tuple[Raw, dict[str, str], list[str]]:
    """(recipe, notes, target) of the settings of `phase`; of the last one that the file has, where that is None."""
    settings = purrsight_files.settings(path, content, phase)
    raw = load(_BASES[settings.phase]).model_dump(mode="json")
    notes = _as_purrsight(path, settings.phase, raw)
    for flat, key in settings.keys.items():
        notes[key] = _note(flat, settings, raw)
    for other in settings.others:
        notes[f"phase{other}"] = f"type podwright recipe import {shlex.quote(str(path))} --phase {other}"
    if settings.phase == 2:
        _name_model(settings.values, raw)
    tail = f"-phase{settings.phase}" if settings.others else ""
    name = (recipe_name(path.stem) or "purrsight") + tail
    raw |= {"name": name, "description": f"the settings of phase {settings.phase} in {path.name}"}
    metric = {1: "recall_at_1_after", 2: "accuracy_after"}[settings.phase]
    raw["expect"] = {"hardware": "", "time": "not measured", "metric": metric}
    return settled(raw), notes, _target(settings.values)


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
        notes["system prompt"] = f"{NOTHING}data.system_prompt is that of {root}/purrsight/LLM/prompts.py"
        return notes
    notes["system prompt"] = (
        "PurrSight's is not in this file, and the recipe has Podwright's own in its place; import the file where it lies in a checkout "
        "of PurrSight, or type data.system_prompt='...' with the SYSTEM_PROMPT_V3 of purrsight/LLM/prompts.py"
    )
    return notes


def _name_model(values: Settings, raw: Raw) -> None:
    hidden = values.get("llm_hidden_dim")
    name = Path(str(raw["model"]["source"])).name.lower().removesuffix("-instruct")
    if name in llm.MODELS:
        if hidden not in (None, llm.MODELS[name].hidden_size):
            what = f"llm_hidden_dim={hidden}: {name} has {llm.MODELS[name].hidden_size}"
            raise UserError(what, "fix it, or leave it out", "dimensions-contradict")
        raw["model"]["name"] = name
    if values.get("lora_enabled") is False:
        if values.get("freeze_llm") is True:
            what = "lora.enabled=false with freeze_llm=true: the projector alone is not trained"
            raise UserError(what, "set one of them otherwise", "no-counterpart")
        raw["model"]["lora_rank"] = 0


def _note(flat: str, settings: PurrsightSettings, raw: Raw) -> str:
    """What became of a key; its value is in `raw` then, where it has a counterpart."""
    key, value = settings.keys[flat], settings.values[flat]
    if convert := _PARTICULAR.get(flat):
        return convert(key, settings.values, raw)
    note = table().note(flat, value, raw, key)
    if note is None:
        raise UserError(
            f"{key} is no known key of phase2_cluster.yaml",
            "take it out; `podwright recipes show` lists ours",
            "unknown-key",
        )
    return note


def _factor(name: str) -> Callable[[str, Settings, Raw], str]:
    """A rate there is a factor of the learning rate here."""

    def convert(key: str, values: Settings, raw: Raw) -> str:
        rate = number("learning_rate", values.get("learning_rate", raw["optimizer"]["learning_rate"]), 1e-12)
        value = number(key, values[f"{name.partition('_')[0]}_lr"], 1e-12)
        raw["optimizer"][name] = value / rate
        return f"optimizer.{name} is {value / rate:g}, {value:g} / {rate:g}"

    return convert


def _steps_per_epoch(values: Settings, gpus: Any) -> int | None:
    """None where the lines to train on are not here, and where a size is no number."""
    place = expanded(str(values.get("data_dir")))
    lines = _lines(place if place.suffix == ".jsonl" else place / "train.jsonl")
    sizes = [values.get("batch_size", 16), values.get("gradient_accumulation_steps", 1), gpus]
    if not lines or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return math.ceil(lines / math.prod(sizes))


def _warmup(key: str, values: Settings, raw: Raw) -> str:
    ratio = number(key, values["warmup_ratio"], most=1)
    limit = "; warm-up lasts at most a tenth of all steps" if ratio > 0.1 else ""
    steps = _steps_per_epoch(values, values.get("num_gpus", 1))
    if steps is not None and "num_epochs" in values:
        raw["optimizer"]["warmup_steps"] = round(ratio * steps * count("num_epochs", values["num_epochs"]))
        return f"optimizer.warmup_steps is {raw['optimizer']['warmup_steps']}, of one GPU{limit}"
    epoch = "epochs x lines / (batch_size x gradient_accumulation_steps x GPUs)"
    kept = raw["optimizer"]["warmup_steps"]
    return f"optimizer.warmup_steps is {kept}, for the lines are not here; type optimizer.warmup_steps=N, where N is {ratio} x {epoch}{limit}"


def _held_out(key: str, values: Settings, raw: Raw) -> str:
    share = number(key, values["val_split"], most=1)
    what = "the last lines are held out where there is no val.jsonl, a tenth and 200 at most"
    return f"{what}; for {share} of them type data.num_test=N, where N is {share} x lines"


def _saving(key: str, values: Settings, raw: Raw) -> str:
    every = count(key, values["save_every_n_epochs"])
    if every == 1:
        return f"{NOTHING}a checkpoint is written at the end of every epoch"
    steps = f"N, where N is {every} x the steps of an epoch"
    return f"a checkpoint is written at the end of every epoch; for every {every} epochs type checkpoint.every_n_steps={steps}"


_PARTICULAR: dict[str, Callable[[str, Settings, Raw], str]] = {
    "projector_lr": _factor("projector_factor"),
    "lora_lr": _factor("lora_factor"),
    "warmup_ratio": _warmup,
    "val_split": _held_out,
    "save_every_n_epochs": _saving,
}


def _lines(path: Path) -> int:
    """0 where there is no such file to be read."""
    try:
        return sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
    except OSError:
        return 0


def _target(values: Settings) -> list[str]:
    """The words that add the cluster of a file as a target; [] where it names none."""
    if not any(key.startswith("cluster.") for key in values):
        return []
    words = [f"{ours}={values[key]}" for key, ours in table().target.items() if key in values]
    gpus = values.get("num_gpus")
    if isinstance(gpus, int) and gpus is not True and gpus > 0 and "cluster.slurm_gpus_per_node" not in values:
        words.append(f"gpus_per_node={gpus}")
    return ["podwright", "target", "add", "cluster", "kind=slurm", *words]
