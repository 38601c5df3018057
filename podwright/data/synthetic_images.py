"""Made-up cats: pictures drawn and sounds synthesised here, whose answers need both. A pure function of its arguments.

Ears, tail and posture are to be seen, the voice is to be heard; what the cat is up to follows from the two together.
What a line leaves out is at rest in its answer: a cat that nobody hears is silent.
"""

from __future__ import annotations

import functools
import json
import math
import random
import wave
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from podwright.data.media import SAMPLE_RATE
from podwright.recipe import answers
from podwright.recipe.ethogram import CHOICES, CLASSIFICATION, MARKERS, RISK
from podwright.recipe.yaml_file import facts

if TYPE_CHECKING:
    from PIL import ImageDraw

SIDE = 64
SECONDS = 0.64
INSTRUCTION = "What is this cat up to?"
Make = Callable[[Path, str, int, random.Random], dict[str, Any]]
"""folder, part and number to a line, whose files it writes"""
LEFT_OUT = 0.1  # of the lines have no picture, and as many no sound
_AT_REST = {
    f"{MARKERS}.ears": "forward",
    f"{MARKERS}.tail": "neutral",
    f"{MARKERS}.posture": "relaxed",
    f"{MARKERS}.vocalization": "silent",
}
_FACTS = facts(__file__)


def write(folder: Path, num_train: int, num_test: int, seed: int, files: bool = True) -> None:
    """Without `files`, the lines alone."""
    write_lines(folder, num_train, num_test, f"drawn {seed}", functools.partial(_line, files=files))


def write_lines(folder: Path, num_train: int, num_test: int, seed: str, make: Make) -> None:
    """train.jsonl and val.jsonl with what they name, none without lines; a folder that has been written is left as it is."""
    wanted = {part: count for part, count in (("train", num_train), ("val", num_test)) if count}
    if all((folder / f"{part}.jsonl").exists() for part in wanted):
        return
    for part, count in wanted.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        lines = [make(folder, part, n, random.Random(f"{seed} {part} {n}")) for n in range(count)]
        unfinished = folder / f"{part}.jsonl.part"
        unfinished.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        unfinished.replace(folder / f"{part}.jsonl")


def answer(markers: dict[str, str]) -> dict[str, Any]:
    """The true answer to what is to be seen and heard, as dotted fields."""
    strain = sum(_FACTS["strain"].get(markers[f"{MARKERS}.{name}"], 0) for name in ("ears", "tail", "posture"))
    look = "strained"
    if strain <= 3:
        look = "calm" if strain <= 1 else "wary"
    voice = markers[f"{MARKERS}.vocalization"]
    meaning = dict(_FACTS["meanings"][look][_FACTS["voices"][voice]])
    risk = meaning.pop("risk")
    sounds = "says nothing" if voice == "silent" else f"lets out a {voice}"
    texts = {
        "behavioral_summary": f"{_FACTS['summaries'][look]} and {sounds}.",
        "human_actionable_insight": f"{_FACTS['advice'][risk]}。",
    }
    return {**markers, **{f"{CLASSIFICATION}.{key}": value for key, value in meaning.items()}, RISK: risk, **texts}


def _line(folder: Path, part: str, number: int, rng: random.Random, files: bool) -> dict[str, Any]:
    markers = {field: rng.choice(CHOICES[field]) for field in _AT_REST}
    chance = rng.random()
    line = {"instruction": INSTRUCTION}
    if part == "train" and chance < LEFT_OUT:
        markers |= {f: v for f, v in _AT_REST.items() if not f.endswith("vocalization")}
    else:
        line["image"] = f"{part}/{number:05}.png"
        if files:
            draw(markers, rng, folder / line["image"])
    if part == "train" and chance > 1 - LEFT_OUT:
        markers[f"{MARKERS}.vocalization"] = "silent"
    else:
        line["audio"] = f"{part}/{number:05}.wav"
        if files:
            save_sound(voice(markers[f"{MARKERS}.vocalization"], rng), folder / line["audio"])
    return line | {"response": json.dumps(answers.nested(answer(markers)), ensure_ascii=False)}


