"""PurrSight's configuration files, in either of their layouts, as one: flat names of keys, as phase2_cluster.yaml has them.

train_config.yaml and phase2_example.yaml have sections (common, phase1, phase2) and other names. What else an import reads lies
beside the file, where that is part of a checkout of PurrSight: its system prompt and the weights of its encoders.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

from podwright.errors import UserError

IMPORTABLE = "give PurrSight's phase2_cluster.yaml, phase2_example.yaml or train_config.yaml, with lines such as 'llm_model_name: models/Qwen2.5-0.5B-Instruct'"
_PROMPTS = Path("purrsight", "LLM", "prompts.py")
_PROMPT = "SYSTEM_PROMPT_V3"
_WEIGHTS = {
    "image_weights": ("models/mobilenetv4/model.safetensors", "models/mobilenetv4/pytorch_model.bin"),
    "audio_weights": ("models/panns/cnn14_light_16k.pth",),
}
_COMMON = {
    "seed": "seed",
    "project_name": "project_name",
    "output_dir": "output_dir",
    "device": "device",
    "log_every": "log_every_n_steps",
    "save_every": "save_every_n_epochs",
}
_BOTH = {
    "experiment_name": "mlflow_experiment_name",
    "data_path": "data_dir",
    "batch_size": "batch_size",
    "epochs": "num_epochs",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "num_workers": "num_workers",
}
_PHASES = {
    1: _BOTH
    | {
        "warmup_steps": "warmup_steps",
        "val_split": "val_split",
        "use_preprocessed": "use_preprocessed",
        "preprocessed_dir": "preprocessed_dir",
        "input_dim": "input_dim",
        "output_dim": "aligner_dim",
        "use_temperature_scaling": "use_temperature_scaling",
    },
    2: _BOTH
    | {
        "llm_model_path": "llm_model_name",
        "adapter_path": "phase1_checkpoint_path",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "projector_lr": "projector_lr",
        "lora_lr": "lora_lr",
        "warmup_ratio": "warmup_ratio",
        "gradient_clip_val": "gradient_clip_val",
        "max_length": "max_text_length",
        "projector.hidden_dim": "projector_hidden_dim",
        "projector.num_tokens": "projector_num_tokens",
        "lora.enabled": "lora_enabled",
        "lora.r": "lora_r",
        "lora.lora_alpha": "lora_alpha",
        "lora.lora_dropout": "lora_dropout",
        "lora.bias": "lora_bias",
        "lora.task_type": "lora_task_type",
        "lora.target_modules": "lora_target_modules",
        "freeze_encoders": "freeze_encoders",
        "freeze_projector": "freeze_projector",
        "freeze_llm": "freeze_llm",
    },
}


@dataclasses.dataclass(frozen=True)
class PurrsightSettings:
    """The settings of one phase in a file of PurrSight."""

    phase: int
    values: dict[str, Any]
    """by flat name"""
    keys: dict[str, str]
    """flat name -> the key as the file has it"""
    others: tuple[int, ...] = ()
    """further phases that the file has settings for"""


def recognised(raw: dict[Any, Any]) -> bool:
    """Whether a file has a key of PurrSight's configuration."""
    return any(key in raw for key in ("llm_model_name", "phase1_checkpoint_path", *(f"phase{n}" for n in _PHASES)))


def settings(path: Path, given: dict[str, Any], phase: int | None) -> PurrsightSettings:
    """Of `phase`; of the last one that the file has, where that is None."""
    listed = tuple(n for n in _PHASES if f"phase{n}" in given)
    if not listed:
        if "llm_model_name" not in given and "phase1_checkpoint_path" not in given:
            raise UserError(f"{path} is no phase2_cluster.yaml: it has no llm_model_name", IMPORTABLE)
        if phase == 1:
            raise UserError(f"{path} has no settings of phase 1", "leave --phase 1 out")
        return PurrsightSettings(2, given, {key: key for key in given})
    chosen = phase or listed[-1]
    if chosen not in listed:
        raise UserError(f"{path} has no section phase{chosen}", f"type --phase {listed[0]}")
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for section, known in (("common", _COMMON), (f"phase{chosen}", _PHASES[chosen])):
        for key, value in _leaves(section, given.get(section) or {}, known).items():
            values[known[key]], keys[known[key]] = value, f"{section}.{key}"
    for section in given.keys() - {"common", *(f"phase{n}" for n in _PHASES)}:
        raise UserError(f"{section} is no known section of {path.name}", "take it out")
    return PurrsightSettings(chosen, values, keys, tuple(n for n in listed if n != chosen))


def _leaves(section: str, given: Any, known: dict[str, str]) -> dict[str, Any]:
    """Dotted keys of a section; what is a section in `known` is one here."""
    if not isinstance(given, dict):
        raise UserError(
            f"{section}={given!r}: {section} is a section", f"write {section}:, and its keys indented below it"
        )
    leaves: dict[str, Any] = {}
    for key, value in given.items():
        if any(name.startswith(f"{key}.") for name in known):
            below = {name.removeprefix(f"{key}."): flat for name, flat in known.items() if name.startswith(f"{key}.")}
            leaves |= {f"{key}.{name}": leaf for name, leaf in _leaves(f"{section}.{key}", value or {}, below).items()}
        elif key in known:
            leaves[key] = value
        else:
            raise UserError(
                f"{section}.{key} is no known key of PurrSight's files",
                "take it out; `podwright recipes show` lists ours",
            )
    return leaves


def checkout(path: Path) -> Path | None:
    """The root of the checkout of PurrSight in which a file lies."""
    return next((folder for folder in path.resolve().parents if (folder / _PROMPTS).is_file()), None)


def system_prompt(root: Path) -> str | None:
    """What a checkout's own prompts.py assigns; nothing of it is executed."""
    try:
        tree = ast.parse((root / _PROMPTS).read_text())
    except (OSError, ValueError, SyntaxError):
        return None
    for node in tree.body:
        names = [t.id for t in node.targets if isinstance(t, ast.Name)] if isinstance(node, ast.Assign) else []
        if _PROMPT in names and isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return node.value.value if isinstance(node.value.value, str) else None
    return None


def encoder_weights(root: Path) -> dict[str, str]:
    """Key of `encoders` -> its file of weights in the checkout, relative to the root; without those that are not there."""
    present = {key: [name for name in names if (root / name).is_file()] for key, names in _WEIGHTS.items()}
    return {key: names[0] for key, names in present.items() if names}
