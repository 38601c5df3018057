"""Pictures, sounds and videos as arrays. Whatever is wrong with a file comes out as one kind of error, in one line."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]
SAMPLE_RATE = 16_000
NUM_FRAMES = 16
_MOST_SECONDS = 600.0


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
        return _sound(opened)


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
            raise Unreadable(f"{path.name} has no whole picture")
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
    with _explained(path), path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class _explained:
    """Any fault of the libraries as Unreadable."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> None:
        if self._path.exists() and not self._path.is_file():  # a pipe would be waited for
            raise Unreadable("it cannot be read (no regular file)")

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None or isinstance(error, Unreadable) or not isinstance(error, Exception):
            return
        if isinstance(error, ImportError):
            raise error
        if isinstance(error, FileNotFoundError):
            raise Unreadable("there is no such file") from error
        reason = (str(error).splitlines() or [""])[0][:100]
        raise Unreadable(f"it cannot be read ({kind.__name__}: {reason})") from error


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
    return np.concatenate(parts).astype(np.float32)
