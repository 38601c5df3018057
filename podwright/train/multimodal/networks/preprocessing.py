"""What an encoder gets of a decoded file: a picture as a normalised square, a sound as log-mel. A recipe names the way.

The way 'purrsight' is that of PurrSight (github.com/xinzhuwang-wxz/Purr-Sight), whose aligner.pt was trained on its features.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from podwright.data.media import SAMPLE_RATE, Array

if TYPE_CHECKING:
    from PIL.Image import Image as PictureFile

BINS = 64
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as timm's models want it
_WINDOW, _HOP, _LOW, _HIGH = 512, 160, 50, 8000  # PANNs' log-mel at 16 kHz
_LEAST_POWER = 1e-10  # what log10 gets at least: -100 dB
_RESIZED = 1.143  # shorter side before the crop, as a multiple of the square: 256 for 224
_SILENCE_DB = -40.0


def stretched(image: Array, size: int) -> Tensor:
    """[3, size, size] of all of the picture [height, width, 3 or 4], whatever its shape; its opacity is left out."""
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(image[..., :3]))
    return _normalised(picture.resize((size, size), Image.Resampling.BICUBIC))


def cropped(image: Array, size: int) -> Tensor:
    """[3, size, size] of the middle of the picture [height, width, 3], whose shorter side becomes int(1.143 size) before;
    one with an opacity [height, width, 4] lies on white.
    """
    from PIL import Image

    picture = Image.fromarray(image)
    if picture.mode == "RGBA":
        white = Image.new("RGB", picture.size, (255, 255, 255))
        white.paste(picture, mask=picture.getchannel("A"))
        picture = white
    height, width = image.shape[:2]
    short = int(size * _RESIZED)
    wide = int(short * width / min(width, height))
    high = int(short * height / min(width, height))
    resized = picture.resize((wide, high), Image.Resampling.BILINEAR)
    left = round((wide - size) / 2)
    top = round((high - size) / 2)
    return _normalised(resized.crop((left, top, left + size, top + size)))


def from_start(samples: Array, seconds: float) -> Tensor:
    """[1, frames, bins] in dB of power: the first `seconds`, silence after the end of a shorter sound."""
    wanted = math.ceil(seconds * SAMPLE_RATE)
    padded = np.pad(samples[:wanted], (0, max(0, wanted - len(samples))))
    return _log(_magnitudes(torch.from_numpy(padded)).square() @ _filters())


def trimmed_centre(samples: Array, seconds: float) -> Tensor:
    """[1, frames, bins] in dB of magnitude, `seconds` in steps of 10 ms: the middle of what lies between the first and the last
    sample above -40 dB (all, where none is), zeros after the end of a shorter sound.

    A stretch of up to 256 samples is mirrored more than once to fill a window, where PurrSight refuses the file.
    """
    frames = round(seconds * SAMPLE_RATE / _HOP)
    levels = 20 * np.log10(np.abs(samples, dtype=np.float64) + 1e-10)
    loud = np.flatnonzero(levels > _SILENCE_DB)
    kept = samples[loud[0] : loud[-1] + 1] if len(loud) else samples
    mirrored = np.pad(kept.astype(np.float64), _WINDOW // 2, mode="reflect")
    mel = _log(_magnitudes(torch.from_numpy(mirrored), centred=False) @ _filters().double())
    start = max(0, (mel.shape[1] - frames) // 2)
    middle = mel[:, start : start + frames].float()
    return torch.nn.functional.pad(middle, (0, 0, 0, frames - middle.shape[1]))


PICTURES: Mapping[str, Callable[..., Tensor]] = {"stretch": stretched, "purrsight": cropped}
SOUNDS: Mapping[str, Callable[..., Tensor]] = {"start": from_start, "purrsight": trimmed_centre}


def _normalised(picture: PictureFile) -> Tensor:
    values = np.asarray(picture, np.float32) / 255
    return torch.from_numpy(
        ((values - np.array(_MEAN, np.float32)) / np.array(_STD, np.float32)).transpose(2, 0, 1).copy()
    )


def _magnitudes(samples: Tensor, centred: bool = True) -> Tensor:
    """[frames, frequencies]"""
    window = torch.hann_window(_WINDOW, dtype=samples.dtype)
    return (
        torch.stft(samples, _WINDOW, _HOP, window=window, center=centred, pad_mode="reflect", return_complex=True)
        .abs()
        .T
    )


def _log(mel: Tensor) -> Tensor:
    return 10 * mel.clamp(min=_LEAST_POWER).log10()[None]


@functools.cache
def _filters() -> Tensor:
    from transformers.audio_utils import mel_filter_bank

    bank = mel_filter_bank(_WINDOW // 2 + 1, BINS, _LOW, _HIGH, SAMPLE_RATE, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(bank).float()
