"""How pretraining ends: at its last step, where its data is used up, at a figure that is not finite; and which step is kept.

Data, loop and checkpoints are real; the programs are written here.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from podwright.counted_steps import read_steps
from podwright.errors import UserError
from podwright.recipe import load
from podwright.rundir import Ending, RunDir, read_events, write_json
from podwright.train import checkpoint
from podwright.train.emit import Emitter, TrainingOutcome
from podwright.train.pretrain import loop, program
from podwright.train.pretrain.program import PretrainSetup, PretrainState
from podwright.train.run_storage import RunStorage

SMALL = (
    "data.num_documents=25",
    "mesh.fsdp=-1",
    "batch_size=8",
    "sequence_length=64",
    "training.max_steps=6",
    "evaluation.every_n_steps=0",
    "evaluation.num_batches=1",
    "checkpoint.every_n_steps=2",
)
Train = Callable[..., tuple[RunDir, TrainingOutcome]]


def new_state(setup: PretrainSetup | None = None) -> PretrainState:
    return PretrainState({"updates": jnp.zeros(1)}, {}, None)


def abstract(setup: PretrainSetup | None = None) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), new_state())


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Trains a run whose update counts itself, with `figures` by the number of the step."""

    def trained(
        *overrides: str,
        attempt: int = 1,
        figures: dict[int, dict[str, float]] | None = None,
        stop_after: int | None = None,
    ) -> tuple[RunDir, TrainingOutcome]:
        def update(state: PretrainState, batch: object, rate: float) -> tuple[PretrainState, dict[str, float]]:
            updates = state.params["updates"] + 1
            usual = {"loss": 2.0, "grad_norm": 1.0}
            return PretrainState({"updates": updates}, {}, None), usual | (figures or {}).get(int(updates[0]), {})

        built = {"update": update, "evaluate": lambda params, bias, batch: (3.0, 2)}
        monkeypatch.setattr(program, "programs", lambda setup: built)
        monkeypatch.setattr(program, "new_state", new_state)
        monkeypatch.setattr(program, "abstract_state", abstract)
        run, recipe = RunDir(tmp_path / "run"), load.load("almodel-tiny", [*SMALL, *overrides])
        write_json(run.recipe, recipe.model_dump(mode="json"))

        def stopping() -> bool:
            return stop_after is not None and len(read_steps(run, "pretrain")) >= stop_after

        return run, loop.train(run, recipe, Emitter(run, attempt, True), stopping)  # type: ignore[arg-type]

    return trained


def kept(run: RunDir) -> tuple[int, float]:
    """The newest step that is saved, and how many updates its weights have seen."""
    with checkpoint.Checkpoints(RunStorage(run), None) as checkpoints:
        restored = checkpoints.restore(abstract())
    return restored.step, float(restored.state.params["updates"][0])


def trained_steps(run: RunDir) -> list[int]:
    return [record["step"] for record in read_steps(run, "pretrain")]


def test_a_run_ends_finished_with_its_last_step_saved_and_tested(train: Train) -> None:
    run, outcome = train("data.num_documents=200", "training.max_steps=3")
    assert outcome == TrainingOutcome(Ending.FINISHED, 3) and kept(run) == (3, 3.0)
    assert [(e["when"], e["step"]) for e in read_events(run.events, "evaluation")] == [("before", 0), ("after", 3)]


def test_a_micro_batch_that_the_mesh_cannot_split_ends_the_run_before_it_trains(train: Train) -> None:
    words = r"^batch_size=4 rows at a time are not divisible by data x fsdp = 8 devices"
    with pytest.raises(UserError, match=words):
        train("training.gradient_accumulation_steps=2")


def test_data_that_is_used_up_is_an_ending_of_its_own_that_keeps_the_last_step(train: Train) -> None:
    run, outcome = train("checkpoint.every_n_steps=400")
    last = outcome.step
    assert outcome.ending is Ending.OUT_OF_DATA and 1 <= last < 6
    assert f"is used up after {last} of 6 steps; the last one is kept" in outcome.detail
    assert outcome.fix.endswith(f"training.max_steps={last}") and "data.num_epochs=0" in outcome.fix
    assert kept(run) == (last, last) and trained_steps(run) == list(range(1, last + 1))
    assert [e["when"] for e in read_events(run.events, "evaluation")] == ["before"], "it is not at its end"
    assert train(attempt=2)[1] == outcome, "a resume on the same data repeats no step"
    assert trained_steps(run) == list(range(1, last + 1))


def test_a_stop_keeps_the_step_it_comes_after_and_a_resume_goes_on_from_there(train: Train) -> None:
    run, outcome = train("data.num_documents=200", "checkpoint.every_n_steps=400", stop_after=3)
    assert outcome == TrainingOutcome(Ending.STOPPED, 3, "stopped after step 3") and kept(run) == (3, 3.0)
    assert train("data.num_documents=200", attempt=2)[1] == TrainingOutcome(Ending.FINISHED, 6)
    assert kept(run) == (6, 6.0) and trained_steps(run) == [*range(1, 7)]


def test_a_stop_before_the_first_step_keeps_nothing(train: Train) -> None:
    run, outcome = train("data.num_documents=200", stop_after=0)
    assert outcome == TrainingOutcome(Ending.STOPPED, 0, "stopped after step 0") and not trained_steps(run)
    with checkpoint.Checkpoints(RunStorage(run), None) as checkpoints:
        assert checkpoints.latest() is None


@pytest.mark.parametrize(("name", "value"), [("loss", math.nan), ("loss", math.inf), ("grad_norm", math.nan)])
def test_a_figure_that_is_not_finite_ends_the_run_at_the_last_step_that_was_saved(
    train: Train, name: str, value: float
) -> None:
    run, outcome = train("data.num_documents=200", figures={3: {name: value}})
    assert (outcome.ending, outcome.step) == (Ending.NOT_FINITE, 2) and "step 3: loss=" in outcome.detail
    assert f"{name}={value}" in outcome.detail and outcome.fix
    assert kept(run) == (2, 2.0) and trained_steps(run) == [1, 2, 3]
    assert read_steps(run, "pretrain")[-1][name] is None
