"""A run that teaches nothing says so, with the reason: no group has a difference, or a step is not a finite number."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podwright.recipe import even_groups, load
from podwright.report.wording import headline
from podwright.rundir import Ending, RunDir, append_jsonl
from podwright.train import not_finite
from podwright.watch import explain


def step(even: float, reward: float = 0.0, cut: float = 0.0, **more: float) -> dict[str, Any]:
    return {even_groups.FIGURE: even, "reward": reward, "completion_clipped": cut, **more}


@pytest.mark.parametrize(
    ("figures", "why", "fix"),
    [
        (step(1.0), "every reward was 0", "easier questions"),
        (step(1.0, cut=0.9), "every reward was 0, and most completions were cut off", "total_generation_steps"),
        (step(1.0, reward=3.0), "all completions of a question were rewarded alike, 3 on average", "harder questions"),
        (step(0.88, 0.2, equal_reward=0.0), "every reward was 0", "easier questions"),
        (
            step(0.88, 2.6, equal_reward=2.8),
            "all completions of a question were rewarded alike, 2.8",
            "harder questions",
        ),
        (
            step(0.88, 0.5, equal_reward=0.3),
            "all completions of a question were rewarded alike, 0.3 on average, less than in the others",
            "easier questions",
        ),
        (
            step(1.0, reward=-1.0),
            "all completions of a question were rewarded alike, -1 on average",
            "easier questions",
        ),
        (
            step(0.88, 0.5, 0.7, equal_reward=0.6, frac_masked=0.7),
            "all their completions were cut off, and grpo.mask_truncated leaves these out",
            "total_generation_steps",
        ),
    ],
)
def test_groups_whose_rewards_do_not_differ_are_said_with_their_reason(
    figures: dict[str, Any], why: str, fix: str
) -> None:
    said = [even_groups.notice([*[figures] * n], 123460) for n in range(7)]
    assert [bool(text) for text in said] == [n >= 5 for n in range(7)]
    share = "88 %" if figures[even_groups.FIGURE] < 1 else "100 %"
    assert said[5].startswith(f"in steps 123456 to 123460 nothing was learned from {share} of the groups: {why}")
    assert fix in said[5] and len(said[5]) <= 240
    in_the_run = {name: np.float32(value) for name, value in figures.items()}  # as a step returns them
    assert even_groups.notice([in_the_run] * 5, 123460) == said[5]


def test_groups_count_and_not_steps() -> None:
    """In no step were all groups equal, in one all differed."""
    mostly = [step(0.9)] * 4 + [step(0.5), step(0.0)]
    assert even_groups.notice([*mostly[:5]], 5) and not even_groups.notice(mostly, 6), "82 % and 64 % of the last five"


def test_a_report_begins_with_it_where_it_was_so_in_most_groups() -> None:
    found = even_groups.count([step(1.0)] * 150 + [step(0.52, reward=0.1, equal_reward=0.0)] * 50)
    assert found and even_groups.sentence(found) == (
        f"In 200 steps nothing was learned from 88 % of the groups: every reward was 0. Next time: {found.fix}."
    )
    assert even_groups.count([step(0.7)] * 20) is None and even_groups.count([]) is None
    result = {"accuracy_after": 0.5, "accuracy_gain": 0.0, "steps": 200, "num_test_after": 10}
    assert headline(result | {"even_groups": found._asdict()}).startswith("In 200 steps nothing was learned from 88 %")
    assert headline(result | {"even_groups": None}).startswith("After 200 GRPO steps")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


GRPO: Any = load.load("qwen3-tiny-arithmetic-grpo", ["optimizer.learning_rate=3e-4"])
BAD = {"loss": math.nan, "grad_norm": 1.0, "reward": 1.0, "advantage_std": 0.5}


def earlier(run: RunDir, norms: list[float]) -> None:
    run.path.mkdir(exist_ok=True)
    for n, norm in enumerate(norms, 1):
        append_jsonl(
            run.metrics,
            {"stage": "grpo", "step": n, "time": float(n), "grad_norm": norm, "learning_rate": 3e-4, "loss": 1.0},
        )


def test_the_learning_rate_is_lowered_only_where_an_update_has_moved_the_weights(run: RunDir) -> None:
    earlier(run, [1.0, 1.2, 5.0, 30.0, 200.0, 1e4])
    found = not_finite.outcome(run, GRPO, 7, 4, BAD)
    assert (found.ending, found.step) == (Ending.NOT_FINITE, 4) and "the weights of step 4 are kept" in found.detail
    assert found.fix == f"type: podwright run {run.recipe} optimizer.learning_rate=0.0001"
    first = not_finite.outcome(run, GRPO, 1, 0, BAD)
    assert "no update had changed the weights yet, so it is not the learning rate" in first.detail
    assert "learning_rate" not in first.fix and "podwright data check arithmetic" in first.fix


def test_a_step_without_an_update_has_moved_no_weight(run: RunDir) -> None:
    earlier(run, [0.0, 0.0])
    assert "no update had changed the weights yet" in not_finite.outcome(run, GRPO, 3, 2, BAD).detail


def test_further_updates_of_a_step_move_the_weights_too(run: RunDir) -> None:
    """What is written down is the rate of the first one, which is 0 where a warm-up begins."""
    twice: Any = load.load("qwen3-tiny-arithmetic-grpo", ["optimizer.learning_rate=3e-4", "grpo.num_iterations=2"])
    assert "no update had changed" in not_finite.outcome(run, twice, 1, 0, BAD | {"learning_rate": 0.0}).detail
    without_warmup = not_finite.outcome(run, twice, 1, 0, BAD | {"learning_rate": 3e-4})
    run.path.mkdir()
    append_jsonl(run.metrics, {"stage": "grpo", "step": 1, "time": 1.0, "grad_norm": 1.0, "learning_rate": 0.0})
    second = not_finite.outcome(run, twice, 2, 1, BAD | {"learning_rate": 1e-4})
    assert without_warmup.fix == second.fix == f"type: podwright run {run.recipe} optimizer.learning_rate=0.0001"


def test_the_check_to_type_reads_the_columns_of_the_recipe(run: RunDir) -> None:
    named: Any = load.load(
        "qwen3-tiny-arithmetic-grpo", ["data.source=a.csv", "data.columns={question: 'a: b', answer: q}"]
    )
    fix = not_finite.outcome(run, named, 1, 0, BAD).fix
    assert "type podwright data check a.csv --columns '{question: '\"'\"'a: b'\"'\"', answer: q}'" in fix


def test_a_step_among_usual_ones_points_at_its_rows(run: RunDir) -> None:
    earlier(run, [1.0, 1.1, 0.9, 1.0, 1.3, 1.0])
    found = not_finite.outcome(run, GRPO, 7, 4, BAD)
    assert "the steps before were as ever" in found.detail
    assert found.fix.startswith("look at the rows of that step") and found.fix.endswith("learning_rate=0.0001")


@pytest.mark.parametrize("name", ["reward", "reward/mine", "advantage_std"])
def test_rewards_that_overflow_are_the_cause(run: RunDir, name: str) -> None:
    found = not_finite.outcome(run, GRPO, 9, 4, BAD | {name: math.inf})
    assert f"{name}=inf" in found.detail and found.fix.startswith("make the rewards smaller")


def test_weights_whose_first_test_had_no_loss_are_the_cause(run: RunDir) -> None:
    run.path.mkdir()
    with run.events.open("w") as f:
        f.write(json.dumps({"event": "evaluation", "time": 1.0, "when": "before", "step": 0, "loss": math.inf}) + "\n")
    found = not_finite.outcome(run, GRPO, 1, 0, BAD)
    assert "the weights that it began with are of no use" in found.detail and "start from other weights" in found.fix


def test_diagnose_names_it_too(run: RunDir) -> None:
    run.attempt(1).mkdir(parents=True)
    (run.attempt(1) / "log.txt").write_text("all well\n")
    for n in range(1, 9):
        figures = step(0.88, reward=1.0, equal_reward=1.1)
        append_jsonl(run.metrics, {"stage": "grpo", "step": n, "time": float(n), **figures})
    (found,) = explain.run(run)
    assert (
        found["rule"] == "even-groups" and "rewarded alike" in found["cause"] and "harder questions" in found["remedy"]
    )
