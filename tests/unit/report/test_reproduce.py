"""The command in a report makes the same recipe again."""

from __future__ import annotations

import shlex
from pathlib import Path

import made_runs
import pytest

from podwright.recipe.load import fingerprint, load
from podwright.report import records, reproduce
from podwright.rundir import append_jsonl

OVERRIDES = [
    (),
    ("training.max_steps=10", "batch_size=8", "seed=3"),
    ("warm_start=null", "model.source=/models/a b/Qwen3's", "optimizer.learning_rate=3e-7"),
    (
        "grpo.epsilon_high=0.28",
        "grpo.importance_cap=null",
        "trackers=[mlflow, wandb]",
        'data.instruction="Say: #### n"',
    ),
    ('rewards=[{function: "my rewards.py:f", weight: 0.5}, {function: "a.b:c"}]',),
]


@pytest.mark.parametrize("overrides", OVERRIDES)
@pytest.mark.parametrize("name", ["qwen3-tiny-arithmetic-grpo", "qwen3-1.7b-gsm8k-grpo"])
def test_the_command_gives_the_same_recipe_again(tmp_path: Path, name: str, overrides: tuple[str, ...]) -> None:
    made = made_runs.Made(tmp_path / "made", recipe=name, overrides=overrides)
    words = shlex.split(reproduce.command(made.run, records.read(made.run)))
    assert words[:3] == ["podwright", "run", name]
    assert words[-2:] == ["--on", "local"]
    assert fingerprint(load(name, words[3:-2])) == fingerprint(made.model)


def test_a_warm_start_that_the_shipped_recipe_lacks(tmp_path: Path) -> None:
    name = "qwen3-1.7b-gsm8k-grpo"
    start = ("warm_start.max_steps=5", "warm_start.batch_size=4", "warm_start.learning_rate=1e-4")
    made = made_runs.Made(tmp_path / "made", recipe=name, overrides=start)
    words = shlex.split(reproduce.command(made.run, records.read(made.run)))
    assert fingerprint(load(name, words[3:-2])) == fingerprint(made.model)


def test_a_recipe_of_ones_own_runs_from_the_resolved_one(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made", overrides=("name=mine",))
    words = shlex.split(reproduce.command(made.run, records.read(made.run)))
    assert fingerprint(load(words[2])) == fingerprint(made.model)


def test_the_target_is_the_one_in_the_journal(tmp_path: Path) -> None:
    made = made_runs.Made(tmp_path / "made")
    append_jsonl(made.run.journal, {"event": "created", "target": "my-slurm"})
    assert reproduce.command(made.run, records.read(made.run)).endswith("--on my-slurm")


def test_settings_put_what_differs_from_the_schema_first() -> None:
    settings = reproduce.settings(load("qwen3-tiny-arithmetic-grpo", ["grpo.beta=0.5"]))
    by_key = {s.key: s for s in settings}
    assert by_key["grpo.beta"].changed and by_key["grpo.beta"].default == 0.08
    assert by_key["batch_size"].changed and by_key["batch_size"].default is None
    assert not by_key["grpo.epsilon"].changed
    assert by_key["grpo.beta"].meaning.startswith("weight of the KL")
    assert [s.changed for s in settings] == sorted((s.changed for s in settings), reverse=True)
    assert "expect.value" not in by_key
