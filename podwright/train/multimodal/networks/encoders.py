"""The frozen encoders: a file's picture or sound as one vector. Which they are and whose weights they have, a recipe says.

CNN14 is that of PANNs (arXiv 1912.10211) at 16 kHz, with the names of its published weights. 'tiny' is a layer of random
filters and a coarse grid: enough for drawings of 64 pixels, and made in a millisecond.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from podwright.data.media import SAMPLE_RATE, Array
from podwright.errors import UserError
from podwright.recipe.multimodal import Encoders

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as timm's models want it
_BINS, _WINDOW, _HOP, _LOW, _HIGH = 64, 512, 160, 50, 8000  # PANNs' log-mel at 16 kHz
SEED = 0  # of random encoders: two runs with the same recipe see the same features, whatever their own seed


class Encoder(nn.Module):
    """`prepare` makes a file's content a tensor on the host, `forward` makes a batch of those vectors."""

    def __init__(self, body: nn.Module, prepare: Any, dim: int):
        super().__init__()
        self.body, self.prepare, self.dim = body, prepare, dim

    def forward(self, batch: Tensor) -> Tensor:
        features: Tensor = self.body(batch)
        return features


def image_encoder(recipe: Encoders) -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        prepare = functools.partial(_picture, size=recipe.image_size)
        if recipe.image == "tiny":
            return frozen(Encoder(_Grid(3), prepare, _Grid.DIM))
        body = _timm(recipe.image, recipe.image_weights)
    return frozen(Encoder(_PooledImage(body), prepare, body.num_features))


def audio_encoder(recipe: Encoders) -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        prepare = functools.partial(_log_mel, seconds=recipe.audio_seconds)
        if recipe.audio == "tiny":
            return frozen(Encoder(_Grid(1), prepare, _Grid.DIM))
        body = Cnn14()
    if recipe.audio_weights != "random":
        _load(body, Path(recipe.audio_weights), "encoders.audio_weights")
    return frozen(Encoder(body, prepare, Cnn14.DIM))


def fingerprint(*modules: nn.Module, about: str) -> str:
    """Equal exactly when the same files give the same features."""
    digest = hashlib.sha256(about.encode())
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class _PooledImage(nn.Module):
    """The mean over the last map of one of timm's models."""

    def __init__(self, body: Any):
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.body.forward_features(images).mean((2, 3))
        return features


class _Grid(nn.Module):
    DIM = 512

    def __init__(self, channels: int):
        super().__init__()
        self.filters = nn.Conv2d(channels, 8, 5, padding=2)

    def forward(self, images: Tensor) -> Tensor:
        centred = images - images.mean((1, 2, 3), keepdim=True)
        centred = centred / (centred.std((1, 2, 3), keepdim=True) + 1e-3)
        pooled = F.adaptive_avg_pool2d(F.relu(self.filters(centred)), (8, 8))
        return (pooled - pooled.mean((2, 3), keepdim=True)).flatten(
            1
        )  # what all places have in common would drown what tells them apart


class Cnn14(nn.Module):
    """[batch, 1, frames, bins] of log-mel to [batch, 2048]."""

    DIM = 2048

    def __init__(self) -> None:
        super().__init__()
        self.bn0 = nn.BatchNorm2d(_BINS)
        sizes = (1, 64, 128, 256, 512, 1024, 2048)
        for number, (inner, outer) in enumerate(itertools.pairwise(sizes), 1):
            setattr(self, f"conv_block{number}", _Block(inner, outer))
        self.fc1 = nn.Linear(2048, 2048)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.bn0(mel.transpose(1, 3)).transpose(1, 3)
        for number in range(1, 7):
            x = getattr(self, f"conv_block{number}")(x)
            x = F.avg_pool2d(x, 2) if number < 6 else x
        x = x.mean(3)
        features: Tensor = F.relu(self.fc1(x.amax(2) + x.mean(2)))
        return features


class _Block(nn.Module):
    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)))


def frozen(encoder: Encoder) -> Encoder:
    encoder.requires_grad_(False)
    return encoder.eval()


def _timm(name: str, weights: str) -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as e:
        what = f"timm, which has encoders.image={name}, cannot be imported ({type(e).__name__}: {str(e).splitlines()[0][:80]})"
        raise UserError(
            what, "install timm with the torchvision that belongs to your torch, or type encoders.image=tiny"
        ) from e
    try:
        body = timm.create_model(name, pretrained=weights == "pretrained", num_classes=0)
    except RuntimeError as e:
        known = timm.list_models(f"*{name.split('_')[0]}*")[:5]
        raise UserError(
            f"encoders.image={name!r} is no model of timm ({str(e)[:80]})", f"known: tiny, {', '.join(known)}"
        ) from e
    if weights not in ("random", "pretrained"):
        _load(body, Path(weights), "encoders.image_weights")
    return body


def _load(module: nn.Module, path: Path, key: str) -> None:
    """Weights by name; heads that the encoder has not are passed over, what is missing is not."""
    path = path.expanduser()
    if not path.is_file():
        raise UserError(f"{key}={path} is not there", "give a file of weights, or 'random'")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:
        raise UserError(
            f"{key}={path} cannot be read ({type(e).__name__})", "give a file of weights, or 'random'"
        ) from e
    state = state.get("model", state.get("state_dict", state))
    missing, _ = module.load_state_dict(state, strict=False)
    if missing:
        raise UserError(
            f"{key}={path} has no {missing[0]} and lacks {len(missing)} weights in all",
            "give the weights of this encoder",
        )


def _picture(image: Array, size: int) -> Tensor:
    """[3, size, size]."""
    from PIL import Image

    scaled = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC), np.float32) / 255
    return torch.from_numpy(
        ((scaled - np.array(_MEAN, np.float32)) / np.array(_STD, np.float32)).transpose(2, 0, 1).copy()
    )


def _log_mel(samples: Array, seconds: float) -> Tensor:
    """[1, frames, bins] in dB."""
    wanted = math.ceil(seconds * SAMPLE_RATE)
    padded = np.pad(samples[:wanted], (0, max(0, wanted - len(samples))))
    framed = torch.stft(
        torch.from_numpy(padded),
        _WINDOW,
        _HOP,
        window=torch.hann_window(_WINDOW),
        pad_mode="reflect",
        return_complex=True,
    )
    mel = framed.abs().square().T @ _filters()
    return 10 * mel.clamp(min=1e-10).log10()[None]


@functools.cache
def _filters() -> Tensor:
    from transformers.audio_utils import mel_filter_bank

    bank = mel_filter_bank(_WINDOW // 2 + 1, _BINS, _LOW, _HIGH, SAMPLE_RATE, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(bank).float()
