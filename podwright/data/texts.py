"""Text to train a language model on: its documents out of any source, and the tokenizer that it goes with.

A source of text is a .jsonl file, a .txt file (both also as URLs) or `arithmetic`. Nothing here reads token shards.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from podwright.data import arithmetic
from podwright.data.tokenizer import Tokenizer
from podwright.errors import expanded
from podwright.recipe import corpus
from podwright.recipe.arithmetic_capacity import CORPUS_NUMBER, CORPUS_OPERATIONS
from podwright.recipe.location import Location
from podwright.recipe.paths import no_tokenizer

_AT_A_TIME = 256  # documents


def read(
    source: str,
    num_documents: int = 0,
    seed: int = 0,
    cwd: Path = Path(),
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[str]:
    """The documents of a source of text; `progress` gets how many bytes were read. A .txt file is one document."""
    if source == "arithmetic":
        problems, _ = arithmetic.generate(num_documents or corpus.GENERATED, 1, CORPUS_OPERATIONS, CORPUS_NUMBER, seed)
        yield from (f"{p.question}\n{p.solution}" for p in problems)
        return
    place = Location.of(source, cwd)
    if place.suffix == ".txt":
        content = place.read()
        yield corpus.decoded(place, content, 0, len(content))
        return
    for number, line in enumerate(corpus.lines(place), 1):
        progress(len(line))
        if line.strip():
            yield corpus.text_of(place, f"{place.typed}:{number}", line)


def find_tokenizer(source: str, name: str = "", cwd: Path = Path()) -> Tokenizer | None:
    """The tokenizer called `name` (bytes, a Hugging Face directory, a tokenizer.json); for "" that which `source` brings along."""
    if name:
        return named_tokenizer(name, cwd)
    if corpus.is_text(source) or source.endswith(".npy"):
        return None
    place = Location.of(source, cwd)
    if not (place / corpus.META).exists():
        return None
    files = corpus.look(place)
    if files.tokenizer == "bytes":
        return Tokenizer.bytes()
    kept = place / "tokenizer"
    if not kept.is_dir():
        return None
    return Tokenizer.of_files({file: (kept / file).read() for file in kept.files()}, kept.typed)


def named_tokenizer(name: str, cwd: Path = Path()) -> Tokenizer:
    if name == "bytes":
        return Tokenizer.bytes()
    path = cwd / expanded(name)
    directory = path.parent if path.name == "tokenizer.json" else path
    if not directory.is_dir():
        raise no_tokenizer(name, path)
    return Tokenizer.load(directory)


def tokenized(documents: Iterator[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    while some := list(itertools.islice(documents, _AT_A_TIME)):
        yield from tokenizer.documents(some)
