"""Pictures, sounds and videos as arrays. Whatever is wrong with a file comes out as one kind of error, in one line."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from podwright.errors import from_os, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]
SAMPLE_RATE = 16_000
NUM_FRAMES = 16
_MOST_SECONDS = 600.0
_UNKNOWN_BYTES = 0x7FFF0000  # from here on a WAV header has a length that its writer did not know, as of a pipe
_LOUDEST = 1e12  # a sample is -1 to 1, of careless writers an integer of 32 bits; with larger ones features overflow
_CUT_SHARE = 0.01  # of a sound that may be missing at its end


class Unreadable(ValueError):
    """A file that is not there, or that nobody can decode."""


def picture(path: Path) -> Array:
    """[height, width, 3] of bytes, red, green and blue; [height, width, 4] with the opacity, of a file that is RGBA."""
    from PIL import Image, ImageOps

    with _explained(path), Image.open(path) as opened:
        upright = ImageOps.exif_transpose(opened)
        pixels = np.asarray(upright if upright.mode == "RGBA" else upright.convert("RGB"))
        return pixels


def sound(path: Path) -> Array:
    """[samples] at SAMPLE_RATE, one channel, from -1 to 1."""
    import av

    with _explained(path), av.open(str(path)) as opened:
        if not opened.streams.audio:
            raise Unreadable(f"{path.name} has no sound")
        sound_track = _sound(opened)
        if cut := _cut_off(path):
            raise Unreadable(cut)
        return sound_track


def video(path: Path) -> tuple[Array, Array | None]:
    """NUM_FRAMES pictures evenly apart [frames, height, width, 3], and the sound track if there is one."""
    import av

    with _explained(path), av.open(str(path)) as opened:
        if not opened.streams.video:
            raise Unreadable(f"{path.name} has no pictures")
        kept, every = [], 1
        for number, frame in enumerate(opened.decode(opened.streams.video[0])):
            if number % every:
                continue
            kept.append(frame.to_ndarray(format="rgb24"))
            if len(kept) == 2 * NUM_FRAMES:  # how long it is, nobody knows before its end
                kept, every = kept[::2], 2 * every
        if not kept:
            raise Unreadable(f"{path.name} has no complete picture")
        chosen = [kept[round(i * (len(kept) - 1) / (NUM_FRAMES - 1))] for i in range(NUM_FRAMES)]
    with _explained(path), av.open(str(path)) as opened:
        return np.stack(chosen), _sound(opened) if opened.streams.audio else None


def has_sound(path: Path) -> bool:
    import av

    with _explained(path), av.open(str(path)) as opened:
        return bool(opened.streams.audio)


def check(field: str, path: Path) -> str:
    """What is wrong with the file at `path`, "" if nothing is; `field` is image, audio or video."""
    try:
        {"image": picture, "audio": sound, "video": video}[field](path)
    except Unreadable as e:
        return str(e)
    return ""


def digest(path: Path) -> str:
    """Of the content: the same file under two names is one file."""
    with _explained(path):
        stat = path.stat()
        return _digest(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _digest(path: Path, *_: int) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class _explained:
    """Any fault of the libraries as Unreadable."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> None:
        if "\0" in str(self._path):
            raise Unreadable("its name holds a NUL byte")
        if os.path.isdir(self._path):
            raise Unreadable("it cannot be read (a directory, not a file)")
        if os.path.exists(self._path) and not os.path.isfile(self._path):  # a pipe would be waited for
            raise Unreadable("it cannot be read (no regular file)")

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, Unreadable) or not isinstance(error, Exception):
            return
        if isinstance(error, ImportError):
            raise error
        if isinstance(error, FileNotFoundError):
            raise Unreadable(_absent(self._path)) from error
        of_disk = from_os(error) if isinstance(error, OSError) else None
        reason = of_disk.what.rpartition(": ")[2] if of_disk else f"{kind.__name__}: {message_of(error, 80)}"
        raise Unreadable(f"it cannot be read ({reason})") from error


def _absent(path: Path) -> str:
    if os.path.islink(path):
        return f"it is a link to {os.readlink(path)}, which is not there"
    return "there is no such file"


def _cut_off(path: Path) -> str:
    """What is wrong with a WAV file whose header promises more samples than the file has, which no decoder minds; "" of others."""
    size = path.stat().st_size
    with path.open("rb") as f:
        riff = f.read(12)
        if riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
            return ""
        while len(chunk := f.read(8)) == 8:  # a name and a length, padded to an even one
            length = int.from_bytes(chunk[4:], "little")
            if chunk[:4] == b"data":
                there = size - f.tell()
                is_known = length < _UNKNOWN_BYTES
                what = f"it is WAV, cut off: its header says {length:,} bytes of sound, {there:,} are there"
                return what if is_known and there < (1 - _CUT_SHARE) * length else ""
            f.seek(length + length % 2, os.SEEK_CUR)
    return ""


def _sound(opened: Any) -> Array:
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=SAMPLE_RATE)
    frames: Iterator[Any] = itertools.chain.from_iterable(
        resampler.resample(f) for f in itertools.chain(opened.decode(audio=0), [None])
    )
    parts, seconds = [], 0.0
    for frame in frames:
        parts.append(frame.to_ndarray()[0])
        seconds += frame.samples / SAMPLE_RATE
        if seconds > _MOST_SECONDS:
            break
    if not parts:
        raise Unreadable("it holds no sound")
    samples = np.concatenate(parts).astype(np.float32)
    if not np.abs(samples).max() <= _LOUDEST:
        raise Unreadable(f"its sound holds samples that are not finite, or beyond {_LOUDEST:g}")
    return samples
