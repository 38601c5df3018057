"""What `podwright data tokenize` and `count` do: text into token shards, and how much a source holds.

The shards are there whole or not at all: they are written beside and moved. Their layout is `token_files.py`.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from podwright.data import texts, token_files
from podwright.data.token_files import Ids
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import corpus
from podwright.recipe.location import Location
from podwright.recipe.paths import require_new_directory
from podwright.recipe.pretrain import TextColumns
from podwright.rundir import part_of

Record = dict[str, Any]
_EVERY_S = 10.0


def tokenize(
    files: list[str], tokenizer: str, out: Path, shard_tokens: int, columns: TextColumns | None = None
) -> Record:
    """Write the documents of `files` of text (or `arithmetic`) as token shards into the new directory `out`. `columns`: of their rows."""
    if "://" in str(out) or ":/" in str(out):  # Path makes one slash of two
        raise UserError(
            f"--out {out} is not on this machine",
            "name a new directory here, and copy it to the store afterwards",
            "not-local",
        )
    require_new_directory(f"--out {out}", out)
    loaded = texts.named_tokenizer(tokenizer)
    total = sum(map(_text_bytes, files))
    with part_of(out.absolute(), f".{out.name}") as part:
        part.mkdir()
        if tokenizer != "bytes":
            loaded.save(part / "tokenizer")
        on = progress(total)
        documents = (text for file in files for text in texts.read(file, columns=columns, progress=on))
        meta = _written(documents, loaded, part, shard_tokens)
        if not meta["shards"]:
            raise texts.no_documents(", ".join(files))
        meta = {"format": token_files.FORMAT, "tokenizer": tokenizer, **meta}
        (part / corpus.META).write_text(json.dumps(meta, indent=1) + "\n")
    return {
        "out": str(out),
        **{k: v for k, v in meta.items() if k not in ("format", "shards")},
        "shards": len(meta["shards"]),
    }


def count(source: str, tokenizer: str = "", columns: TextColumns | None = None) -> Record:
    """Documents and tokens of a source; a text is tokenized for it, of rows the one in `columns`."""
    if not corpus.is_text(source):
        files = token_files.look(Location.of(source))
        return {"source": source, "documents": files.documents, "tokens": files.tokens, "shards": len(files.shards)}
    if not tokenizer:
        if source != "arithmetic":
            Location.of(source).size()  # UserError where there is none
        raise UserError(
            f"{source} is text",
            "say what is to count its tokens: --tokenizer bytes, or --tokenizer DIR",
            "no-tokenizer",
        )
    num_documents = num_tokens = num_bytes = 0

    def measured() -> Iterator[str]:
        nonlocal num_bytes
        for text in texts.read(source, columns=columns, progress=progress(_text_bytes(source))):
            num_bytes += len(text.encode())
            yield text

    for ids in texts.tokenized(measured(), texts.named_tokenizer(tokenizer)):
        num_documents, num_tokens = num_documents + 1, num_tokens + len(ids)
    ratio = round(num_bytes / num_tokens, 3) if num_tokens else None
    return {
        "source": source,
        "documents": num_documents,
        "tokens": num_tokens,
        "bytes": num_bytes,
        "bytes_per_token": ratio,
    }


def progress(total: int) -> Callable[[int], None]:
    """Takes the bytes that were read; says on stderr every ten seconds how far, how fast and until when."""
    done = 0
    began = time.monotonic()
    last_shown = time.monotonic()

    def on(size: int) -> None:
        nonlocal done, last_shown
        done += size
        now = time.monotonic()
        if now - last_shown < _EVERY_S:
            return
        last_shown = now
        rate = max(1.0, done / (now - began))
        share = min(1.0, done / max(1, total))  # of a compressed file more is read than it has
        minutes = max(0, total - done) / rate / 60
        line = f"{share:.0%} of {total / 1e6:,.0f} MB, {rate / 1e6:,.1f} MB/s, {minutes:,.0f} min left"
        print(line, file=sys.stderr, flush=True)

    return on


def _text_bytes(source: str) -> int:
    if source == "arithmetic":
        return 0
    if not corpus.is_text(source):
        raise UserError(
            f"{source} is not text to tokenize",
            "give files of texts, such as .jsonl or .txt, or arithmetic",
            "not-text",
        )
    return Location.of(source).size()


def _written(documents: Iterator[str], tokenizer: Tokenizer, out: Path, shard_tokens: int) -> Record:
    dtype = token_files.id_dtype(tokenizer.vocab_size)
    shards: list[Record] = []
    held: list[Ids] = []
    size = 0
    for ids in texts.tokenized(documents, tokenizer):
        held.append(np.array(ids, dtype))
        size += len(ids)
        if size >= shard_tokens:
            shards.append(_shard(out, len(shards), held))
            held, size = [], 0
    if held:
        shards.append(_shard(out, len(shards), held))
    totals = {key: sum(s[key] for s in shards) for key in ("tokens", "documents")}
    return {"vocab_size": tokenizer.vocab_size, "eos_id": tokenizer.end_id, "dtype": dtype, **totals, "shards": shards}


def _shard(out: Path, number: int, held: list[Ids]) -> Record:
    path = out / f"{number:05d}.npy"
    ids = np.concatenate(held)
    np.save(path, ids)
    ends = out / f"{number:05d}{corpus.ENDS}"
    np.save(ends, np.cumsum([len(d) for d in held], dtype=np.int64))
    return {
        "file": path.name,
        "tokens": len(ids),
        "documents": len(held),
        "bytes": path.stat().st_size,
        "crc32": zlib.crc32(ids.tobytes()),
        "ends_crc32": zlib.crc32(ends.read_bytes()),
    }
