"""The bytes of a log on disk or from a pipe, plain or compressed, as text in UTF-8."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import math
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from podwright.errors import UserError
from podwright.failures.scan import BLOCK


def _zstd(file: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError as e:
        raise UserError(f"{file.name} is compressed (zstd)", "type pip install zstandard", "missing-package") from e
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)


_READERS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
"""by the first bytes of a file"""


def blocks(path: Path) -> Iterator[bytes]:
    """The text that a log has now; what a process appends meanwhile is left out. A pipe is read to its end, and a compressed log as far as
    it is whole. UserError for one that is damaged."""
    with path.open("rb") as file:
        head = file.peek(8)
        read = next((reader for magic, reader in _READERS.items() if head.startswith(magic)), None)
        if read:
            yield from _decompressed(path, read(file))
        elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            decoder = codecs.getincrementaldecoder("utf-16")("replace")
            for block in _plain(file):
                yield decoder.decode(block).encode("utf-8", "replace")
        else:
            yield from _plain(file)


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    status = os.fstat(file.fileno())
    left: float = status.st_size if stat.S_ISREG(status.st_mode) else math.inf
    while left > 0 and (block := file.read(int(min(BLOCK, left)))):
        yield block
        left -= len(block)


def _decompressed(path: Path, file: Any) -> Iterator[bytes]:
    zstd_error = getattr(sys.modules.get("zstandard"), "ZstdError", OSError)  # imported where a log needs it
    try:
        while block := file.read1(BLOCK):
            yield block
    except EOFError:  # the process that writes it is still at work, or was killed
        return
    except (OSError, zlib.error, lzma.LZMAError, zstd_error) as e:
        if isinstance(e, OSError) and e.errno is not None:  # of the disk, and not of the bytes
            raise
        raise UserError(f"{path} is damaged: {e}", "give another copy of it", "damaged-log") from e
