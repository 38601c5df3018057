"""config.json of a Hugging Face checkpoint: which values are implemented, and the dimensions that follow.

An allow-list: a key that is neither read nor listed is refused, because it may change what the model computes. What is
missing has transformers' default. The plan and the trainers read with the same functions, so both refuse the same.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from podwright.errors import UserError, nearest
from podwright.recipe import text_lines
from podwright.recipe.llm import LlmDims
from podwright.recipe.models import Qwen3Dims

Config = dict[str, Any]

_OWN = "give the checkpoint's own config.json"
_ROPE_THETA = 10000.0  # transformers: RotaryEmbeddingConfigMixin.default_theta
_INNER = ("*", "snapshots/*", "*/snapshots/*")  # where a model lies in directories that hold several; the hub's cache
_ORBAX = frozenset({"_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt"})
_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "auto"})
_KINDS: Mapping[type, str] = MappingProxyType(
    {bool: "neither true nor false", int: "no number", str: "no text", dict: "no object with keys"}
)
ACTIVATIONS = frozenset(
    {
        *("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "quick_gelu"),
        *("gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "relu", "relu2", "relu6"),
        *("sigmoid", "silu", "sqrtsoftplus", "swish", "tanh"),
    }
)
"""those of transformers that have no weights of their own"""
_ROPE_KEYS = {"rope_type", "type", "rope_theta"}
_ONLY: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "attention_dropout": (0,),
        "mlp_bias": (False,),
        "use_sliding_window": (False,),
        "use_mrope": (False,),
        "pretraining_tp": (1,),
        "is_decoder": (False,),
        "is_encoder_decoder": (False,),
        "add_cross_attention": (False,),
        "tie_encoder_decoder": (False,),
        "chunk_size_feed_forward": (0,),
        "pruned_heads": ({},),
    }
)
"""keys that change what is computed, and the values that are implemented"""
_QWEN2_KINDS: Mapping[str, type] = MappingProxyType(
    {"hidden_act": str, "attention_dropout": int, "sliding_window": int, "rope_parameters": dict, "rope_scaling": dict}
)
"""types of values that transformers implements in more than one way"""
_WITHOUT_EFFECT = frozenset(
    {
        "_attn_implementation_autoset",
        "_name_or_path",
        "architectures",
        "bos_token_id",
        "decoder_start_token_id",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "id2label",
        "initializer_range",
        "label2id",
        "max_window_layers",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "prefix",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "sliding_window",
        "task_specific_params",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_bfloat16",
        "use_cache",
    }
)
"""on logits; `sliding_window` without `use_sliding_window`"""
_READ = frozenset(
    {
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "layer_types",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "quantization_config",
        "rms_norm_eps",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
    }
)


def read(directory: Path, key: str = "model.source", model_type: str = "") -> Config:
    """The config.json of the directory that was typed after `key`; UserError where there is none that can be read.

    `model_type`: of the models that the error names where the directory holds several.
    """
    file = directory / "config.json"
    try:
        if not file.is_file() and directory.is_dir():
            refuse_other_contents(directory, key, model_type)
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


def refuse_other_contents(directory: Path, key: str, model_type: str = "") -> None:
    """UserError for a directory without a config.json, but with a model further inside, or in a format that is not read."""
    if (directory / "recipe.json").is_file() and (directory / "journal.jsonl").is_file():
        written = f"{directory.resolve()}-model"
        export = shlex.join(["podwright", "export", str(directory), written])
        fix = f"type {export}, and give {key} {written}" if key == "model.source" else f"give {key} a model's directory"
        raise UserError(f"{directory} is a run, not a model", fix)
    inner = sorted(path.parent for pattern in _INNER for path in directory.glob(f"{pattern}/config.json"))
    if inner:
        fitting = [path for path in inner if not model_type or _model_type(path) == model_type]
        if not fitting:
            listed = ", ".join(str(path.relative_to(directory)) for path in inner[:5])
            what = f"{directory} has no config.json, and no model in it is a {model_type} ({listed})"
            raise UserError(what, f"give {key} the directory of a {model_type}")
        newest = max(fitting, key=lambda path: path.stat().st_mtime)
        others = f" and {len(fitting) - 1} more" if len(fitting) > 1 else ""
        what = f"{directory} has no config.json, but {newest.relative_to(directory)}{others} in it has"
        raise UserError(what, f"type {shlex.quote(f'{key}={newest}')}")
    names = sorted(path.name for path in directory.iterdir())
    if "adapter_config.json" in names:
        raise adapter_only(directory)
    if not _ORBAX.isdisjoint(names):
        what = f"{directory} is a checkpoint of orbax, which is read only where a run resumes"
        raise UserError(what, f"type podwright export RUN, and give {key} the directory that it writes")
    if gguf := next((name for name in names if name.endswith(".gguf")), ""):
        what = f"{directory} holds {gguf}, and weights in the format GGUF are not read"
        raise UserError(what, f"give {key} the model's directory with config.json and safetensors files")


def _model_type(directory: Path) -> object:
    try:
        config = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return config.get("model_type") if isinstance(config, dict) else None


def adapter_only(directory: Path) -> UserError:
    return UserError(f"{directory} holds an adapter only, not a model", "merge it into its model, and give that")


def _unreadable(directory: Path, reason: str) -> UserError:
    return UserError(f"{directory} has no readable config.json ({reason})", "give a Hugging Face model directory")


def qwen3(config: Config) -> Qwen3Dims:
    """Dimensions of a dense Qwen3; UserError for every value that models/qwen3.py does not implement."""
    _require_type(config, "qwen3", "give a directory of a dense Qwen3 model")
    for key, allowed in _ONLY.items():
        _require_kind(key, config.get(key), type(allowed[0]))
        if config.get(key) is not None and config[key] not in allowed:
            raise _unsupported(key, config[key])
    _require_layer_types(config, ("full_attention",))
    theta = _theta(config)
    for key, value in config.items():
        if value is not None and key not in _ONLY and key not in _WITHOUT_EFFECT and key not in _READ:
            what = f"config.json has {key}={_short(value)}, which Podwright does not support for a dense Qwen3"
            raise UserError(what, f"delete {key} from config.json if it does not change what the model computes")
    dims = Qwen3Dims(
        hidden_size=count(config, "hidden_size"),
        intermediate_size=count(config, "intermediate_size"),
        num_layers=count(config, "num_hidden_layers"),
        num_heads=count(config, "num_attention_heads"),
        num_kv_heads=count(config, "num_key_value_heads"),
        head_dim=count(config, "head_dim", 128),
        vocab_size=count(config, "vocab_size"),
        tie_word_embeddings=_flag(config, "tie_word_embeddings"),
        rope_theta=theta,
        norm_eps=_positive(config, "rms_norm_eps", 1e-6),
        max_positions=count(config, "max_position_embeddings", 32768),
    )
    if dims.head_dim % 2 or dims.num_heads % dims.num_kv_heads:
        what = (
            f"head_dim={dims.head_dim}, num_attention_heads={dims.num_heads}, num_key_value_heads={dims.num_kv_heads}"
        )
        raise UserError(
            f"config.json says {what}, which is no attention",
            "head_dim must be even, and num_key_value_heads divide num_attention_heads",
        )
    return dims


def _require_layer_types(config: Config, implemented: tuple[str, ...]) -> None:
    """A kind for each layer, if there is the key."""
    kinds, layers = config.get("layer_types"), count(config, "num_hidden_layers")
    if kinds is None:
        return
    if not isinstance(kinds, list):
        raise UserError(
            f"config.json says layer_types={_short(kinds)}, which is no list of {layers} kinds of layers", _OWN
        )
    if odd := [kind for kind in kinds if kind not in implemented]:
        supported = " and ".join(map(repr, implemented))
        what = (
            f"config.json says layer_types[{kinds.index(odd[0])}]={_short(odd[0])}, and only {supported} is supported"
        )
        raise UserError(what, "use a checkpoint trained without it")
    if len(kinds) != layers:
        what = f"config.json has {len(kinds)} layer_types, and num_hidden_layers={layers} needs {layers}"
        raise UserError(what, f"{_OWN}, or one with as many layer_types as layers")


def qwen2(config: Config) -> LlmDims:
    """Dimensions of a Qwen2, whose other values transformers itself implements."""
    _require_type(config, "qwen2", "give a directory of a Qwen2 or Qwen2.5, such as Qwen2.5-0.5B-Instruct")
    require_dtype(config)
    for key, kind in _QWEN2_KINDS.items():
        _require_kind(key, config.get(key), kind)
    require_activation(config, "hidden_act")
    require_dropout(config, "attention_dropout")
    if config.get("rope_theta") is not None:
        _positive(config, "rope_theta", _ROPE_THETA)
    hidden, heads = count(config, "hidden_size"), count(config, "num_attention_heads")
    require_heads(hidden, heads)
    if config.get("head_dim") not in (None, hidden // heads):
        raise _unsupported("head_dim", config["head_dim"])
    _require_layer_types(config, ("full_attention", "sliding_attention"))
    return LlmDims(
        hidden_size=hidden,
        intermediate_size=count(config, "intermediate_size"),
        num_hidden_layers=count(config, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=count(config, "num_key_value_heads"),
        vocab_size=count(config, "vocab_size"),
        tie_word_embeddings=_flag(config, "tie_word_embeddings"),
        rms_norm_eps=_positive(config, "rms_norm_eps", 1e-6),
        max_position_embeddings=count(config, "max_position_embeddings", 32768),
    )


def require_heads(hidden: int, heads: int) -> None:
    """UserError where the hidden size is not divided by the heads."""
    if hidden % heads:
        what = f"config.json says num_attention_heads={heads}, which does not divide hidden_size={hidden}"
        raise UserError(what, _OWN)


def require_activation(config: Config, key: str) -> None:
    """UserError for an activation that transformers does not have."""
    name = config.get(key)
    _require_kind(key, name, str)
    if name is not None and name not in ACTIVATIONS:
        guess = nearest(str(name), sorted(ACTIVATIONS))
        known = f"did you mean {guess}?" if guess else f"known: {', '.join(sorted(ACTIVATIONS))}"
        raise UserError(f"config.json says {key}={_short(name)}, which is no activation", f"{_OWN}; {known}")


def require_dropout(config: Config, key: str) -> None:
    """UserError for a share of values to drop that is not at least 0 and less than 1."""
    share = config.get(key)
    _require_kind(key, share, int)
    if share is not None and not 0 <= share < 1:
        raise UserError(f"config.json says {key}={_short(share)}, and a dropout is at least 0 and less than 1", _OWN)


def require_dtype(config: Config) -> None:
    """UserError for a dtype that torch does not have, with which transformers refuses a checkpoint."""
    for key in ("dtype", "torch_dtype"):
        name = config.get(key)
        if name is not None and str(name).removeprefix("torch.") not in _DTYPES:
            raise UserError(f"config.json says {key}={_short(name)}, which is no dtype of weights", _OWN)


def _require_type(config: Config, model_type: str, fix: str) -> None:
    if config.get("model_type") != model_type:
        raise UserError(f"config.json says model_type={_short(config.get('model_type'))}", fix)
    require_unquantized(config)
    require_token_ids(config)


def require_token_ids(config: Config) -> None:
    """UserError for a special token that is given by something else than its id, with which transformers refuses a checkpoint."""
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        ids = value if isinstance(value, list) and key == "eos_token_id" else [value]
        if value is not None and any(type(i) is not int for i in ids):
            listed = ", or a list of such ids" if key == "eos_token_id" else ""
            what = f"config.json says {key}={_short(value)}, which is no id of a token"
            raise UserError(what, f"write the id as a number, as in {key}: 151645{listed}")


def require_unquantized(config: Config) -> None:
    if quantization := config.get("quantization_config"):
        _require_kind("quantization_config", quantization, dict)
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise UserError(
            f"config.json has a quantization_config ({method or _short(quantization)}): the weights are quantized, which is not supported",
            "give the bfloat16 checkpoint that it was made from",
        )


def _theta(config: Config) -> float:
    """As transformers 5 reads it: `rope_scaling` wins over `rope_parameters`, and both over a `rope_theta` beside them."""
    scaling, parameters = (config.get(key) or {} for key in ("rope_scaling", "rope_parameters"))
    for key, rope in {"rope_scaling": scaling, "rope_parameters": parameters}.items():
        _require_kind(key, rope, dict)
        kind = rope.get("rope_type", rope.get("type", "default"))
        _require_kind(f"{key}.rope_type", kind, str)
        if kind != "default":
            raise _unsupported("rope_type", kind)
        if others := [k for k in rope if k not in _ROPE_KEYS and rope[k] is not None]:
            raise _unsupported(f"{key}.{others[0]}", rope[others[0]])
    if scaling and parameters and scaling != parameters:
        raise UserError(
            f"config.json has rope_scaling={_short(scaling)} beside rope_parameters={_short(parameters)}",
            "keep the one that the model was trained with, and delete the other",
        )
    rope = scaling or parameters
    return _positive(rope if "rope_theta" in rope else config, "rope_theta", _ROPE_THETA)


def count(config: Config, key: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if key not in config and default is None:
        raise UserError(f"config.json has no {key}", _OWN)
    if type(value) is not int or value < 1:
        raise UserError(f"config.json says {key}={_short(value)}, which is no positive integer", _OWN)
    return value


def _positive(config: Config, key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise UserError(f"config.json says {key}={_short(value)}, which is no positive number", _OWN)
    return float(value)


def _flag(config: Config, key: str) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise UserError(f"config.json says {key}={_short(value)}, which is neither true nor false", _OWN)
    return value


def _require_kind(key: str, value: object, kind: type) -> None:
    """UserError for a value of another type; null is none."""
    fits = isinstance(value, int | float) if kind is int else isinstance(value, kind)
    if kind is bool and value in (0, 1):
        fits = True
    if value is not None and not fits:
        raise UserError(f"config.json says {key}={_short(value)}, which is {_KINDS[kind]}", _OWN)


def _unsupported(key: str, value: object) -> UserError:
    return UserError(
        f"config.json says {key}={_short(value)}, which is not supported", "use a checkpoint trained without it"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
