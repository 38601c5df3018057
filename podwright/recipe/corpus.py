"""Which sources of text and of tokens there are, by their names and by what marks a saved data set, and how a trainer counts them for a plan."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from podwright.errors import expanded

META = "meta.json"
"""in a directory of token shards that `podwright data tokenize` wrote"""
ENDS = ".ends.npy"
"""ending of a file that says where the documents of a shard end"""
RECORDS = ".array_record"
GENERATED = 20_000
"""documents of `arithmetic` when nobody says how many"""
COMPRESSIONS = MappingProxyType({".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"})
"""suffix -> name of the compression in fsspec"""
ARROW = ".arrow"
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ARROW)
"""of files of rows"""
TEXT = ".txt"
"""a file that is one document"""


@dataclasses.dataclass(frozen=True)
class TokenCounts:
    """How much a source holds, as far as it was read."""

    tokens: int
    documents: int | None
    """None: the files do not say"""
    estimated: bool = False
    """from a part of it"""
    looked_at: int | None = None
    """so many ids were held against the vocabulary; None: all"""

    @property
    def about(self) -> str:
        return f"{'about ' if self.estimated else ''}{self.tokens:,} tokens"


def container(name: str) -> str:
    """The suffix that says how the rows of a file or a saved data set are read, without that of a compression; "" of others."""
    if is_saved(name):
        return ARROW
    bare = uncompressed(name)
    return next((suffix for suffix in SUFFIXES if bare.endswith(suffix)), "")


def is_saved(source: str) -> bool:
    """Whether a source is a directory that `datasets.save_to_disk` has written."""
    return any((expanded(source) / name).is_file() for name in ("state.json", "dataset_dict.json"))


def is_text(source: str) -> bool:
    """Whether a source is text, which needs a tokenizer; else it holds token ids."""
    return source == "arithmetic" or container(source) != "" or uncompressed(source).endswith(TEXT)


def uncompressed(name: str) -> str:
    """A name in lower case, without the suffix of a compression."""
    bare = name.lower().rstrip("/")
    for compression in COMPRESSIONS:
        bare = bare.removesuffix(compression)
    return bare
