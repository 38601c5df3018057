"""Text to train a language model on: its documents out of any source, and the tokenizer that it goes with.

A source of text is a file of rows (`rows.py` and `layouts.py`), a .txt file, both also as URLs, or `arithmetic`. Nothing here reads
token shards.
"""

from __future__ import annotations

import codecs
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from podwright.data import arithmetic, layouts, rows, token_files
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe import corpus, text_lines
from podwright.recipe.arithmetic_capacity import CORPUS_NUMBER, CORPUS_OPERATIONS
from podwright.recipe.location import Location
from podwright.recipe.paths import no_tokenizer
from podwright.recipe.pretrain import TextColumns

_AT_A_TIME = 256  # documents
_PIECES, _PIECE_BYTES = 64, 1 << 16  # of a large .txt file, from its first byte to its last
_PDF = b"%PDF"


@dataclasses.dataclass(frozen=True)
class SampledTexts:
    """What a plan reads of a source of text."""

    texts: Sequence[str]
    documents: int
    """of the source; an estimate unless `complete`, as the next two are"""
    num_bytes: int
    """of all documents, without what stands around them"""
    num_empty: int
    complete: bool
    """whether all of the source was read"""


def read(
    source: str,
    num_documents: int = 0,
    seed: int = 0,
    columns: TextColumns | None = None,
    progress: Callable[[int], None] = lambda size: None,
) -> Iterator[str]:
    """The documents of a source of text; `progress` gets how many bytes were read, as far as that is known. A .txt file is one document."""
    if source == "arithmetic":
        problems, _ = arithmetic.generate(num_documents or corpus.GENERATED, 1, CORPUS_OPERATIONS, CORPUS_NUMBER, seed)
        yield from (f"{p.question}\n{p.solution}" for p in problems)
        return
    place = Location.of(source)
    if not corpus.container(source):
        with rows.opened(place) as file:
            content = file.read()
        progress(len(content))
        yield decoded(place, content)
        return
    for where, row in rows.rows(place, layouts.names_of_text(columns), progress):
        yield layouts.text(where, row, columns)


def sampled(source: str, columns: TextColumns | None = None) -> SampledTexts:
    """Of a file all that training reads where it is small, else both ends and pieces between; UserError as training would have it."""
    place = Location.of(source)
    if not corpus.container(source):
        return _sampled_document(place)
    sample = rows.sampled(place, layouts.names_of_text(columns))
    texts = [layouts.text(where, rows.required(row), columns) for where, row in sample.rows]
    if not texts:
        raise no_documents(source)
    num_bytes = sample.estimated([len(text.encode()) for text in texts])
    num_empty = sample.estimated([not text.strip() for text in texts])
    return SampledTexts(texts, sample.total, num_bytes, num_empty, sample.complete)


def no_documents(source: str) -> UserError:
    return UserError(f"{source} has no documents", "give a file with texts", "no-examples")


def _sampled_document(place: Location) -> SampledTexts:
    """Of a .txt file."""
    is_compressed = place.suffix in corpus.COMPRESSIONS  # such a file is read from its start
    with rows.opened(place) as file:
        content = file.read() if is_compressed else file.read(rows.SMALL_BYTES + 1)
    if is_compressed or len(content) <= rows.SMALL_BYTES:
        return SampledTexts([decoded(place, content)], 1, len(content), 0, complete=True)
    size = place.size()
    starts = [(size - _PIECE_BYTES) * n // (_PIECES - 1) for n in range(_PIECES)]
    pieces = [decoded(place, place.read(start, start + _PIECE_BYTES), start, size) for start in starts]
    return SampledTexts(pieces, 1, size, 0, complete=False)


def decoded(place: Location, content: bytes, start: int = 0, size: int | None = None) -> str:
    """A piece of a .txt file of `size` bytes (None: this is all of it) that begins at byte `start`, without a byte order mark and the
    parts of characters at its ends; UserError where it is no text in UTF-8."""
    if not content:
        raise UserError(f"{place.typed} is empty", "give a file with plain text", "empty-text")
    if fault := text_lines.pointer(place.typed, content):
        raise fault
    cut = 0
    if start:
        cut = next((n for n, byte in enumerate(content[:4]) if byte & 0xC0 != 0x80), 0)
    is_end = size is None or start + len(content) == size
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(content[cut:], final=is_end)
    except UnicodeDecodeError as e:
        raise rows.not_utf8(place.typed) from e
    if "\0" in text or content.startswith(_PDF):
        raise rows.not_utf8(place.typed)
    return text if start else text.removeprefix("\ufeff")


def find_tokenizer(source: str, name: str = "") -> Tokenizer | None:
    """The tokenizer called `name` (bytes, a Hugging Face directory, a tokenizer.json); for "" that which `source` brings along."""
    if name:
        return named_tokenizer(name)
    if corpus.is_text(source) or source.endswith(".npy"):
        return None
    place = Location.of(source)
    if not (place / corpus.META).exists():
        return None
    files = token_files.look(place)
    if files.tokenizer == "bytes":
        return Tokenizer.bytes()
    kept = place / "tokenizer"
    if not kept.is_dir():
        return None
    return Tokenizer.of_files({file: (kept / file).read() for file in kept.files()}, kept.typed)


def named_tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return Tokenizer.bytes()
    path = expanded(name)
    directory = path.parent if path.name == "tokenizer.json" else path
    if not directory.is_dir():
        raise no_tokenizer(name, path)
    return Tokenizer.load(directory)


def tokenizer_of_text(source: str, name: str, vocab_size: int | None) -> Tokenizer:
    """The tokenizer called `name` for a source of text; UserError where there is none, or one with more tokens than the model."""
    if not name:
        what = f"{source} is text, and there is no tokenizer for it"
        raise UserError(what, "type data.tokenizer=bytes, or a Hugging Face directory", "no-tokenizer")
    tokenizer = named_tokenizer(name)
    token_files.require_fits(tokenizer.vocab_size, vocab_size, f"the tokenizer {name}")
    return tokenizer


def tokenized(documents: Iterator[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    while some := list(itertools.islice(documents, _AT_A_TIME)):
        yield from tokenizer.documents(some)
