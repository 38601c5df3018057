"""What the memory of a multimodal update means: verdicts, what to type, the plan from the command line."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from podwright.accelerators import GIB
from podwright.cli.app import main
from podwright.plan.compiled import torch_memory
from podwright.plan.estimates import memory_torch
from podwright.recipe import load
from podwright.recipe.multimodal import MultimodalRecipe


def test_prepared_files_of_an_encoder_are_counted_32_at_a_time_in_float32() -> None:
    """3 s of sound are 300 frames of 64 bins; a picture of 64 pixels has three channels. Beside them are maps of 8 channels, three at a time."""
    recipe = load.load("phase2-tiny")
    assert isinstance(recipe, MultimodalRecipe)
    for pixels in (224, 64, 16):
        section = recipe.encoders.model_copy(update={"image_size": pixels, "audio_seconds": 3.0})
        picture, sound = 3 * pixels**2, 300 * 64
        maps = 3 * 8 * pixels**2, 3 * 8 * sound
        assert memory_torch._encoders(section) == (
            32 * 4 * max(picture, sound),
            32 * 4 * max(picture + maps[0], sound + maps[1]),
        )


def finding(peak_gib: float, limit_gib: float | None, most: int | None, *overrides: str, **more: Any) -> Any:
    recipe = load.load("phase2-tiny", ["per_device_batch_size=16", *overrides])
    assert isinstance(recipe, MultimodalRecipe)
    counted = {
        "peak_bytes": peak_gib * GIB,
        "weights_bytes": GIB,
        "optimizer_bytes": GIB / 2,
        "largest_batch_size": most,
    }
    limit = limit_gib and limit_gib * GIB
    verdict = torch_memory._verdict(counted["peak_bytes"], limit)
    return verdict, torch_memory._finding(counted | {"tokens": 160, "known": True} | more, verdict, limit, recipe)


def test_what_fits_is_said_with_the_largest_batch() -> None:
    verdict, found = finding(10, 20, 40)
    assert (verdict, found.level) == ("fits", "info")
    assert found.message == (
        "an update needs 10.00 of 20.00 GiB per device (weights 1.00, optimizer 0.50) with 16 lines of up to 160 tokens; "
        "the largest per_device_batch_size is 40"
    )
    assert finding(10, None, None)[1].message.endswith("160 tokens")
    assert "of up to 160 tokens (data.max_text_length)" in finding(10, 20, 40, known=False)[1].message


@pytest.mark.parametrize(
    ("peak_gib", "most", "overrides", "level", "fix"),
    [
        (30, 11, (), "error", "type per_device_batch_size=8 training.gradient_accumulation_steps=2"),
        (
            30,
            11,
            ("training.gradient_accumulation_steps=3",),
            "error",
            "per_device_batch_size=8 training.gradient_accumulation_steps=6",
        ),
        (30, 0, (), "error", "type model.gradient_checkpointing=true"),
        (30, 0, ("model.gradient_checkpointing=true",), "error", "take a GPU with more memory, or a smaller model"),
        (19.5, 15, (), "inconclusive", "type per_device_batch_size=8 training.gradient_accumulation_steps=2"),
    ],
)
def test_what_does_not_fit_says_what_to_type(
    peak_gib: float, most: int, overrides: tuple[str, ...], level: str, fix: str
) -> None:
    _, found = finding(peak_gib, 20, most, *overrides)
    assert found.level == level and fix in found.fix


def test_a_plan_counts_and_refuses_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "phase2-tiny",
        "per_device_batch_size=6000",
        "data.num_train=64",
        "--on",
        "1xRTX-3090",
        "--compile",
        "--json",
    ]
    begin = time.monotonic()
    assert main(["plan", *asked]) == 3
    taken_s = time.monotonic() - begin
    said = json.loads(capsys.readouterr().out)
    (update,) = said["programs"]
    assert (said["ok"], update["verdict"], update["limit_gib"]) == (False, "too large", 23.6)
    assert update["arguments_gib"] < update["hbm_gib"] and 1000 < update["largest_batch_size"] < 6000
    assert 0 < update["compile_s"] < taken_s + 0.1, "to a tenth of a second"
    assert said["findings"][-1]["check"] == "memory" and "per_device_batch_size=" in said["findings"][-1]["fix"]
