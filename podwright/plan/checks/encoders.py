"""Whether the frozen encoders of Phase 1 and Phase 2 take pictures and sounds of the sizes that a recipe gives."""

from __future__ import annotations

import itertools
import math

from podwright.plan.findings import Finding
from podwright.recipe.llm import IMAGE_DIMS
from podwright.recipe.multimodal import Encoders

# Of train/multimodal/networks/preprocessing.py and encoders.py:
_RATE, _HOP, _WINDOW = 16_000, 160, 512  # samples a second, between frames, and of one
_MOST_SECONDS = 600  # that are read of a sound
_CNN14_FRAMES = 32  # which it halves five times
_GRID = 8  # fields along each side, into which `tiny` divides a picture


def check(section: Encoders) -> list[Finding]:
    return [*_image(section), *_audio(section)]


def _image(section: Encoders) -> list[Finding]:
    if section.image not in IMAGE_DIMS:
        what = f"encoders.image={section.image} was not looked at: whether timm has it, and for which sizes of pictures, is seen when a run starts"
        fix = f"type {', or '.join(f'encoders.image={name}' for name in IMAGE_DIMS)}"
        return [Finding("model", "inconclusive", what, fix, "unknown-model")]
    if section.image == "tiny" and section.image_size < _GRID:
        what = f"encoders.image_size={section.image_size} is less than the {_GRID} x {_GRID} fields that encoders.image=tiny looks at"
        return [Finding("model", "error", what, f"type encoders.image_size={_GRID} or more", "too-small")]
    return []


def _audio(section: Encoders) -> list[Finding]:
    seconds = section.audio_seconds
    if seconds > _MOST_SECONDS:
        what = f"encoders.audio_seconds={seconds:g} is more than the {_MOST_SECONDS} s that are read of a sound"
        return [Finding("model", "error", what, f"type encoders.audio_seconds={_MOST_SECONDS} or less", "too-long")]
    needed = _CNN14_FRAMES if section.audio == "cnn14" else 1
    if _frames(section, seconds) >= needed:
        return []
    least = next(n / 100 for n in itertools.count(1) if _frames(section, n / 100) >= needed)
    what = (
        f"encoders.audio_seconds={seconds:g} is too short for encoders.audio={section.audio}, which needs {least:g} s"
    )
    return [Finding("model", "error", what, f"type encoders.audio_seconds={least:g} or more", "too-short")]


def _frames(section: Encoders, seconds: float) -> int:
    """Of log-mel; 0 where none can be made."""
    if section.audio_preprocessing == "purrsight":
        return round(seconds * _RATE / _HOP)
    samples = math.ceil(seconds * _RATE)  # half a window is mirrored at both ends
    return 1 + samples // _HOP if samples > _WINDOW // 2 else 0
