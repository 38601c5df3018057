"""The directory that a recipe's `model.source` names: of this machine, or a snapshot of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podwright.data.tokenizer import FILES
from podwright.errors import UserError, expanded, from_os
from podwright.recipe.location import Unreachable

_WEIGHTS = ("*.json", "*.safetensors", "*.jinja", "*.txt")
_TOKENIZER = ("config.json", *FILES)


def weights(source: str, revision: str | None = None) -> Path | None:
    """The directory of the weights, at the commit `revision` if it is the hub's; None for random weights."""
    return _directory(source, _WEIGHTS, revision)


def tokenizer(source: str) -> Path | None:
    """The directory of the tokenizer and the configuration; None for random weights. Unreachable where the hub does not give it here."""
    try:
        return _directory(source, _TOKENIZER)
    except UserError as e:
        if e.code != "not-on-hub":
            raise
        raise Unreachable(e.what, e.fix, e.code) from e


def _directory(source: str, patterns: Sequence[str], revision: str | None = None) -> Path | None:
    if source == "random":
        return None
    path = expanded(source)
    if path.is_dir():
        return path
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=list(patterns)))
    except Exception as e:  # the hub's clients raise dozens of types, all of them meaning that there are no weights
        if isinstance(e, OSError) and (of_disk := from_os(e)):
            raise of_disk from e
        commit = f" at commit {revision}" if revision else ""
        raise UserError(
            f"model.source={source!r} is no directory and cannot be fetched from the hub{commit} ({type(e).__name__})",
            "download it where there is a network and type model.source=DIRECTORY, or log in with `hf auth login`",
            "not-on-hub",
        ) from e
