"""The frozen encoders: a file's picture or sound as one vector. Which they are and whose weights they have, a recipe says.

CNN14 is that of PANNs (arXiv 1912.10211) at 16 kHz, with the names of its published weights. 'tiny' is a layer of random
filters and a coarse grid: enough for drawings of 64 pixels, and made in a millisecond.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from podwright.errors import UserError, expanded, message_of
from podwright.recipe.multimodal import Encoders
from podwright.train.multimodal.networks import preprocessing, stored
from podwright.train.multimodal.networks.preprocessing import BINS

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
        prepare = functools.partial(preprocessing.PICTURES[recipe.image_preprocessing], size=recipe.image_size)
        if recipe.image == "tiny":
            return frozen(Encoder(_Grid(3), prepare, _Grid.DIM))
        body = _timm(recipe.image, recipe.image_weights)
    return frozen(Encoder(_PooledImage(body), prepare, body.num_features))


def audio_encoder(recipe: Encoders) -> Encoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        prepare = functools.partial(preprocessing.SOUNDS[recipe.audio_preprocessing], seconds=recipe.audio_seconds)
        if recipe.audio == "tiny":
            return frozen(Encoder(_Grid(1), prepare, _Grid.DIM))
        body = Cnn14(recipe.audio_pooling)
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
    """[batch, 1, frames, bins] of log-mel to [batch, 2048].

    `pooling` of the last map x over frames, after the mean over bins: 'panns' is relu(fc1(max(x) + mean(x))), as published;
    'purrsight' is fc1(mean(x)).
    """

    DIM = 2048

    def __init__(self, pooling: str = "panns") -> None:
        super().__init__()
        self.pooling = pooling
        self.bn0 = nn.BatchNorm2d(BINS)
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
        if self.pooling == "purrsight":
            features: Tensor = self.fc1(x.mean(2))
            return features
        return F.relu(self.fc1(x.amax(2) + x.mean(2)))


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

        body = timm.create_model(name, pretrained=weights == "pretrained", num_classes=0)
    except (ImportError, RuntimeError, OSError) as e:
        what = f"timm does not give encoders.image={name} ({type(e).__name__}: {message_of(e, 80)})"
        fix = "install timm with the torchvision that belongs to your torch, or type encoders.image=tiny"
        raise UserError(what, fix, "unknown-encoder") from e
    if weights not in ("random", "pretrained"):
        _load(body, Path(weights), "encoders.image_weights")
    return body


def _load(module: nn.Module, path: Path, key: str) -> None:
    """Weights by name; heads that the encoder has not are passed over, what is missing is not."""
    path = expanded(path)
    fix = "give the weights of this encoder, or 'random'"
    weights = stored.read(key, path, fix)
    wanted = module.state_dict()
    for name, value in wanted.items():
        if name in weights and weights[name].shape != value.shape:
            raise stored.misfit(key, path, name, weights[name], value, fix)
    missing, _ = module.load_state_dict(weights, strict=False)
    if missing:
        raise stored.misfit(key, path, missing[0], None, wanted[missing[0]], fix)
    stored.require_finite(module.state_dict(), path)
