"""The memory of an update that was counted without contents, against PyTorch's own tracker on real tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from podwright.data.lines import Lengths, lengths
from podwright.recipe import llm, load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import memory, updates
from podwright.train.multimodal.memory import Shadow
from podwright.train.multimodal.networks import model
from podwright.train.multimodal.processes.machine import Stopwatch
from podwright.train.multimodal.processes.world import World

DIMS = llm.LlmDims(128, 256, 2, 4, 2, 2048)
LONGEST = Lengths(tokens=64, response=24, known=True)
ROWS = 8


def recipe(*overrides: str) -> MultimodalRecipe:
    found = load.load("phase2-tiny", [f"per_device_batch_size={ROWS}", *overrides])
    assert isinstance(found, MultimodalRecipe)
    return found


def tracked(asked: MultimodalRecipe) -> int:
    """The peak of the second update, by PyTorch, on real tensors."""
    learner = updates.learner(model.around(model.random(DIMS), asked), asked, World(), 2)
    places = [row * LONGEST.tokens + i for row in range(ROWS) for i in range(LONGEST.response)]
    batch = model.MultimodalBatch(
        torch.zeros(ROWS, 2, asked.aligner.dim),
        torch.ones(ROWS, 2, dtype=torch.bool),
        torch.zeros(ROWS, LONGEST.tokens, dtype=torch.long),
        torch.tensor(places),
    )
    updates.advance(learner, [batch], len(places), 0, Stopwatch(World()))  # after which there are moments
    tracker = MemTracker()
    tracker.track_external(learner.model, learner.optimizer)
    with tracker:
        updates.advance(learner, [batch], len(places), 1, Stopwatch(World()))
    peak: int = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    return peak


@pytest.mark.parametrize("extra", [("model.mixed_precision=bf16",), ("model.gradient_checkpointing=true",)])
def test_what_is_counted_is_what_pytorch_tracks(extra: tuple[str, ...]) -> None:
    asked = recipe("model.lora_rank=0", *extra)
    assert Shadow(asked, DIMS, 1).update(ROWS, LONGEST)["peak_bytes"] == pytest.approx(tracked(asked), rel=0.003)


def test_weights_and_moments_are_those_of_what_is_trained() -> None:
    whole, adapted = (Shadow(recipe(f"model.lora_rank={rank}"), DIMS, 1).update(ROWS, LONGEST) for rank in (0, 4))
    asked = recipe()
    projector = DIMS.num_projector_params(
        asked.aligner.dim, asked.projector.hidden_size, asked.projector.num_soft_tokens
    )
    lora = DIMS.num_lora_params(4, asked.model.lora_target_modules)
    assert whole["weights_bytes"] == pytest.approx(4 * (DIMS.num_params() + projector), rel=0.01)
    assert whole["optimizer_bytes"] == pytest.approx(8 * (DIMS.num_params() + projector), rel=0.02)
    assert adapted["optimizer_bytes"] == pytest.approx(8 * (projector + lora), rel=0.05)
    assert adapted["peak_bytes"] < whole["peak_bytes"]


def test_gradients_wait_beside_the_next_micro_batch() -> None:
    one, two = (
        Shadow(recipe("model.lora_rank=0", f"training.gradient_accumulation_steps={n}"), DIMS, 1).update(ROWS, LONGEST)
        for n in (1, 2)
    )
    assert one["peak_bytes"] < two["peak_bytes"] <= one["peak_bytes"] + one["optimizer_bytes"]


def test_several_processes_keep_the_gradients_twice() -> None:
    one, two = (
        Shadow(recipe("model.lora_rank=0"), DIMS, devices).update(ROWS, LONGEST)["peak_bytes"] for devices in (1, 2)
    )
    asked = recipe()
    projector = DIMS.num_projector_params(
        asked.aligner.dim, asked.projector.hidden_size, asked.projector.num_soft_tokens
    )
    assert two - one == 4 * (DIMS.num_params() + projector)


def test_parts_of_every_weight_are_kept_and_whole_layers_come_and_go() -> None:
    asked = recipe("model.lora_rank=0", "training.fsdp=true")
    one, many = (Shadow(asked, DIMS, devices).update(ROWS, LONGEST) for devices in (1, 64))
    assert many["optimizer_bytes"] == pytest.approx(one["optimizer_bytes"] / 64, rel=0.01)
    assert one["peak_bytes"] - one["optimizer_bytes"] - one["weights_bytes"] < many["peak_bytes"] < one["peak_bytes"]


@pytest.mark.parametrize("own", [1, 2, 16, 300, 100_000])
@pytest.mark.parametrize("limit", [99, 111, 500, 3000, 10_000_000])
def test_the_largest_batch_is_the_last_that_fits(own: int, limit: int) -> None:
    asked: list[int] = []

    def peak(lines: int) -> int:
        asked.append(lines)
        return max(100 + 10 * lines, 7 * lines + 300, 31 * lines - 500)

    most = memory.largest(peak, own, limit)
    true = max((n for n in range(400_000) if max(100 + 10 * n, 7 * n + 300, 31 * n - 500) <= limit), default=0)
    assert 0.98 * true - 1 <= most <= true and len(asked) <= 11


def test_lengths_are_those_of_the_lines_or_of_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = lengths(recipe())
    assert drawn.known and 20 < drawn.response < drawn.tokens <= recipe().data.max_text_length
    absent = lengths(recipe("data.source=nowhere", "data.max_text_length=300"))
    assert (absent.tokens, absent.response, absent.known) == (300, 300, False)


def test_a_batch_that_does_not_count_yet_is_no_end_of_the_search() -> None:
    """Of a large model in small batches the optimizer's step is the fullest moment."""
    found = memory.largest(lambda lines: max(1000, 10 * lines), 1, 4000)
    assert 392 <= found <= 400
    assert memory.largest(lambda lines: 1000, 1, 4000) > 64, "and it ends where no batch counts"
