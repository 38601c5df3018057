"""Dimensions of the models that MaxText knows by name, as far as the formulas of flops.py cover them.

Source of every row: src/maxtext/configs/models/NAME.yml of MaxText e591f30 (2026-08-22), with `global_every` from the functions of
src/maxtext/utils/maxtext_utils.py that count FLOPs. A field has the name of MaxText's key without `base_`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from podwright.errors import UserError, nearest
from podwright.recipe.maxtext.arguments import Arguments


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


def _llama(emb_dim: int, layers: int, heads: int, kv_heads: int, mlp_dim: int, vocab_size: int) -> Architecture:
    return Architecture(emb_dim, layers, heads, kv_heads, mlp_dim, vocab_size)


def _qwen3_moe(emb_dim: int, layers: int, heads: int, kv_heads: int, width: int, experts: int) -> Architecture:
    return Architecture(
        emb_dim, layers, heads, kv_heads, width, 151936, num_experts=experts, num_experts_per_tok=8, moe_mlp_dim=width
    )


def _mixtral(emb_dim: int, layers: int, heads: int, width: int, vocab_size: int) -> Architecture:
    return Architecture(
        emb_dim, layers, heads, 8, width, vocab_size, num_experts=8, num_experts_per_tok=2, moe_mlp_dim=width
    )


def _deepseek3(heads: int, dense_layers: int, vocab_size: int, experts: int) -> Architecture:
    return Architecture(
        7168,
        61,
        heads,
        heads,
        18432,
        vocab_size,
        num_experts=experts,
        num_experts_per_tok=8,
        moe_mlp_dim=2048,
        shared_experts=1,
        first_num_dense_layers=dense_layers,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )


def _gpt_oss(layers: int, experts: int) -> Architecture:
    return Architecture(
        2880,
        layers,
        64,
        8,
        2880,
        201088,
        head_dim=64,
        num_experts=experts,
        num_experts_per_tok=4,
        moe_mlp_dim=2880,
        global_every=2,
        sliding_window_size=128,
    )


def _llama4(mlp_dim: int, experts: int, step: int) -> Architecture:
    return Architecture(
        5120,
        48,
        40,
        8,
        mlp_dim,
        202048,
        num_experts=experts,
        moe_mlp_dim=8192,
        shared_experts=1,
        interleave_moe_layer_step=step,
        global_every=4,
        chunk_attn_window_size=8192,
    )


def _gemma3(emb_dim: int, layers: int, heads: int, head_dim: int) -> Architecture:
    return Architecture(
        emb_dim,
        layers,
        heads,
        heads // 2,
        4 * emb_dim,
        262144,
        head_dim=head_dim,
        logits_via_embedding=True,
        global_every=6,
        sliding_window_size=1024,
    )


_GEMMA4 = Architecture(
    5376,
    60,
    32,
    16,
    21504,
    262144,
    head_dim=256,
    logits_via_embedding=True,
    global_every=6,
    sliding_window_size=1024,
    global_head_dim=512,
    global_num_kv_heads=4,
    share_kv_projections=True,
)
_GEMMA4_SMALL = Architecture(
    2560,
    42,
    8,
    2,
    10240,
    262144,
    head_dim=256,
    logits_via_embedding=True,
    global_every=6,
    sliding_window_size=512,
    global_head_dim=512,
    num_kv_shared_layers=18,
    hidden_size_per_layer_input=256,
)
_LLAMA3_70B = _llama(8192, 80, 64, 8, 28672, 128256)
_LLAMA3_8B = _llama(4096, 32, 32, 8, 14336, 128256)
_LLAMA3_405B = _llama(16384, 126, 128, 8, 53248, 128256)
_DEEPSEEK3 = _deepseek3(heads=128, dense_layers=3, vocab_size=129280, experts=256)

ARCHITECTURES: dict[str, Architecture] = {
    "llama2-7b": _llama(4096, 32, 32, 32, 11008, 32000),
    "llama2-13b": _llama(5120, 40, 40, 40, 13824, 32000),
    "llama2-70b": _llama(8192, 80, 64, 8, 28672, 32000),
    "llama3-8b": _LLAMA3_8B,
    "llama3-70b": _LLAMA3_70B,
    "llama3-405b": _LLAMA3_405B,
    "llama3.1-8b": _LLAMA3_8B,
    "llama3.1-70b": _LLAMA3_70B,
    "llama3.1-405b": _LLAMA3_405B,
    "llama3.3-70b": _LLAMA3_70B,
    "mistral-7b": _llama(4096, 32, 32, 8, 14336, 32000),
    "qwen3-8b": _llama(4096, 36, 32, 8, 12288, 151936),
    "qwen3-14b": _llama(5120, 40, 40, 8, 17408, 151936),
    "qwen3-32b": _llama(5120, 64, 64, 8, 25600, 151936),
    "qwen3-30b-a3b": _qwen3_moe(2048, 48, 32, 4, width=768, experts=128),
    "qwen3-235b-a22b": _qwen3_moe(4096, 94, 64, 4, width=1536, experts=128),
    "qwen3-480b-a35b": _qwen3_moe(6144, 62, 96, 8, width=2560, experts=160),
    "mixtral-8x7b": _mixtral(4096, 32, 32, width=14336, vocab_size=32000),
    "mixtral-8x22b": _mixtral(6144, 56, 48, width=16384, vocab_size=32768),
    "gpt3-175b": Architecture(12288, 96, 96, 96, 49152, 50304, mlp_matrices=2, logits_via_embedding=True),
    "gpt-oss-20b": _gpt_oss(24, experts=32),
    "gpt-oss-120b": _gpt_oss(36, experts=128),
    "deepseek3-671b": _DEEPSEEK3,
    "deepseek3-671b-2dfsdp": _DEEPSEEK3,
    "kimi-k2-1t": _deepseek3(heads=64, dense_layers=1, vocab_size=163840, experts=384),
    "llama4-17b-16e": _llama4(mlp_dim=8192, experts=16, step=1),
    "llama4-17b-128e": _llama4(mlp_dim=16384, experts=128, step=2),
    "gemma3-4b": _gemma3(2560, 34, 8, head_dim=256),
    "gemma3-12b": _gemma3(3840, 48, 16, head_dim=256),
    "gemma3-27b": _gemma3(5376, 62, 32, head_dim=128),
    "gemma4-31b": _GEMMA4,
    "gemma4-26b": dataclasses.replace(
        _GEMMA4,
        emb_dim=2816,
        num_decoder_layers=30,
        num_query_heads=16,
        num_kv_heads=8,
        global_num_kv_heads=2,
        mlp_dim=2112,
        num_experts=128,
        num_experts_per_tok=8,
        moe_mlp_dim=704,
        shared_experts=1,
        shared_expert_dim=2112,
    ),
    "gemma4-e4b": _GEMMA4_SMALL,
    "gemma4-e2b": dataclasses.replace(
        _GEMMA4_SMALL,
        emb_dim=1536,
        num_decoder_layers=35,
        num_kv_heads=1,
        mlp_dim=6144,
        global_every=5,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
    ),
}

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
        raise UserError(what, "its FLOPs, memory and step time are measured, not predicted")
    if name not in ARCHITECTURES:
        raise UserError(f"the dimensions of model_name={name!r} are not known", _known(name))
    for key, neutral in _NOT_COVERED.items():
        if key in arguments and arguments[key].lower() != neutral:
            what = f"the FLOPs of a model changed by {key}={arguments[key]} are not known"
            raise UserError(what, f"leave arguments.{key} out to predict the model without it")
    model = dataclasses.replace(ARCHITECTURES[name], **changes)
    _require_consistent(model)
    if model.mtp_num_layers and model.global_every > 1:
        what = f"the FLOPs of mtp_num_layers={model.mtp_num_layers} beside layers of local attention are not known"
        raise UserError(what, "leave arguments.mtp_num_layers out to predict the model without it")
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
            if arguments[key].lower() not in ("true", "false"):
                raise WrongDimension(f"{key}={arguments[key]} is neither true nor false", f"type arguments.{key}=false")
            changes[field.name] = arguments[key].lower() == "true"
            continue
        least, most = _least(field), _MOST.get(field.name, 10_000_000)
        try:
            value = int(arguments[key].replace("_", ""))
        except ValueError:
            value = least - 1
        if key == "base_moe_mlp_dim" and arguments[key] == "-1":  # of base.yml: it has none
            value = 0
        if not least <= value <= most:
            what = f"{key}={arguments[key]:.60} is not a whole number from {least} to {most:,}"
            raise WrongDimension(what, f"type arguments.{key}={known}")
        changes[field.name] = value
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
            raise WrongDimension(what, f"type arguments.{field}={layers} or less, or more base_num_decoder_layers")
    for field in () if model.is_mla else ("num_kv_heads", "global_num_kv_heads"):
        if (n := getattr(model, field)) and heads % n:
            what = f"base_num_query_heads={heads} is no multiple of {key_of(field)}={n}"
            raise WrongDimension(what, f"type arguments.{key_of(field)}={math.gcd(heads, n)}")
    if model.num_experts > 1 and model.num_experts_per_tok > model.num_experts:
        what = f"num_experts_per_tok={model.num_experts_per_tok} is more than num_experts={model.num_experts}"
        raise WrongDimension(what, f"type arguments.num_experts_per_tok={model.num_experts} or less")
    if model.num_moe_layers and not model.moe_mlp_dim:
        what = f"the width of the {model.num_experts} experts is not known"
        raise UserError(what, "type arguments.base_moe_mlp_dim=NUMBER")
    if model.is_mla and not (model.qk_nope_head_dim + model.qk_rope_head_dim and model.v_head_dim):
        what = f"kv_lora_rank={model.kv_lora_rank} is latent attention, whose qk_nope_head_dim, qk_rope_head_dim and v_head_dim are not all there"
        raise UserError(what, "type arguments.qk_nope_head_dim=NUMBER, qk_rope_head_dim and v_head_dim too")


def _known(name: str) -> str:
    if not name:
        return "type arguments.model_name=NAME"
    guess = nearest(name, list(ARCHITECTURES))
    return (
        f"did you mean {guess}?"
        if guess
        else f"{len(ARCHITECTURES)} models are known, such as llama3.1-8b, and {name} is none"
    )
