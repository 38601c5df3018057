"""Keys of a recipe that have no effect because of another key's value. A plan says so where their value is not the default."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from podwright.plan.findings import Finding
from podwright.recipe import corpus
from podwright.recipe.kinds import Recipe

_NO_FILE = ("random", "pretrained")  # values of keys of weights


class UnusedKeys(NamedTuple):
    keys: tuple[str, ...]
    other: str
    """the key because of whose value they have no effect"""
    applies: Callable[[Any], bool]
    """to that value"""
    instead: str
    """what to type so that they have one"""
    weights: bool = False
    """whether they name weights: with a file that is not read, a run would not use the model that was meant"""


def check(recipe: Recipe, rules: Sequence[UnusedKeys]) -> list[Finding]:
    """An error for a file of weights that would not be read, a warning for every other value that has no effect."""
    findings = []
    for rule in rules:
        other, _ = _value_and_default(recipe, rule.other)
        for key in rule.keys if rule.applies(other) else ():
            value, default = _value_and_default(recipe, key)
            if value == default:
                continue
            shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else value
            if rule.weights and value not in _NO_FILE:
                what = f"{key}={shown} would not be read with {rule.other}={other}, which has random weights"
                findings.append(Finding("model", "error", what, f"type {rule.instead}, or {key}=random", "no-effect"))
            else:
                what = f"{key}={shown} has no effect with {rule.other}={other}"
                part = "data" if key.startswith("data.") else "model"
                findings.append(Finding(part, "warning", what, f"type {rule.instead}, or leave {key} out", "no-effect"))
    return findings


def _value_and_default(recipe: Recipe, key: str) -> tuple[Any, Any]:
    name, _, field = key.partition(".")
    section = getattr(recipe, name)
    return getattr(section, field), type(section).model_fields[field].default


def _is(value: object) -> Callable[[object], bool]:
    return lambda other: other == value


_CNN14, _TIMM = "encoders.audio=cnn14", "encoders.image=mobilenetv4_conv_small"
_ENCODERS = (
    UnusedKeys(("encoders.image_weights",), "encoders.image", _is("tiny"), _TIMM, weights=True),
    UnusedKeys(("encoders.audio_weights",), "encoders.audio", _is("tiny"), _CNN14, weights=True),
    UnusedKeys(("encoders.audio_pooling",), "encoders.audio", _is("tiny"), _CNN14),
)
_ADAPTERS = ("model.lora_alpha", "model.lora_dropout", "model.lora_target_modules", "optimizer.lora_factor")
_RATIO = ("grpo.epsilon", "grpo.epsilon_high")
_OF_MUON = ("optimizer.momentum", "optimizer.muon_weight_decay")

GRPO = (
    UnusedKeys(("model.lora_alpha",), "model.lora_rank", _is(0), "model.lora_rank=16"),
    UnusedKeys(("grpo.kl", "grpo.offload_reference"), "grpo.beta", _is(0), "grpo.beta=0.04"),
    UnusedKeys(("grpo.offload_reference",), "model.lora_rank", bool, "model.lora_rank=0"),
    # Each ratio is then that of the policy to itself, which is 1 (train/grpo/loss.py, total).
    UnusedKeys(_RATIO, "grpo.num_iterations", _is(1), "grpo.num_iterations=2"),
)
PRETRAIN = (
    UnusedKeys(_OF_MUON, "optimizer.name", _is("adamw"), "optimizer.name=muon"),
    UnusedKeys(("data.eos_id",), "data.source", corpus.is_text, "data.source=DIRECTORY of token shards"),
)
MULTIMODAL = (*_ENCODERS, UnusedKeys(_ADAPTERS, "model.lora_rank", _is(0), "model.lora_rank=16"))
CONTRASTIVE = (
    *_ENCODERS,
    UnusedKeys(("text_encoder.source",), "text_encoder.name", _is("tiny"), "text_encoder.name=minilm", weights=True),
    UnusedKeys(("text_encoder.pooling",), "text_encoder.name", _is("tiny"), "text_encoder.name=minilm"),
)
