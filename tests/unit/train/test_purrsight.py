"""Phase 1 and 2 against PurrSight's equations, written here in float64 on NumPy: from files to aligned features, soft tokens and losses.

The equations are those of github.com/xinzhuwang-wxz/Purr-Sight (1e57cfd): purrsight/preprocess, encoder, alignment, LLM/projectors.py.
"""

import itertools
import math
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from podwright.data import media
from podwright.data.annotated import AnnotatedExample
from podwright.recipe.multimodal import Encoders
from podwright.train.multimodal.data import features
from podwright.train.multimodal.networks import aligner, encoders, model, preprocessing
from tests.unit.train.test_multimodal import recipe

torch.set_num_threads(1)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
ALIKE = {"atol": 1e-5, "rtol": 0}
WAYS = {"image_preprocessing": "purrsight", "audio_preprocessing": "purrsight", "audio_pooling": "purrsight"}
AS_PURRSIGHT = Encoders(image="tiny", audio="cnn14", audio_seconds=2.56, **WAYS)  # type: ignore[arg-type]


def resized(pixels: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Bilinear along an axis, with a triangle as wide as what a pixel stands for, rounded to bytes."""
    old = pixels.shape[axis]
    factor = old / size
    support = max(factor, 1.0)
    rows = np.moveaxis(pixels.astype(np.float64), axis, 0)
    centres = (np.arange(size) + 0.5) * factor
    weights = np.maximum(0, 1 - np.abs((np.arange(old) + 0.5)[None] - centres[:, None]) / support)
    weights /= weights.sum(1, keepdims=True)
    return np.moveaxis(np.floor(np.tensordot(weights, rows, 1) + 0.5).clip(0, 255), 0, axis)


def picture(pixels: np.ndarray, size: int = 224, short: int = 256) -> np.ndarray:
    """Resize(256), CenterCrop(224), ToTensor, Normalize; a picture with an opacity on white before."""
    rgb = pixels[..., :3].astype(np.float64)
    if pixels.shape[2] == 4:
        opacity = pixels[..., 3:] / 255
        rgb = np.floor(rgb * opacity + 255 * (1 - opacity) + 0.5)
    height, width = rgb.shape[:2]
    high, wide = (short, int(short * width / height)) if height <= width else (int(short * height / width), short)
    scaled = resized(resized(rgb, 1, wide), 0, high)
    top, left = round((high - size) / 2), round((wide - size) / 2)
    cut = scaled[top : top + size, left : left + size]
    return ((cut / 255 - MEAN) / STD).transpose(2, 0, 1)


def mel_filters() -> np.ndarray:
    """[frequencies, 64] from 50 to 8000 Hz on Slaney's scale, each of area 1: what PANNs' weights hold as logmel_extractor.melW."""

    def to_mel(hz: float) -> float:
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    mels = np.linspace(to_mel(50), to_mel(8000), 66)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * math.log(6.4) / 27))
    hz = np.linspace(0, 8000, 257)[:, None]
    up, down = (hz - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - hz) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(up, down)) * 2 / (edges[2:] - edges[:-2])


def sound(samples: np.ndarray) -> np.ndarray:
    """[256, 64]: silence trimmed at -40 dB, magnitudes, mel, dB, the central 256 frames or zeros after the last."""
    x = samples.astype(np.float64)
    loud = np.flatnonzero(20 * np.log10(np.sqrt(x**2) + 1e-10) > -40)
    x = x[loud[0] : loud[-1] + 1] if len(loud) else x
    padded = np.pad(x, 256, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    frames = np.stack([padded[n : n + 512] * window for n in range(0, len(padded) - 511, 160)])
    mel = 10 * np.log10(np.maximum(np.abs(np.fft.rfft(frames)) @ mel_filters(), 1e-10))
    if len(mel) > 256:
        start = (len(mel) - 256) // 2
        return mel[start : start + 256]
    return np.concatenate([mel, np.zeros((256 - len(mel), 64))])


def cnn14(mel: np.ndarray, weights: dict[str, torch.Tensor]) -> np.ndarray:
    """[256, 64] to [2048]: six blocks, the mean over the last map, a linear layer and nothing after it."""
    w = {name: value.double() for name, value in weights.items()}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        shape = (1, -1, 1, 1)
        deviation = (w[f"{name}.running_var"] + 1e-5).sqrt().view(shape)
        centred = (x - w[f"{name}.running_mean"].view(shape)) / deviation
        return centred * w[f"{name}.weight"].view(shape) + w[f"{name}.bias"].view(shape)

    x = torch.from_numpy(mel)[None, None]
    x = norm(x.transpose(1, 3), "bn0").transpose(1, 3)
    for n in range(1, 7):
        for k in (1, 2):
            x = norm(F.conv2d(x, w[f"conv_block{n}.conv{k}.weight"], padding=1), f"conv_block{n}.bn{k}").clamp(min=0)
        if n < 6:
            high, wide = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
            x = x[..., :high, :wide].unflatten(3, (-1, 2)).mean(4).unflatten(2, (-1, 2)).mean(3)
    return (x.mean((2, 3)) @ w["fc1.weight"].T + w["fc1.bias"])[0].numpy()


def aligned(raw: np.ndarray, heads: aligner.Aligner, modality: str) -> np.ndarray:
    """LayerNorm with eps 1e-6, a product without bias, length 1."""
    weights = {k: v.double().numpy() for k, v in heads.projection_heads[f"{modality}_head"].state_dict().items()}
    centred = raw - raw.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * weights["ln.weight"] + weights["ln.bias"]
    projected = normed @ weights["fc.weight"].T
    return projected / np.linalg.norm(projected, axis=-1, keepdims=True)


def soft_tokens(by_modality: list[np.ndarray | None], projector: model.Projector) -> np.ndarray:
    """[modalities x K, H]: 512 -> 2048 -> GELU -> K x H of each, the learned token in place of one that is missing."""
    w = {name: value.double().numpy() for name, value in projector.state_dict().items()}
    parts = []
    for x in by_modality:
        if x is None:
            parts.append(w["missing_token"][0])
            continue
        inner = x @ w["mlp.0.weight"].T + w["mlp.0.bias"]
        gelu = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        parts.append((gelu @ w["mlp.2.weight"].T + w["mlp.2.bias"]).reshape(projector.shape))
    return np.concatenate(parts)


class _Strides(nn.Module):
    """An image model with maps, as timm's have them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 16, stride=16)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem(x).tanh()


@pytest.fixture(scope="module")
def sight() -> features.Sight:
    torch.manual_seed(3)
    eye = encoders.Encoder(encoders._PooledImage(_Strides()), encoders.image_encoder(AS_PURRSIGHT).prepare, 12)
    ear = encoders.audio_encoder(AS_PURRSIGHT.model_copy(update={"image_size": 224}))
    for module in ear.body.modules():
        if isinstance(module, nn.BatchNorm2d):  # as of a network that has been trained
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    nn.init.constant_(ear.body.bn0.running_mean, -20.0)  # type: ignore[union-attr, arg-type]
    nn.init.constant_(ear.body.bn0.running_var, 400.0)  # type: ignore[union-attr, arg-type]
    heads = aligner.Aligner({"text": 384, "image": 12, "audio": 2048}, 512)
    for head in heads.projection_heads.values():
        nn.init.uniform_(head.ln.weight, 0.5, 1.5)  # type: ignore[union-attr, arg-type]
        nn.init.normal_(head.ln.bias, std=0.1)  # type: ignore[union-attr, arg-type]
    return features.Sight(
        {"image": encoders.frozen(eye), "audio": encoders.frozen(ear)},
        heads.eval(),
        "test",
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.png with an opacity, b.png upright; a.wav longer than 2.56 s between two silences, b.wav shorter."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(5)
    grid = np.mgrid[0:329, 0:533].sum(0)[..., None]
    pixels = ((grid * np.array([1, 2, 3, 5]) + rng.integers(0, 60, (329, 533, 4))) % 256).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    Image.fromarray(np.ascontiguousarray(pixels[:, :200, :3])).save(folder / "b.png")
    for name, seconds in (("a", 4.3), ("b", 1.1)):
        loud = rng.normal(0, 0.15, int(seconds * 16_000)) * (1.5 + np.sin(np.arange(int(seconds * 16_000)) / 3000))
        parts = [rng.normal(0, 0.001, 7001), loud, rng.normal(0, 0.001, 20_011)]
        data = (np.concatenate(parts).clip(-1, 1) * 32_767).astype("<i2")
        with wave.open(str(folder / f"{name}.wav"), "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(16_000)
            f.writeframes(data.tobytes())
    return folder


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_picture_is_resized_and_its_middle_cut_out(files: Path, name: str) -> None:
    pixels = media.picture(files / f"{name}.png")
    assert pixels.shape[2] == {"a": 4, "b": 3}[name]
    got, wanted = preprocessing.cropped(pixels, 224).numpy(), picture(pixels)
    assert got.shape == (3, 224, 224)
    levels = np.abs(got - wanted) * STD[:, None, None] * 255
    assert levels.max() < 1.01 and (levels > 0.5).mean() < 1e-3, "a byte that lies on the edge may round otherwise"
    assert np.abs(preprocessing.stretched(pixels, 224).numpy() - wanted).mean() > 0.1


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_sound_loses_its_silence_and_keeps_its_middle(files: Path, name: str) -> None:
    samples = media.sound(files / f"{name}.wav")
    got = preprocessing.trimmed_centre(samples, 2.56)[0].numpy()
    assert got.shape == (256, 64) and np.allclose(got, sound(samples), atol=1e-4)
    frames = {"a": 256, "b": 111}[name]
    assert (got[frames:] == 0).all() and (got[:frames] != 0).any(1).all()


@pytest.mark.parametrize("samples", [np.zeros(9000), np.full(9000, 0.009), np.eye(1, 9000, 4500)[0], np.ones(3)])
def test_silence_and_a_click_are_sounds(samples: np.ndarray) -> None:
    got = preprocessing.trimmed_centre(samples.astype(np.float32), 2.56)[0].numpy()
    assert got.shape == (256, 64) and np.isfinite(got).all()
    if len(samples) == 9000 and np.count_nonzero(np.abs(samples) > 0.01) != 1:
        assert np.allclose(got, sound(samples.astype(np.float32)), atol=1e-3), "without a loud sample all is kept"


LINES: list[dict[str, str]] = [{"image": "a.png", "audio": "a.wav"}, {"image": "b.png"}, {"audio": "b.wav"}]


@pytest.fixture(scope="module")
def expected(sight: features.Sight, files: Path) -> list[dict[str, np.ndarray]]:
    """Aligned features of each line, by the equations."""
    stem = {k: v.double().numpy() for k, v in sight.encoders["image"].body.body.stem.state_dict().items()}  # type: ignore[union-attr]
    ear = sight.encoders["audio"].body.state_dict()

    def image(path: Path) -> np.ndarray:
        tiles = picture(media.picture(path)).reshape(3, 14, 16, 14, 16).transpose(1, 3, 0, 2, 4)
        return np.tanh(np.einsum("hwcij,ocij->hwo", tiles, stem["weight"]) + stem["bias"]).mean((0, 1))

    def audio(path: Path) -> np.ndarray:
        return cnn14(sound(media.sound(path)), ear)

    raw = {"image": image, "audio": audio}
    assert sight.aligner is not None
    return [{m: aligned(raw[m](files / name), sight.aligner, m) for m, name in line.items()} for line in LINES]


def test_aligned_features_and_soft_tokens(
    sight: features.Sight, files: Path, expected: list[dict[str, np.ndarray]]
) -> None:
    projector = model.Projector(512, 96, 4, 32)
    for line, wanted in zip(LINES, expected, strict=True):
        example = AnnotatedExample(1, "?", {}, {m: files / name for m, name in line.items()})
        values, present = features.one_line(example, sight, torch.device("cpu"))
        assert present[0].tolist() == [m in line for m in ("image", "audio")]
        for n, modality in enumerate(("image", "audio")):
            assert np.allclose(values[0, n], wanted.get(modality, np.zeros(512)), **ALIKE)
        got = projector(values, present)[0].detach().numpy()
        assert np.allclose(got, soft_tokens([wanted.get(m) for m in ("image", "audio")], projector), **ALIKE)


def test_loss_of_phase_2(sight: features.Sight, files: Path, expected: list[dict[str, np.ndarray]]) -> None:
    """The mean over response tokens; soft tokens of picture and sound stand before the text."""
    built = model.build(recipe(), None).eval()
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 500, n).tolist() for n in (9, 5, 12)]
    responses = [rng.integers(0, 500, n).tolist() for n in (7, 11, 3)]
    width = max(len(p) + len(r) for p, r in zip(prompts, responses, strict=True))
    tokens = torch.zeros(3, width, dtype=torch.long)
    labels = torch.full((3, width), -100)
    values, present = torch.zeros(3, 2, 512), torch.zeros(3, 2, dtype=torch.bool)
    for n, (p, r) in enumerate(zip(prompts, responses, strict=True)):
        tokens[n, : len(p) + len(r)] = torch.tensor(p + r)
        labels[n, len(p) : len(p) + len(r)] = torch.tensor(r)
        example = AnnotatedExample(1, "?", {}, {m: files / name for m, name in LINES[n].items()})
        values[n : n + 1], present[n : n + 1] = features.one_line(example, sight, torch.device("cpu"))
    where = (labels.flatten() != -100).nonzero()[:, 0]
    with torch.no_grad():
        got = float(built(model.MultimodalBatch(values, present, tokens, where))) / sum(map(len, responses))
        soft = [soft_tokens([line.get(m) for m in ("image", "audio")], built.projector) for line in expected]
        llm = built.llm.double()
        total = 0.0
        for n, (p, r) in enumerate(zip(prompts, responses, strict=True)):
            words = llm.get_input_embeddings()(torch.tensor(p + r))
            logits = llm(inputs_embeds=torch.cat([torch.from_numpy(soft[n]), words])[None]).logits[0].numpy()
            before = logits[len(soft[n]) + len(p) - 1 : -1]
            total -= sum(
                row[i] - np.log(np.exp(row - row.max()).sum()) - row.max() for row, i in zip(before, r, strict=True)
            )
    assert got == pytest.approx(total / sum(map(len, responses)), abs=1e-5)


def test_loss_of_phase_1() -> None:
    """Of unit vectors: only here similarities are multiplied by the mean of two scales exp(logit_scale)."""
    torch.manual_seed(0)
    dims = {"text": 20, "image": 12, "audio": 16}
    heads = aligner.Aligner(dims, 24)
    raw = {m: torch.randn(6, d) for m, d in dims.items()}
    scales = {"text": math.exp(1.0), "image": math.exp(2.66), "audio": math.exp(2.66)}
    losses = []
    for a, b in itertools.combinations(dims, 2):
        similar = aligned(raw[a].double().numpy(), heads, a) @ aligned(raw[b].double().numpy(), heads, b).T
        logits = similar * (scales[a] + scales[b]) / 2
        for square in (logits, logits.T):
            losses.append(np.mean(np.log(np.exp(square).sum(1)) - np.diag(square)))
    units = {m: heads.unit(m, x) for m, x in raw.items()}
    got: Any = aligner.info_nce(
        units, {m: heads.scale(m) for m in dims}, {m: torch.ones(6, dtype=torch.bool) for m in dims}
    )
    assert float(got.detach()) == pytest.approx(np.mean(losses), abs=1e-5)