def draw(markers: dict[str, str], rng: random.Random, path: Path) -> None:
    from PIL import Image, ImageDraw

    wall = tuple(rng.randint(150, 220) for _ in range(3))
    fur = tuple(rng.randint(20, 90) for _ in range(3))
    image = Image.new("RGB", (SIDE, SIDE), wall)
    pen = ImageDraw.Draw(image)
    x, y = rng.randint(-2, 2), rng.randint(-2, 2)
    top = _body(pen, markers[f"{MARKERS}.posture"], x, y, fur)
    _tail(pen, markers[f"{MARKERS}.tail"], x + 46, top + 8, fur)
    pen.ellipse((x + 5, top - 7, x + 23, top + 11), fill=fur)
    _ears(pen, markers[f"{MARKERS}.ears"], x + 14, top - 4, fur)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 6, (SIDE, SIDE, 3))
    Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)).save(path)


def _body(pen: ImageDraw.ImageDraw, posture: str, x: int, y: int, fur: Any) -> int:
    """Draws it; the height of its back."""
    if posture == "arched":
        pen.chord((x + 14, y + 22, x + 48, y + 74), 180, 360, fill=fur)
        return y + 30
    if posture == "tense":
        pen.rectangle((x + 16, y + 34, x + 46, y + 44), fill=fur)
        for leg in (18, 26, 36, 43):
            pen.rectangle((x + leg, y + 44, x + leg + 2, y + 58), fill=fur)
        return y + 34
    top, bottom, left = {"relaxed": (34, 58, 20), "crouched": (44, 58, 14), "lateral_recumbent": (50, 58, 6)}[posture]
    pen.ellipse((x + left, y + top, x + 50, y + bottom), fill=fur)
    return y + top


def _tail(pen: ImageDraw.ImageDraw, tail: str, x: int, y: int, fur: Any) -> None:
    if tail == "neutral":
        pen.line((x, y, x + 14, y + 2), fill=fur, width=3)
    elif tail == "tucked":
        pen.line((x - 2, y, x + 6, y + 12, x - 12, y + 13), fill=fur, width=3)
    elif tail == "lashing":
        pen.line((x, y, x + 5, y - 7, x + 8, y + 4, x + 12, y - 9, x + 15, y + 2), fill=fur, width=2)
    elif tail == "upright":
        pen.line((x + 2, y, x + 3, y - 22), fill=fur, width=3)
    else:
        pen.ellipse((x - 1, y - 20, x + 13, y + 2), fill=fur)


def _ears(pen: ImageDraw.ImageDraw, ears: str, x: int, y: int, fur: Any) -> None:
    for side in (-1, 1):
        base = x + side * 5
        if ears == "forward":
            pen.polygon((base - 4, y, base + 4, y, base, y - 9), fill=fur)
        elif ears == "alert":
            pen.polygon((base - 3, y, base + 3, y, base, y - 18), fill=fur)
        elif ears == "sideways":
            pen.polygon((base, y - 3, base, y + 5, base + side * 14, y - 3), fill=fur)
        else:
            pen.polygon((base, y + 4, base + side * 4, y + 4, base + side * 9, y + 17), fill=fur)


def voice(vocalization: str, rng: random.Random, height: float = 1.0, calls: int = 0) -> np.ndarray[Any, Any]:
    """At a pitch of about `height` times the usual; `calls` of them with pauses, 0: as such a cat does."""
    t = np.arange(int(SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 1, t.size)
    pitch, share = height * rng.uniform(0.9, 1.1), t / SECONDS

    def harmonics(hz: Any, n: int) -> Any:
        turns = np.cumsum(np.broadcast_to(hz, t.shape))
        return sum(np.sin(2 * math.pi * k * turns / SAMPLE_RATE) / k for k in range(1, n))

    wave = {
        "purr": lambda: harmonics(110 * pitch, 4) * (0.5 + 0.5 * np.sin(2 * math.pi * 26 * pitch * t)),
        "hiss": lambda: np.diff(noise, prepend=0.0) * 0.7,
        "growl": lambda: harmonics(75 * pitch, 12) * (1 + 0.4 * noise),
        "chirp": lambda: (
            np.sin(2 * math.pi * np.cumsum(1200 * pitch + 1500 * share) / SAMPLE_RATE)
            * (calls > 0 or share % 0.5 < 0.25)
        ),
        "meow": lambda: harmonics(pitch * (500 + 350 * np.sin(math.pi * share)), 5),
        "trill": lambda: harmonics(pitch * (700 + 90 * np.sin(2 * math.pi * 22 * t)), 3),
        "silent": lambda: 0.0 * t,
    }[vocalization]()
    heard = share * calls % 1 < 0.6
    return (wave * heard * rng.uniform(0.15, 0.3) + 0.004 * noise).astype(np.float32)


def save_sound(samples: np.ndarray[Any, Any], path: Path) -> None:
    with wave.open(str(path), "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(SAMPLE_RATE)
        f.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
