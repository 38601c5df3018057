"""Lines of a file that is too large for a plan to read all of it: those of both ends and of pieces between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podwright.errors import UserError

Lines = list[tuple[str, bytes]]
"""("file:line", or "file at byte n" where the number is not known; the line)"""

_BOM = b"\xef\xbb\xbf"
_END_BYTES = 1 << 20  # of each end
_PIECES, _PIECE_BYTES = 16, 1 << 16  # between its ends


def sampled(path: Path) -> tuple[Lines, int]:
    """Lines that are not empty, and how many the file has, estimated by their length."""
    size = path.stat().st_size
    head = _read(path, 0, _END_BYTES)
    if b"\n" not in head:
        with path.open("rb") as f:
            head = f.readline()
    cut = head.rfind(b"\n") + 1 or len(head)
    # Split as bytes: str.splitlines would also cut at characters such as U+2028, which JSON allows in a string.
    numbered = enumerate(head[:cut].removeprefix(_BOM).split(b"\n"), 1)
    lines = [(f"{path}:{number}", line) for number, line in numbered if line.strip()]
    in_head = len(lines)
    for n in range(1, _PIECES + 1):
        start = round(size * n / (_PIECES + 1))
        piece = _read(path, start, _PIECE_BYTES)
        lines += _after_first_line(path, start, piece[: piece.rfind(b"\n") + 1])
    lines += _after_first_line(path, size - _END_BYTES, _read(path, size - _END_BYTES))
    rest = lines[in_head:]
    per_byte = len(rest) / sum(len(line) + 1 for _, line in rest) if rest else in_head / cut
    return lines, in_head + round((size - cut) * per_byte)


def _after_first_line(path: Path, start: int, piece: bytes) -> Iterator[tuple[str, bytes]]:
    """The lines that begin in a piece of a file; the first is left out, which may have begun before."""
    at = piece.find(b"\n") + 1
    if not at:
        return
    for line in piece[at:].split(b"\n"):
        if line.strip():
            yield f"{path} at byte {start + at:,}", line
        at += len(line) + 1


def _read(path: Path, start: int, size: int = -1) -> bytes:
    try:
        with path.open("rb") as f:
            f.seek(start)
            return f.read(size)
    except OSError as e:
        raise UserError(f"{path} cannot be read ({e.strerror})", "check the path and its permissions") from e
