"""Made-up cats with true sentences, for Phase 1: text, picture and sound tell of each other. A pure function of its arguments.

A cat's posture decides its voice, its tail how high it is, its ears how often it calls; so a picture can be found by its sound.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from podwright.data import synthetic_images
from podwright.recipe.ethogram import CHOICES, MARKERS

LEFT_OUT = 0.1  # of the training lines have no text, as many no picture, as many no sound
_PARTS = ("text", "image", "audio")
_VOICES = {"relaxed": "purr", "crouched": "growl", "lateral_recumbent": "trill", "arched": "chirp", "tense": "meow"}
_HEIGHTS = {
    "tucked": ("low", 0.6),
    "neutral": ("low", 0.6),
    "lashing": ("usual", 1.0),
    "upright": ("high", 1.6),
    "puffed": ("high", 1.6),
}
_CALLS = {"forward": ("once", 1), "sideways": ("twice", 2), "flattened": ("three times", 3), "alert": ("four times", 4)}


def write(folder: Path, num_train: int, num_test: int, seed: int) -> None:
    """train.jsonl and val.jsonl with what they name; a folder that has been written is left as it is."""
    synthetic_images.write_lines(folder, num_train, num_test, f"told {seed}", _line)


def sentence(ears: str, tail: str, posture: str, seen: bool, heard: bool) -> str:
    body = f"{'an' if posture[0] == 'a' else 'a'} {posture.replace('_', ' ')} body"
    look = f" with {ears} ears, {'an' if tail[0] == 'u' else 'a'} {tail} tail and {body}" if seen else ""
    cry = f" lets out a {_VOICES[posture]} {_CALLS[ears][0]} in a {_HEIGHTS[tail][0]} voice" if heard else ""
    return f"A cat{look}{cry}."


def _line(folder: Path, part: str, number: int, rng: random.Random) -> dict[str, Any]:
    ears, tail, posture = (rng.choice(CHOICES[f"{MARKERS}.{name}"]) for name in ("ears", "tail", "posture"))
    chance = int(rng.random() / LEFT_OUT)
    left_out = _PARTS[chance] if part == "train" and chance < len(_PARTS) else ""
    line = {}
    if left_out != "text":
        line["text"] = sentence(ears, tail, posture, left_out != "image", left_out != "audio")
    if left_out != "image":
        line["image"] = f"{part}/{number:05}.png"
        synthetic_images.draw(
            {f"{MARKERS}.ears": ears, f"{MARKERS}.tail": tail, f"{MARKERS}.posture": posture},
            rng,
            folder / line["image"],
        )
    if left_out != "audio":
        line["audio"] = f"{part}/{number:05}.wav"
        synthetic_images.save_sound(
            synthetic_images.voice(_VOICES[posture], rng, _HEIGHTS[tail][1], _CALLS[ears][1]), folder / line["audio"]
        )
    return line
