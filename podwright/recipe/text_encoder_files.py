"""The directory of a text encoder for Phase 1: what can be said of its config.json, weights and tokenizer without transformers.

Plan and trainer call the same function, so that a plan refuses what a run would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.recipe import hf_config, hf_weights

_TOKENIZERS = ("tokenizer.json", "vocab.txt")
_OTHER_TOKENIZERS = ("vocab.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")  # of other models
_OFFSET = frozenset({"roberta", "xlm-roberta", "camembert"})  # models whose first position is pad_token_id + 1
_ACTIVATIONS = ("hidden_act", "activation")  # keys of config.json, of BERT and of others
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout", "dropout")
_DOWNLOAD = "download the directory again"


def check(directory: Path, max_tokens: int) -> dict[str, Any]:
    """The config.json; UserError for what no run starts from, or would read otherwise than it is meant.

    `max_tokens`: the tokens that a text is cut to.
    """
    config = hf_config.read(directory, "text_encoder.source")
    hf_config.require_unquantized(config)
    hf_config.require_dtype(config)
    hf_config.require_token_ids(config)
    if not isinstance(model_type := config.get("model_type"), str):
        what = "has no model_type" if model_type is None else f"says model_type={model_type!r}, which is no text"
        raise UserError(f"config.json {what}", 'write the model\'s own into it, as in "model_type": "bert"')
    for key in _ACTIVATIONS:
        hf_config.require_activation(config, key)
    for key in _DROPOUTS:
        hf_config.require_dropout(config, key)
    hf_weights.refuse_adapter(directory)
    if config.get("model_type") == "bert":
        hidden = hf_config.count(config, "hidden_size", 768)
        hf_config.require_heads(hidden, hf_config.count(config, "num_attention_heads", 12))
    _require_positions(directory, config, max_tokens)
    hf_weights.require_regular(directory / hf_weights.SINGLE)
    if hf_weights.present(directory):
        _require_weights(directory)
    _require_tokenizer(directory, config)
    return config


def _require_positions(directory: Path, config: dict[str, Any], max_tokens: int) -> None:
    if config.get("max_position_embeddings") is None:
        return
    positions = hf_config.count(config, "max_position_embeddings")
    if config.get("model_type") in _OFFSET:
        pad = config.get("pad_token_id", 1)
        positions -= 1 + (pad if isinstance(pad, int) else 1)
    if max_tokens > positions:
        what = f"text_encoder.max_tokens={max_tokens} is more than the {positions} positions of {directory}"
        raise UserError(what, f"type text_encoder.max_tokens={positions} or less")


def _require_weights(directory: Path) -> None:
    """Finite floating numbers in all tensors but buffers of positions."""
    for name, tensor in hf_weights.stored(directory).items():
        if not name.endswith("_ids"):
            hf_weights.require_float(name, tensor, directory)
            hf_weights.require_finite(name, tensor, directory)


def _require_tokenizer(directory: Path, config: dict[str, Any]) -> None:
    """Without its files transformers makes a tokenizer that takes every word for an unknown one."""
    other = config.get("model_type") != "bert"
    names = _TOKENIZERS + (_OTHER_TOKENIZERS if other else ())
    if not any((directory / name).is_file() for name in names):
        what = f"{directory} has no tokenizer ({' or '.join(_TOKENIZERS)})"
        raise UserError(what, "download the tokenizer's files too, or save it there with save_pretrained")
    _object(directory / "tokenizer_config.json")
    size = _vocabulary(directory)
    if size and size > (rows := hf_config.count(config, "vocab_size", size)):
        what = f"the tokenizer of {directory} has {size} tokens, the model {rows}"
        raise UserError(what, "give a checkpoint whose embeddings were resized with its tokenizer")


def _vocabulary(directory: Path) -> int:
    """One more than the largest id; 0 where the files do not say it."""
    file = directory / "tokenizer.json"
    if not file.is_file():
        words = directory / "vocab.txt"
        return len(words.read_bytes().splitlines()) if words.is_file() else 0
    record = _object(file)
    model, added = record.get("model"), record.get("added_tokens")
    if not isinstance(model, dict) or not isinstance(added, list):
        raise UserError(f"{file} is no tokenizer: it has no model with added_tokens", _DOWNLOAD)
    vocabulary = model.get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary or ())))
    ids += [token.get("id") for token in added if isinstance(token, dict)]
    return 1 + max((i for i in ids if isinstance(i, int)), default=-1)


def _object(file: Path) -> dict[str, Any]:
    """{} where there is no such file."""
    if not file.is_file():
        return {}
    content = file.read_bytes()
    hf_config.refuse_pointer(file, content)
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as e:
        raise UserError(f"{file} is not JSON", _DOWNLOAD) from e
    if not isinstance(record, dict):
        raise UserError(f"{file} is no JSON object", _DOWNLOAD)
    return record
