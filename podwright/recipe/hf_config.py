"""config.json of a Hugging Face checkpoint: which values are implemented, and the dimensions that follow.

An allow-list: a key that is neither read nor listed is refused, because it may change what the model computes. What is
missing has transformers' default. The plan and the trainers read with the same functions, so both refuse the same.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podwright.errors import UserError, both_ends, nearest
from podwright.recipe import text_lines
from podwright.recipe.llm import LlmDims
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.wrong_values import in_words
from podwright.recipe.yaml_file import facts

Config = dict[str, Any]

_FACTS = facts(__file__)
ACTIVATIONS = frozenset(_FACTS["activations"])
"""those of transformers that have no weights of their own"""
_OWN = "give the checkpoint's own config.json"
_ROPE_THETA = 10000.0  # transformers: RotaryEmbeddingConfigMixin.default_theta
_INNER = ("*", "snapshots/*", "*/snapshots/*")  # where a model lies in directories that hold several; the hub's cache
_ROPE_KEYS = {"rope_type", "type", "rope_theta"}
PositiveInt = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]


class _Sizes(BaseModel):
    """The keys of config.json that both families have."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, defer_build=True)
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    vocab_size: PositiveInt
    tie_word_embeddings: bool = False
    rms_norm_eps: Positive = 1e-6
    max_position_embeddings: PositiveInt = 32768
    layer_types: list[str] | None = None
    rope_parameters: dict[str, Any] | None = None
    rope_scaling: dict[str, Any] | None = None
    bos_token_id: int | None = None
    pad_token_id: int | None = None
    eos_token_id: int | list[int] | None = None


class _Qwen3(_Sizes):
    head_dim: PositiveInt = 128
    rope_theta: Positive = _ROPE_THETA


class _Qwen2(_Sizes):
    head_dim: PositiveInt | None = None
    rope_theta: Positive | None = None
    hidden_act: str | None = None
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    sliding_window: float | None = None
    dtype: str | None = None
    torch_dtype: str | None = None


S = TypeVar("S", bound=_Sizes)


