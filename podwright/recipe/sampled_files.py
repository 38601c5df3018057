"""Lines of files: all of them, as training reads them, or as many as a plan takes the time for, both ends among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from podwright.errors import UserError
from podwright.recipe.paths import require_file
from podwright.recipe.text_lines import SAMPLE_BYTES, is_utf8, not_utf8, other_format

Lines = list[tuple[str, bytes]]
"""("file:line", or "file at byte n" where the number is not known; the line)"""

_BOM = b"\xef\xbb\xbf"
_SMALL_BYTES = 8 << 20  # of a file that a plan reads to its end, in half a second
_END_BYTES = 1 << 20  # of each end of a larger one
_HEAD_BYTES = 1 << 12  # that show what a file is
_PIECES, _PIECE_BYTES = 16, 1 << 16  # between its ends


def all_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Those of a file that are not empty; a byte order mark and CRLF are passed over."""
    return _numbered(path, _read(path))


def sampled_text(path: Path) -> tuple[Lines, int, bool]:
    """Lines that are not empty, how many the file has, and whether these are all of them. Of a large file they are those of both
    ends and of pieces between, and the number is an estimate by their length. UserError as training would have it."""
    require_file(str(path), path)
    size = path.stat().st_size
    if size <= _SMALL_BYTES:
        lines = list(all_lines(path))
        return lines, len(lines), True
    head = _read(path, 0, _END_BYTES)
    if b"\n" not in head:
        head = _first_line(path)
    cut = head.rfind(b"\n") + 1 or len(head)
    lines = list(_numbered(path, head[:cut]))
    in_head = len(lines)
    for n in range(1, _PIECES + 1):
        start = round(size * n / (_PIECES + 1))
        piece = _read(path, start, _PIECE_BYTES)
        lines += _after_first_line(path, start, piece[: piece.rfind(b"\n") + 1])
    lines += _after_first_line(path, size - _END_BYTES, _read(path, size - _END_BYTES))
    rest = lines[in_head:]
    per_byte = len(rest) / sum(len(line) + 1 for _, line in rest) if rest else in_head / cut
    return lines, in_head + round((size - cut) * per_byte), False


def head_of(path: Path) -> bytes:
    """The first bytes of a file, from which its encoding is detected."""
    return _read(path, 0, SAMPLE_BYTES)


def require_utf8(path: Path, lines: Iterable[tuple[str, bytes]]) -> None:
    """UserError for the first of its `lines` that is not UTF-8, with what to type for the file."""
    for where, line in lines:
        if not is_utf8(line):
            raise not_utf8(str(path), where, head_of(path) + b"\n" + line)


def _numbered(path: Path, text: bytes) -> Iterator[tuple[str, bytes]]:
    # Split as bytes: str.splitlines would also cut at characters such as U+2028, which JSON allows inside a string.
    for number, line in enumerate(text.removeprefix(_BOM).split(b"\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line


def _after_first_line(path: Path, start: int, piece: bytes) -> Iterator[tuple[str, bytes]]:
    """The lines that begin in a piece of a file; the first is left out, which may have begun before."""
    at = piece.find(b"\n") + 1
    if not at:
        return
    for line in piece[at:].split(b"\n"):
        if line.strip():
            yield f"{path} at byte {start + at:,}", line
        at += len(line) + 1


def _first_line(path: Path) -> bytes:
    with path.open("rb") as f:
        return f.readline()


def _read(path: Path, start: int = 0, size: int = -1) -> bytes:
    try:
        with path.open("rb") as f:
            f.seek(start)
            content = f.read(size)
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror})", "check the path and its permissions") from e
    if start == 0 and (fault := other_format(str(path), content[:_HEAD_BYTES].partition(b"\n")[0])):
        raise fault
    return content
