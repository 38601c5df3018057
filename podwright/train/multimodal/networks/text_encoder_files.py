"""The directory of a text encoder for Phase 1: what transformers would read otherwise than it is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podwright.errors import UserError, nearest
from podwright.recipe import hf_config, hf_weights

_TOKENIZERS = ("tokenizer.json", "vocab.txt")
_OTHER_TOKENIZERS = ("vocab.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model")  # of other models
_OFFSET = frozenset({"roberta", "xlm-roberta", "camembert"})  # models whose first position is pad_token_id + 1


def check(source: str, directory: Path, max_tokens: int) -> dict[str, Any]:
    """The config.json of text_encoder.source; UserError for what no run starts from.

    `max_tokens`: the tokens that a text is cut to.
    """
    if not directory.is_dir():
        if nearest(source, ["random"]):
            raise UserError(f"there is no text_encoder.source={source}", "did you mean text_encoder.source=random?")
        fix = "put MiniLM-L6-H384-uncased there, or type text_encoder.source=random"
        raise UserError(f"text_encoder.source={source} is not there", fix)
    try:
        return _config(directory, max_tokens)
    except UserError as e:
        raise e if str(directory) in e.what else UserError(f"text_encoder.source={source}: {e.what}", e.fix) from e


def _config(directory: Path, max_tokens: int) -> dict[str, Any]:
    config = hf_config.read(directory, "text_encoder.source")
    hf_config.require_unquantized(config)
    hf_weights.refuse_adapter(directory)
    _require_positions(directory, config, max_tokens)
    hf_weights.require_regular(directory / hf_weights.SINGLE)
    for name, tensor in hf_weights.stored(directory).items() if hf_weights.present(directory) else ():
        if not name.endswith("_ids"):  # buffers of positions
            hf_weights.require_float(name, tensor, directory)
    # Without its files transformers makes a tokenizer that takes every word for an unknown one.
    names = _TOKENIZERS + (() if config.get("model_type") == "bert" else _OTHER_TOKENIZERS)
    if not any((directory / name).is_file() for name in names):
        what = f"{directory} has no tokenizer ({' or '.join(_TOKENIZERS)})"
        raise UserError(what, "download the tokenizer's files too, or save it there with save_pretrained")
    return config


def _require_positions(directory: Path, config: dict[str, Any], max_tokens: int) -> None:
    positions = config.get("max_position_embeddings")
    if positions is None:
        return
    if type(positions) is not int or positions < 1:
        what = f"config.json says max_position_embeddings={positions!r:.80}, which is no positive integer"
        raise UserError(what, "give the checkpoint's own config.json")
    if str(config.get("model_type")) in _OFFSET:
        pad = config.get("pad_token_id", 1)
        positions -= 1 + (pad if isinstance(pad, int) else 1)
    if max_tokens > positions:
        what = f"text_encoder.max_tokens={max_tokens} is more than the {positions} positions of {directory}"
        raise UserError(what, f"type text_encoder.max_tokens={positions} or less")
