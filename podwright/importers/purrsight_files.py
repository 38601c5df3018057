"""PurrSight's configuration files, in either of their layouts, as one: flat names of keys, as phase2_cluster.yaml has them.

train_config.yaml and phase2_example.yaml have sections (common, phase1, phase2) and other names. What else an import reads is
next to the file, where that is part of a checkout of PurrSight: its system prompt and the weights of its encoders.
"""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.importers import key_table
from podwright.importers.key_table import KeyTable, Settings

IMPORTABLE = "give PurrSight's phase2_cluster.yaml or train_config.yaml, with lines such as 'llm_model_name: models/Qwen2.5-0.5B-Instruct'"
_PHASES = (1, 2)
_PROMPTS = Path("purrsight", "LLM", "prompts.py")
_PROMPT = "SYSTEM_PROMPT_V3"
_WEIGHTS = {
    "image_weights": ("models/mobilenetv4/model.safetensors", "models/mobilenetv4/pytorch_model.bin"),
    "audio_weights": ("models/panns/cnn14_light_16k.pth",),
}


def table() -> KeyTable:
    return key_table.read("purrsight")


@dataclasses.dataclass(frozen=True)
class PurrsightSettings:
    """The settings of one phase in a file of PurrSight."""

    phase: int
    values: Settings
    """by flat name; those of the section cluster as cluster.NAME"""
    keys: dict[str, str]
    """flat name -> the key as the file has it"""
    others: tuple[int, ...] = ()
    """further phases that the file has settings for"""


def recognised(raw: dict[Any, Any]) -> bool:
    """Whether a file has a key of PurrSight's configuration."""
    return any(key in raw for key in ("llm_model_name", "phase1_checkpoint_path", "phase1", "phase2"))


def settings(path: Path, raw: dict[Any, Any], phase: int | None) -> PurrsightSettings:
    """Settings of `phase`, or of the last one that the file has, where that is None. UserError for a key that PurrSight does not have."""
    listed = tuple(n for n in _PHASES if f"phase{n}" in raw)
    if not listed:
        return _flat(path, raw, phase)
    chosen = phase or listed[-1]
    if chosen not in listed:
        raise UserError(f"{path} has no section phase{chosen}", f"type --phase {listed[0]}", "no-such-section")
    values: Settings = {}
    keys: dict[str, str] = {}
    for section in ("common", f"phase{chosen}"):
        names = table().sections[section]
        for key, value in _leaves(section, raw.get(section) or {}, names).items():
            values[names[key]], keys[names[key]] = value, f"{section}.{key}"
    for section in raw.keys() - table().sections.keys():
        raise UserError(f"{section} is no known section of {path.name}", "take it out", "unknown-key")
    return PurrsightSettings(chosen, values, keys, tuple(n for n in listed if n != chosen))


def _flat(path: Path, raw: dict[Any, Any], phase: int | None) -> PurrsightSettings:
    if not recognised(raw):
        raise UserError(f"{path} is no phase2_cluster.yaml: it has no llm_model_name", IMPORTABLE, "no-such-section")
    if phase == 1:
        raise UserError(f"{path} has no settings of phase 1", "leave --phase 1 out", "no-such-section")
    cluster = _section("cluster", raw.get("cluster") or {})
    values = {key: value for key, value in raw.items() if key != "cluster"}
    values |= {f"cluster.{key}": value for key, value in cluster.items()}
    return PurrsightSettings(2, values, {key: key for key in values})


def _section(name: str, given: Any) -> Settings:
    if not isinstance(given, dict):
        fix = f"write {name}:, and its keys indented below it"
        raise UserError(f"{name}={given!r}: {name} is a section", fix, "not-a-section")
    return given


def _leaves(section: str, given: Any, names: dict[str, str]) -> Settings:
    """Dotted keys of a section; what is a section in `names` is one here."""
    leaves: Settings = {}
    for key, value in _section(section, given).items():
        below = {name.removeprefix(f"{key}."): flat for name, flat in names.items() if name.startswith(f"{key}.")}
        if below:
            leaves |= {f"{key}.{name}": leaf for name, leaf in _leaves(f"{section}.{key}", value or {}, below).items()}
        elif key in names:
            leaves[key] = value
        else:
            fix = "take it out; `podwright recipes show` lists ours"
            raise UserError(f"{section}.{key} is no known key of PurrSight's files", fix, "unknown-key")
    return leaves


def checkout(path: Path) -> Path | None:
    """The root of the checkout of PurrSight in which a file lies."""
    for folder in path.resolve().parents:
        if (folder / _PROMPTS).is_file():
            return folder
    return None


def system_prompt(root: Path) -> str | None:
    """What a checkout's own prompts.py assigns; nothing of it is executed."""
    try:
        tree = ast.parse((root / _PROMPTS).read_text())
    except (OSError, ValueError, SyntaxError):
        return None
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if _PROMPT in names and isinstance(node.value, ast.Constant):
            return node.value.value if isinstance(node.value.value, str) else None
    return None


def encoder_weights(root: Path) -> dict[str, str]:
    """Key of `encoders` -> its file of weights in the checkout, relative to the root; without those that are not there."""
    weights = {}
    for key, names in _WEIGHTS.items():
        present = [name for name in names if (root / name).is_file()]
        if present:
            weights[key] = present[0]
    return weights
