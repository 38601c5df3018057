"""Dimensions of the models that MaxText knows by name (models.yaml), as far as the formulas of flops.py cover them.

A field has the name of MaxText's key without `base_`.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from podwright.errors import UserError, nearest
from podwright.recipe.maxtext import argument_types
from podwright.recipe.maxtext.arguments import Arguments
from podwright.recipe.yaml_file import facts


class WrongDimension(UserError):
    """A dimension that no model has, or two that contradict each other."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One decoder. 0 stands for "has none"."""

    emb_dim: int
    num_decoder_layers: int
    num_query_heads: int
    num_kv_heads: int
    mlp_dim: int
    vocab_size: int
    head_dim: int = 128
    mlp_matrices: int = 3
    """of an MLP or expert: up and down, and a gate where MaxText's mlp_activations names two"""
    logits_via_embedding: bool = False
    """whether the unembedding is the embedding's matrix"""
    mtp_num_layers: int = 0
    """layers for multi-token prediction (arXiv 2412.19437, section 2.2)"""
    # mixture of experts
    num_experts: int = 1
    num_experts_per_tok: int = 1
    moe_mlp_dim: int = 0
    shared_experts: int = 0
    shared_expert_dim: int = 0
    """0: moe_mlp_dim"""
    first_num_dense_layers: int = 0
    interleave_moe_layer_step: int = 1
    """after the first dense layers every so many layers one has experts"""
    # latent attention (MLA, arXiv 2405.04434, section 2.1); without kv_lora_rank heads are grouped (GQA)
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    # local attention: one layer in `global_every` sees all tokens before it, the others a window that slides or chunks
    global_every: int = 1
    sliding_window_size: int = 0
    chunk_attn_window_size: int = 0
    global_head_dim: int = 0
    """0: head_dim"""
    global_num_kv_heads: int = 0
    """0: num_kv_heads"""
    share_kv_projections: bool = False
    """in global layers the keys are the values"""
    # Gemma 4 E2B and E4B
    num_kv_shared_layers: int = 0
    """at the end, that use keys and values of a layer before them"""
    use_double_wide_mlp: bool = False
    """in those layers"""
    hidden_size_per_layer_input: int = 0
    """width of the embedding that each layer has of its own"""

    @property
    def num_moe_layers(self) -> int:
        if self.num_experts == 1:
            return 0
        return (self.num_decoder_layers - self.first_num_dense_layers) // self.interleave_moe_layer_step

    @property
    def is_mla(self) -> bool:
        return bool(self.kv_lora_rank)


def _read() -> dict[str, Architecture]:
    rows = facts(Path(__file__).with_name("models"))["models"]
    return {name: Architecture(**row) for name, row in rows.items()}


ARCHITECTURES = _read()

WITHOUT_FORMULA = {"wan2.1": "a video diffusion model of MaxDiffusion"}
"""models of public recipes whose FLOPs are not those of a decoder, with what they are"""

_MOST = {
    "num_decoder_layers": 10_000,
    "num_query_heads": 100_000,
    "num_kv_heads": 100_000,
    "num_experts": 100_000,
    "num_experts_per_tok": 100_000,
    "shared_experts": 10_000,
    "mtp_num_layers": 1000,
    "vocab_size": 100_000_000,
    "sliding_window_size": 1_000_000_000,
    "chunk_attn_window_size": 1_000_000_000,
}
"""above what any model has; of the other fields 10 million"""
_WITH_BASE = {"emb_dim", "num_query_heads", "num_kv_heads", "mlp_dim", "moe_mlp_dim", "num_decoder_layers"}
# keys of MaxText that change the layers in ways that no field has
_NOT_COVERED = {
    "global_parameter_scale": "1",
    "decoder_block": "",
    "attention_type": "",
    "mlp_activations": "",
    "use_indexer": "false",
    "engram_layers": "[]",
    "mhc_expansion_rate": "1",
    "use_multimodal": "false",
}
"""with the value that changes nothing"""


