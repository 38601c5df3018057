"""The tokens of a Hugging Face directory that stand only beside its tokenizer.json, as transformers 4.57 and 5 add them.

Both add those of `added_tokens_decoder` in the order of their ids, then the special tokens that only have a name. Each gets
the next free id, whatever the files say.
"""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer

Settings = dict[str, Any]

DECODER = "added_tokens_decoder"
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""in the order in which they are added"""


def add(inner: Tokenizer, config: Settings, names: Settings, ids: dict[str, int]) -> dict[str, str]:
    """Adds to `inner` what stands in tokenizer_config.json, special_tokens_map.json (`names`) and added_tokens.json (`ids`); returns
    the special tokens by the key that names them.

    The last two are of transformers before 4.34, which wrote no decoder into the first. Beside a decoder they do not count.
    """
    decoder = config.get(DECODER, {})
    if DECODER in config:
        names = ids = {}
    special = _special(config | names)
    texts = {key: fields["content"] for key, fields in special.items()}
    listed = [decoder[n] for n in sorted(decoder, key=int)]
    inner.add_tokens([AddedToken(**fields) for fields in listed])
    in_file = inner.get_added_tokens_decoder()
    present = {token.content for token in in_file.values()}
    new: list[Settings] = [
        {"content": text, "special": text in texts.values()}
        for text in sorted(ids, key=ids.__getitem__)
        if ids[text] not in in_file
    ]
    new += [fields | {"special": True} for fields in special.values()]
    inner.add_tokens([AddedToken(**fields) for fields in new if fields["content"] not in present])
    return texts


def _special(config: Settings) -> dict[str, Settings]:
    """The fields of the special tokens by the key that names them; those of a list, which have none, by their text."""
    values = {key: config[key] for key in _NAMES if config.get(key)}
    for key in ("additional_special_tokens", "extra_special_tokens"):
        listed = config.get(key) or {}
        values |= listed if isinstance(listed, dict) else {str(token): token for token in listed}
    return {key: {"content": value} if isinstance(value, str) else value for key, value in values.items()}
