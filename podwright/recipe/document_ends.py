"""Whether documents of token shards end where they can: the faults of `*.ends.npy` and of ids that end documents, without NumPy.

A plan, `podwright data check` and training name these faults alike.
"""

from __future__ import annotations

import array
import itertools
import zlib

from podwright.errors import UserError
from podwright.recipe import corpus
from podwright.recipe.corpus import Shard, TokenFiles

CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "int32": "i", "int64": "q"}
"""dtype of a file -> the type code of `array.array`"""
_COPY_AGAIN = "copy the directory again"


def require(shard: Shard) -> None:
    """UserError where the file that says where documents of a shard end is none or does not fit the tokens."""
    content = shard.ends.read()
    require_checksum(shard, content)
    try:
        described = corpus.array_file(shard.ends, len(content))
    except UserError as e:
        raise unreadable(shard) from e
    ends = array.array(CODES[described.dtype], content[described.header :])
    if (
        len(ends) != shard.documents
        or ends[-1] != shard.tokens
        or any(end <= begin for begin, end in itertools.pairwise((0, *ends)))
    ):
        raise misfit(shard)


def require_checksum(shard: Shard, content: bytes) -> None:
    """UserError where `content` of the file of ends is not what was written; shards of other versions have no checksum of it."""
    if shard.ends_crc32 not in (None, zlib.crc32(content)):
        what = f"{shard.ends.typed} is not what was written: its checksum differs from {corpus.META}"
        raise UserError(what, _COPY_AGAIN)


def unreadable(shard: Shard) -> UserError:
    return UserError(f"{shard.ends.typed} cannot be read", _COPY_AGAIN)


def misfit(shard: Shard) -> UserError:
    return UserError(f"{shard.ends.typed} does not fit {shard.place.name}", _COPY_AGAIN)


def unverified(files: TokenFiles) -> str:
    """What a check says of shards without a checksum of where documents end; "" of others."""
    if all(shard.documents is None or shard.ends_crc32 is not None for shard in files.shards):
        return ""
    return (
        f"where documents end was not verified by a checksum: {corpus.META} has none for the *{corpus.ENDS} files; "
        "tokenize again to write it"
    )


def nothing_to_predict(source: str, eos_id: int | None = None) -> UserError:
    """Of a source whose documents have one token each, which `data.eos_id` made of it where `eos_id` is given."""
    if eos_id is not None:
        what = f"every document of {source} is only its end token, data.eos_id={eos_id}"
        return UserError(what, "type data.eos_id=ID with the id that ends documents in it, or data.eos_id=null")
    what = f"every document of {source} has a single token, so that there is no next token to predict"
    return UserError(what, "tokenize files that hold some text")