def find(arguments: Arguments) -> Architecture:
    """The model of a run of MaxText by `model_name` of its arguments, with the dimensions that other arguments override.

    UserError for a model or a change of its layers that is not known here; WrongDimension for one that no model has.
    """
    name = arguments.get("model_name", "")
    changes = _changes(arguments, ARCHITECTURES.get(name))
    if name in WITHOUT_FORMULA:
        what = f"no formula is known for model_name={name}, {WITHOUT_FORMULA[name]}"
        raise UserError(what, "its FLOPs, memory and step time are measured, not predicted", "unknown-dimensions")
    if name not in ARCHITECTURES:
        raise UserError(f"the dimensions of model_name={name!r} are not known", _known(name), "unknown-dimensions")
    for key, neutral in _NOT_COVERED.items():
        if key in arguments and arguments[key].lower() != neutral:
            what = f"the FLOPs of a model changed by {key}={arguments[key]} are not known"
            raise UserError(what, f"leave arguments.{key} out to predict the model without it", "unknown-dimensions")
    model = dataclasses.replace(ARCHITECTURES[name], **changes)
    _require_consistent(model)
    if model.mtp_num_layers and model.global_every > 1:
        what = f"the FLOPs of mtp_num_layers={model.mtp_num_layers} beside layers of local attention are not known"
        raise UserError(
            what, "leave arguments.mtp_num_layers out to predict the model without it", "unknown-dimensions"
        )
    return model


def key_of(field: str) -> str:
    """MaxText's key of a field of Architecture."""
    return f"base_{field}" if field in _WITH_BASE else field


def _changes(arguments: Arguments, model: Architecture | None) -> dict[str, Any]:
    """Fields that the arguments override. WrongDimension for a value out of its range."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(Architecture):
        key = key_of(field.name)
        if key not in arguments:
            continue
        known = "NUMBER" if model is None else str(getattr(model, field.name))
        if isinstance(field.default, bool):
            value = argument_types.truth(arguments[key])
            if value is None:
                raise WrongDimension(
                    f"{key}={arguments[key]} is neither true nor false",
                    f"type arguments.{key}=false",
                    "not-a-truth-value",
                )
            changes[field.name] = value
            continue
        least = _least(field)
        most = _MOST.get(field.name, 10_000_000)
        number = argument_types.number(arguments[key])
        if key == "base_moe_mlp_dim" and number == -1:  # of base.yml: it has none
            number = 0.0
        if number is None or not number.is_integer() or not least <= number <= most:
            what = f"{key}={arguments[key]:.60} is not a whole number from {least} to {most:,}"
            raise WrongDimension(what, f"type arguments.{key}={known}", "not-a-number")
        changes[field.name] = int(number)
    return changes


def _least(field: dataclasses.Field[Any]) -> int:
    """0 where it stands for "has none"."""
    return 0 if field.default == 0 else 1


def _require_consistent(model: Architecture) -> None:
    """WrongDimension for dimensions that contradict each other; UserError for experts without a width."""
    layers, heads = model.num_decoder_layers, model.num_query_heads
    for field in ("first_num_dense_layers", "num_kv_shared_layers"):
        if (n := getattr(model, field)) > layers:
            what = f"{field}={n} is more than base_num_decoder_layers={layers}"
            raise WrongDimension(
                what,
                f"type arguments.{field}={layers} or less, or more base_num_decoder_layers",
                "dimensions-contradict",
            )
    for field in () if model.is_mla else ("num_kv_heads", "global_num_kv_heads"):
        n = getattr(model, field)
        if n and heads % n:
            what = f"base_num_query_heads={heads} is no multiple of {key_of(field)}={n}"
            raise WrongDimension(what, f"type arguments.{key_of(field)}={math.gcd(heads, n)}", "dimensions-contradict")
    if model.num_experts > 1 and model.num_experts_per_tok > model.num_experts:
        what = f"num_experts_per_tok={model.num_experts_per_tok} is more than num_experts={model.num_experts}"
        raise WrongDimension(
            what, f"type arguments.num_experts_per_tok={model.num_experts} or less", "dimensions-contradict"
        )
    if model.num_moe_layers and not model.moe_mlp_dim:
        what = f"the width of the {model.num_experts} experts is not known"
        raise UserError(what, "type arguments.base_moe_mlp_dim=NUMBER", "unknown-dimensions")
    if model.is_mla and not (model.qk_nope_head_dim + model.qk_rope_head_dim and model.v_head_dim):
        what = f"kv_lora_rank={model.kv_lora_rank} is latent attention, whose qk_nope_head_dim, qk_rope_head_dim and v_head_dim are not all there"
        raise UserError(
            what, "type arguments.qk_nope_head_dim=NUMBER, qk_rope_head_dim and v_head_dim too", "dimensions-contradict"
        )


def _known(name: str) -> str:
    if not name:
        return "type arguments.model_name=NAME"
    guess = nearest(name, list(ARCHITECTURES))
    return (
        f"did you mean {guess}?"
        if guess
        else f"{len(ARCHITECTURES)} models are known, such as llama3.1-8b, and {name} is none"
    )
