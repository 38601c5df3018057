"""How much text a .jsonl or .txt file holds, and whether it can be read: all of a small file, both ends and pieces of a large one.

A piece meets a line as often as that is long. So the mean over the bytes of pieces of (text in a line) / (length of the line) is an
estimate without bias of the text in all lines, however different these are.
"""

from __future__ import annotations

import io
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from podwright.errors import UserError
from podwright.recipe import corpus
from podwright.recipe.location import Location

_SMALL_BYTES = 8 << 20  # of a file that is read to its end
_PIECES, _PIECE_BYTES, _END_BYTES = 64, 1 << 14, 1 << 20
_STORE_PIECES = 4  # of a file in a store, where each is a question
_REACH_BYTES = 2 << 20  # how far beyond a piece the ends of its first and last line are looked for


@dataclass(frozen=True)
class TextSample:
    text_bytes: int
    """of all documents, without the JSON around them"""
    documents: int
    read_bytes: int
    complete: bool
    """whether all of the file was read; else the first two are estimates"""
    doubt: float = 0.0
    """by what share the text may be another amount: of lines that are too long to look at, and two standard errors of the pieces"""
    num_empty: int = 0
    """documents without a character that is not white space; an estimate unless `complete`"""


@dataclass(frozen=True)
class _Piece:
    start: int
    stop: int
    weight: float
    """bytes of the file that a byte of it stands for"""


def look(place: Location) -> TextSample:
    """UserError for an empty file and for what training cannot read, as far as that is looked at."""
    size = place.size()
    if not size:
        example = "plain text" if place.suffix == ".txt" else 'lines such as {"text": "..."}'
        raise UserError(f"{place.typed} is empty", f"give a file with {example}")
    pieces = _pieces(place, size)
    read = sum(piece.stop - piece.start for piece in pieces)
    if place.suffix == ".txt":
        for piece in pieces:
            corpus.decoded(place, place.read(piece.start, piece.stop), piece.start, size)
        return TextSample(size, 1, read, read == size)
    corpus.require_format(place, place.read(0, _PIECE_BYTES))
    known = text = documents = empty = 0.0
    densities = []
    for piece in pieces:
        piece_known = piece_text = 0.0
        for overlap, length, document in _lines(place, piece, size):
            piece_known += overlap
            if document is not None:
                piece_text += overlap * len(document.encode()) / length
                documents += overlap * piece.weight / length
                empty += overlap * piece.weight / length * (not document.strip())
        known, text = known + piece_known * piece.weight, text + piece_text * piece.weight
        densities.append(piece_text / (piece.stop - piece.start))
    if known and not documents:
        raise UserError(f"{place.typed} has no documents", 'give a file with lines such as {"text": "..."}')
    between = sum(piece.weight * (piece.stop - piece.start) for piece in pieces[1:-1])
    spread = statistics.stdev(densities[1:-1]) / math.sqrt(len(densities) - 2) * between if len(pieces) > 3 else 0.0
    doubt = size - known + 2 * spread
    share = size / known if known else 0.0
    return TextSample(
        round(text * share),
        max(1, round(documents * share)),
        read,
        read == size,
        doubt / max(1.0, text + doubt),
        round(empty * share),
    )


def _pieces(place: Location, size: int) -> list[_Piece]:
    if size <= _SMALL_BYTES:
        return [_Piece(0, size, 1.0)]
    number = _PIECES if place.local is not None else _STORE_PIECES
    between = size - 2 * _END_BYTES
    starts = [_END_BYTES + round(between * (n + 0.5) / number) for n in range(number)]
    weight = between / (number * _PIECE_BYTES)
    middle = [_Piece(start, start + _PIECE_BYTES, weight) for start in starts]
    return [_Piece(0, _END_BYTES, 1.0), *middle, _Piece(size - _END_BYTES, size, 1.0)]


def _lines(place: Location, piece: _Piece, size: int) -> Iterator[tuple[int, int, str | None]]:
    """(bytes in the piece, length, its text) of every line with a part in the piece; no text: an empty line. What is left out
    of the piece is of lines whose ends are out of reach."""
    content = place.read(piece.start, piece.stop)
    before, after = _before(place, piece.start), _after(place, piece.stop, size)
    begin = piece.start
    if before is None:
        cut = content.find(b"\n") + 1 or len(content)
        before, content, begin = b"", content[cut:], begin + cut
    if content.endswith(b"\n"):
        after = b""
    elif after is None:
        cut = content.rfind(b"\n") + 1
        before, content = before if cut else b"", content[:cut]
    offset = begin - len(before)
    joined = before + content + (after or b"") if content else b""
    for number, line in enumerate(io.BytesIO(joined), 1):
        overlap = min(offset + len(line), piece.stop) - max(offset, piece.start)
        where = f"{place.typed}:{number}" if piece.start == 0 else f"{place.typed} at byte {offset:,}"
        yield overlap, len(line), corpus.text_of(place, where, line) if line.strip() else None
        offset += len(line)


def _before(place: Location, at: int) -> bytes | None:
    """What the line at a byte begins with; None where its begin is out of reach."""
    reach = _PIECE_BYTES
    while True:
        start = max(0, at - reach)
        content = place.read(start, at) if at else b""
        if (cut := content.rfind(b"\n") + 1) or start == 0:
            return content[cut:]
        if reach >= _REACH_BYTES:
            return None
        reach *= 4


def _after(place: Location, at: int, size: int) -> bytes | None:
    """What the line before a byte goes on with; None where its end is out of reach."""
    reach = _PIECE_BYTES
    while True:
        content = place.read(at, min(size, at + reach)) if at < size else b""
        if (cut := content.find(b"\n") + 1) or at + reach >= size:
            return content[:cut] if cut else content
        if reach >= _REACH_BYTES:
            return None
        reach *= 4