def read(directory: Path, key: str = "model.source") -> Config:
    """The config.json of the directory that was typed after `key`; UserError where there is none that can be read."""
    file = directory / "config.json"
    try:
        if not file.is_file() and directory.is_dir():
            _refuse_other_contents(directory, key)
        content = file.read_bytes()
        refuse_pointer(file, content)
        config = json.loads(content)
    except (OSError, ValueError, RecursionError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not JSON"
        raise _unreadable(directory, str(reason)) from e
    if not isinstance(config, dict):
        raise _unreadable(directory, "it is not a JSON object")
    return config


def refuse_pointer(file: Path, content: bytes) -> None:
    """UserError for what git leaves in the place of a large file that it has not fetched."""
    if fault := text_lines.pointer(str(file), content):
        raise fault


def _refuse_other_contents(directory: Path, key: str) -> None:
    """UserError for a directory without a config.json that is a run, an adapter, or has a model further inside."""
    if (directory / "recipe.json").is_file() and (directory / "journal.jsonl").is_file():
        written = f"{directory.resolve()}-model"
        export = shlex.join(["podwright", "export", str(directory), written])
        fix = f"type {export}, and give {key} {written}" if key == "model.source" else f"give {key} a model's directory"
        raise UserError(f"{directory} is a run, not a model", fix, "not-a-model")
    refuse_adapter(directory)
    inner = [path for pattern in _INNER for path in directory.glob(f"{pattern}/config.json")]
    if inner:
        newest = max(inner, key=lambda path: path.stat().st_mtime).parent
        what = f"{directory} has no config.json, but {newest.relative_to(directory)} in it has"
        raise UserError(what, f"type {shlex.quote(f'{key}={newest}')}", "not-a-model")


def refuse_adapter(directory: Path) -> None:
    """UserError for what peft saves of a model, its adapter: transformers adds it to the weights, which nothing here does."""
    if (directory / "adapter_config.json").exists():
        what = f"{directory} holds an adapter (adapter_config.json) that is not merged"
        fix = "type in Python: peft.AutoPeftModelForCausalLM.from_pretrained(DIR).merge_and_unload().save_pretrained(NEW), or move that file away"
        raise UserError(what, fix, "adapter-only")


def _unreadable(directory: Path, reason: str) -> UserError:
    what = f"{directory} has no readable config.json ({reason})"
    return UserError(what, "give a Hugging Face model directory", "unreadable")


def qwen3(config: Config) -> Qwen3Dims:
    """Dimensions of a dense Qwen3; UserError for every value that models/qwen3.py does not implement."""
    sizes = _of_family(config, _Qwen3, "qwen3", "give a directory of a dense Qwen3 model")
    implemented: dict[str, list[object]] = _FACTS["implemented"]
    for key, values in implemented.items():
        if config.get(key) is not None and config[key] not in values:
            raise _unsupported(key, config[key])
    _require_layer_types(sizes, ["full_attention"])
    theta = _theta(sizes)
    listed = {*_Qwen3.model_fields, *implemented, *_FACTS["without_effect"]}
    for key, value in config.items():
        if value is not None and key not in listed:
            what = f"config.json has {key}={_short(value)}, which Podwright does not support for a dense Qwen3"
            fix = f"delete {key} from config.json if it does not change what the model computes"
            raise UserError(what, fix, "unsupported-config")
    heads, kv_heads = sizes.num_attention_heads, sizes.num_key_value_heads
    if sizes.head_dim % 2 or heads % kv_heads:
        what = (
            f"config.json says head_dim={sizes.head_dim}, num_attention_heads={heads}, num_key_value_heads={kv_heads}"
        )
        fix = "head_dim must be even, and num_key_value_heads divide num_attention_heads"
        raise UserError(f"{what}, which is no attention", fix, "unsupported-config")
    return Qwen3Dims(
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_layers=sizes.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=sizes.head_dim,
        vocab_size=sizes.vocab_size,
        tie_word_embeddings=sizes.tie_word_embeddings,
        rope_theta=theta,
        norm_eps=sizes.rms_norm_eps,
        max_positions=sizes.max_position_embeddings,
    )


def qwen2(config: Config) -> LlmDims:
    """Dimensions of a Qwen2, whose other values transformers itself implements."""
    sizes = _of_family(config, _Qwen2, "qwen2", "give a directory of a Qwen2 or Qwen2.5, such as Qwen2.5-0.5B-Instruct")
    if sizes.hidden_act not in (None, *ACTIVATIONS):
        guess = nearest(str(sizes.hidden_act), sorted(ACTIVATIONS))
        fix = f"{_OWN}; did you mean {guess}?" if guess else _OWN
        raise UserError(
            f"config.json says hidden_act={_short(sizes.hidden_act)}, which is no activation", fix, "unsupported-config"
        )
    for dtype in (sizes.dtype, sizes.torch_dtype):
        if dtype is not None and dtype.removeprefix("torch.") not in _FACTS["dtypes"]:
            raise UserError(
                f"config.json says dtype={_short(dtype)}, which is no dtype of weights", _OWN, "unsupported-config"
            )
    hidden, heads = sizes.hidden_size, sizes.num_attention_heads
    if hidden % heads:
        what = f"config.json says num_attention_heads={heads}, which does not divide hidden_size={hidden}"
        raise UserError(what, _OWN, "unsupported-config")
    if sizes.head_dim not in (None, hidden // heads):
        raise _unsupported("head_dim", sizes.head_dim)
    _require_layer_types(sizes, ["full_attention", "sliding_attention"])
    return LlmDims(
        hidden_size=hidden,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.num_hidden_layers,
        num_attention_heads=heads,
        num_key_value_heads=sizes.num_key_value_heads,
        vocab_size=sizes.vocab_size,
        tie_word_embeddings=sizes.tie_word_embeddings,
        rms_norm_eps=sizes.rms_norm_eps,
        max_position_embeddings=sizes.max_position_embeddings,
    )


def _of_family(config: Config, family: type[S], model_type: str, fix: str) -> S:
    """The checked keys of a config.json; UserError for another model, quantized weights and values of another type."""
    if config.get("model_type") != model_type:
        raise UserError(f"config.json says model_type={_short(config.get('model_type'))}", fix, "unsupported-model")
    require_unquantized(config)
    try:
        return family.model_validate(config)
    except ValidationError as e:
        first = e.errors()[0]
        key = str(first["loc"][0])
        what = f"config.json says {key}={_short(config.get(key))}: {in_words(first)}"
        if first["type"] == "missing":
            what = f"config.json has no {key}"
        raise UserError(what, _OWN, "unsupported-config") from e


def _require_layer_types(sizes: _Sizes, implemented: list[str]) -> None:
    """A kind for each layer, if there is the key."""
    kinds, layers = sizes.layer_types, sizes.num_hidden_layers
    if kinds is None:
        return
    for number, kind in enumerate(kinds):
        if kind not in implemented:
            raise _unsupported(f"layer_types[{number}]", kind)
    if len(kinds) != layers:
        what = f"config.json has {len(kinds)} layer_types, and num_hidden_layers={layers} needs {layers}"
        raise UserError(what, _OWN, "unsupported-config")


def require_unquantized(config: Config) -> None:
    quantization = config.get("quantization_config")
    if not quantization:
        return
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    what = f"config.json has a quantization_config ({method or _short(quantization)}): the weights are quantized"
    raise UserError(what, "give the bfloat16 checkpoint that it was made from", "unsupported-dtype")


def _theta(sizes: _Qwen3) -> float:
    """As transformers 5 reads it: `rope_scaling` wins over `rope_parameters`, and both over a `rope_theta` beside them."""
    scaling, parameters = sizes.rope_scaling or {}, sizes.rope_parameters or {}
    for key, rope in {"rope_scaling": scaling, "rope_parameters": parameters}.items():
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default":
            raise _unsupported("rope_type", kind)
        others = [k for k in rope if k not in _ROPE_KEYS and rope[k] is not None]
        if others:
            raise _unsupported(f"{key}.{others[0]}", rope[others[0]])
    if scaling and parameters and scaling != parameters:
        what = f"config.json has rope_scaling={_short(scaling)} beside rope_parameters={_short(parameters)}"
        raise UserError(
            what, "keep the one that the model was trained with, and delete the other", "unsupported-config"
        )
    theta = (scaling or parameters).get("rope_theta", sizes.rope_theta)
    if type(theta) not in (int, float) or not 0 < theta <= sys.float_info.max:
        raise _unsupported("rope_theta", theta)
    return float(theta)


def _unsupported(key: str, value: object) -> UserError:
    what = f"config.json says {key}={_short(value)}, which is not supported"
    return UserError(what, "use a checkpoint trained without it", "unsupported-config")


def _short(value: object) -> str:
    return both_ends(repr(value))
