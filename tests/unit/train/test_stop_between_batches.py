"""A stop that comes in an evaluation ends it after the batch at work, in pretraining and in Phase 1 and 2 alike."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from podwright.train.pretrain import loop


def test_an_evaluation_of_pretraining_ends_after_its_batch() -> None:
    asked, evaluated, events = list[int](), list[int](), list[str]()
    rows = {"targets": np.zeros((1, 2), np.int32), "loss_mask": np.ones((1, 2), bool)}

    def stopping() -> bool:
        asked.append(1)
        return len(asked) == 3

    def batch_loss(*_: Any) -> tuple[float, int]:
        evaluated.append(1)
        return 1.0, 2

    job: Any = SimpleNamespace(
        emit=SimpleNamespace(event=lambda name, **_: events.append(name)),
        feed=SimpleNamespace(held_out=lambda: iter([rows] * 5), on_devices=lambda rows: rows),
        setup=SimpleNamespace(dims=SimpleNamespace(vocab_size=8)),
        stopping=stopping,
        programs={"evaluate": batch_loss},
    )
    state: Any = SimpleNamespace(params=None, bias_LX=None)
    assert not loop.evaluate(job, state, "during", 4)
    assert len(evaluated) == 2 and events == ["phase"], "no figures of a part"
    asked[:] = [1] * 10
    assert loop.evaluate(job, state, "during", 4) and events[-1] == "evaluation"


def test_an_evaluation_of_phase_1_and_2_ends_after_its_batch() -> None:
    pytest.importorskip("torch")
    from podwright.train.multimodal import course
    from podwright.train.multimodal.inference import evaluate
    from podwright.train.multimodal.processes.world import World

    asked, batches, events = list[int](), list[list[int]](), list[str]()

    def stopping() -> bool:
        asked.append(1)
        return len(asked) == 3

    recipe: Any = SimpleNamespace(evaluation=SimpleNamespace(batch_size=2))

    def graded() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        batches.extend(evaluate._own(range(7), recipe, World(stopping=stopping)))
        return {}, []

    training: Any = SimpleNamespace(test=graded)
    emit: Any = SimpleNamespace(event=lambda name, **_: events.append(name))
    assert not course._test(training, emit, "during", 4)
    assert len(asked) == 3 and events == ["phase"], "no figures of a part"
