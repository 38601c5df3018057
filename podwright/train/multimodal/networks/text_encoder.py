"""The frozen encoder of texts: which it is and whose weights it has, a recipe says. A prepared text is its ids and which of them count.

'tiny' is the mean of a random vector for each word. Random weights of MiniLM read bytes, for there is no vocabulary without its directory.
"""

from __future__ import annotations

import functools
import re
import zlib
from typing import Any

import torch
from torch import Tensor, nn

from podwright.errors import UserError, expanded, message_of
from podwright.recipe import hf_config, hf_weights, llm
from podwright.recipe.contrastive import TextEncoder
from podwright.train.multimodal.networks import stored
from podwright.train.multimodal.networks.encoders import SEED, Encoder, frozen

_WORDS = 1 << 14  # vectors that words share
_WORD = re.compile(r"\w+")


def text_encoder(recipe: TextEncoder) -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if recipe.name == "tiny":
            return frozen(Encoder(_PooledText(_Vectors(), "mean"), _prepare(_word_ids, recipe), llm.TEXT_DIM))
        bert, ids = _random() if recipe.source == "random" else _of_directory(recipe.source, recipe.max_tokens)
    return frozen(Encoder(_PooledText(bert, recipe.pooling), _prepare(ids, recipe), bert.config.hidden_size))


class _PooledText(nn.Module):
    """[B, 2, T] of ids and whether they count to [B, D]."""

    def __init__(self, body: Any, pooling: str):
        super().__init__()
        self.body, self.pooling = body, pooling

    def forward(self, texts: Tensor) -> Tensor:
        width = max(1, int(texts[:, 1].sum(1).max()))
        ids, mask = texts[:, 0, :width], texts[:, 1, :width]
        hidden: Tensor = self.body(ids, mask)[0]
        if self.pooling == "cls":
            return hidden[:, 0]
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class _Vectors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(_WORDS, llm.TEXT_DIM)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor]:
        return (self.table(ids),)


def _prepare(ids: Any, recipe: TextEncoder) -> Any:
    return functools.partial(_prepared, ids=ids, size=recipe.max_tokens)


def _prepared(text: str, ids: Any, size: int) -> Tensor:
    token_ids = ids(text, size)
    padded = torch.zeros(2, size, dtype=torch.long)
    padded[0, : len(token_ids)] = torch.tensor(token_ids)
    padded[1, : len(token_ids)] = 1
    return padded


def _word_ids(text: str, size: int) -> list[int]:
    return [zlib.crc32(word.lower().encode()) % _WORDS for word in _WORD.findall(text)][:size]


def _byte_ids(text: str, size: int) -> list[int]:
    return list(text.encode()[:size])


def _random() -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    sizes = BertConfig(num_hidden_layers=6, hidden_size=llm.TEXT_DIM, num_attention_heads=12, intermediate_size=1536)
    return BertModel(sizes, add_pooling_layer=False), _byte_ids


def _of_directory(source: str, max_tokens: int) -> tuple[Any, Any]:
    """The model, and its tokenizer's ids of a text, with the tokens that begin and end it."""
    from transformers import AutoModel, AutoTokenizer

    directory = expanded(source)
    if not directory.is_dir():
        fix = "put MiniLM-L6-H384-uncased there, or type text_encoder.source=random"
        raise UserError(f"text_encoder.source={source} is not there", fix, "no-such-file")
    hf_config.require_unquantized(hf_config.read(directory, "text_encoder.source"))
    hf_config.refuse_adapter(directory)
    if hf_weights.present(directory):
        for name, tensor in hf_weights.stored(directory).items():
            if not name.endswith("_ids"):  # buffers of positions
                hf_weights.require_float(name, tensor, directory)
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        body, loading = AutoModel.from_pretrained(
            directory,
            local_files_only=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # they are named below
            output_loading_info=True,
        )
    except Exception as e:  # of a damaged file, the libraries raise whatever they stumble over
        what = f"text_encoder.source={source} is no text encoder with its tokenizer ({message_of(e, 100)})"
        raise UserError(
            what, "give a Hugging Face directory of one, such as MiniLM-L6-H384-uncased", "not-a-model"
        ) from e
    _require_whole(body, loading, source)
    stored.require_finite(body.state_dict(), directory)
    _require_longest(body, tokenizer, source, max_tokens)
    return body, lambda text, size: tokenizer(text, truncation=True, max_length=size)["input_ids"]


def _require_longest(body: Any, tokenizer: Any, source: str, max_tokens: int) -> None:
    """UserError unless the model reads a text of `max_tokens` tokens, each of them the last of the vocabulary."""
    vocabulary = tokenizer.get_vocab()
    if vocabulary.keys() <= set(tokenizer.all_special_tokens):  # made by transformers where the files are not there
        what = f"text_encoder.source={source} has no tokenizer"
        raise UserError(
            what, "download the tokenizer's files too, or save it there with save_pretrained", "no-tokenizer"
        )
    longest = torch.full((1, max_tokens), max(vocabulary.values()))
    try:
        with torch.no_grad():
            body(longest, torch.ones_like(longest))
    except Exception as e:  # whatever a model makes of ids and positions that it has no row for
        what = (
            f"text_encoder.source={source} reads no text of text_encoder.max_tokens={max_tokens} ({message_of(e, 60)})"
        )
        fix = "type a smaller text_encoder.max_tokens, or give a checkpoint whose embeddings fit its tokenizer"
        raise UserError(what, fix, "too-few-positions") from e


def _require_whole(body: Any, loading: dict[str, Any], source: str) -> None:
    """transformers draws missing weights at random and leaves out others; only a pooler, and what stands on top, may differ."""
    parts = {name for name, _ in body.named_children()} - {"pooler"}
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        for entry in sorted(loading[kind]):
            name = entry[0] if kind == "mismatched_keys" else entry
            part = name.removeprefix(f"{body.base_model_prefix}.").partition(".")[0]
            if part in parts and not name.endswith("position_ids"):
                what = f"text_encoder.source={source} does not fit its config.json: {name} is one of its {kind}"
                raise UserError(what, "give a checkpoint whose config.json is its own", "weights-do-not-fit")
