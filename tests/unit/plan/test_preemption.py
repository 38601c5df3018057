"""What preemptions cost: the formula against simulated preemptions, and what a plan says of it and proposes."""

import json
import math
import random
from pathlib import Path

import pytest

from podwright.plan.checks.preemption import _share, check
from podwright.plan.document import Plan
from podwright.plan.estimates.preemption import DAY_S, MOST_LOSS, SaveTime, best_interval, expected_loss
from podwright.plan.findings import Finding
from podwright.plan.make import make
from podwright.plan.options import Destination
from podwright.recipe.load import load
from podwright.rundir import write_json
from podwright.slices import parse

V6E_16 = parse("v6e-16")


def simulated_loss(interval_s: float, save: SaveTime, between_s: float, seed: int, preemptions: int = 4000) -> float:
    """Share of the time that trained nothing that was kept: a launch resumes at once from the last state that was written."""
    draw = random.Random(seed)
    clock = kept = 0.0
    for _ in range(preemptions):
        end = draw.expovariate(1 / between_s)
        clock += end
        time, trained, written_at = 0.0, 0.0, -math.inf
        saves: list[tuple[float, float]] = []  # when a state counts, and how much was trained by then
        while time < end:
            time += interval_s
            trained += interval_s
            time = max(time, written_at) + save.wait_s
            written_at = time + save.write_s
            saves.append((written_at, trained))
        kept += max((t for at, t in saves if at <= end), default=0.0)
    return 1 - kept / clock


@pytest.mark.parametrize(
    ("interval_s", "save"),
    [
        (400.0, SaveTime(0.05, 40.0)),
        (600.0, SaveTime(10.0, 10.0)),
        (60.0, SaveTime(1.0, 30.0)),
        (30.0, SaveTime(0.1, 45.0)),
    ],
)
def test_the_expected_loss_is_that_of_simulated_preemptions(interval_s: float, save: SaveTime) -> None:
    between_s = DAY_S / 4
    expected = expected_loss(interval_s, save, between_s)
    # the formula relates the loss to the time of training, the simulation to all the time
    got = simulated_loss(interval_s, save, between_s, seed=7)
    assert got / (1 - got) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("save", [SaveTime(5.0, 20.0), SaveTime(0.05, 40.0), SaveTime(0.5, 0.5)])
def test_the_best_interval_loses_no_more_than_others(save: SaveTime) -> None:
    between_s, step_s = DAY_S / 4, 8.0
    best = best_interval(step_s, 1000, save, between_s)
    least = expected_loss(best * step_s, save, between_s)
    assert least == min(expected_loss(n * step_s, save, between_s) for n in range(1, 1001))
    assert simulated_loss(best * step_s, save, between_s, 3) < simulated_loss(10 * best * step_s, save, between_s, 3)


def test_a_run_shorter_than_the_best_interval_is_saved_at_its_end() -> None:
    assert best_interval(10.0, 3, SaveTime(50.0, 50.0), DAY_S) == 3
    assert best_interval(1e4, 100, SaveTime(0.1, 0.1), DAY_S) == 1


def planned(*overrides: str, rate: float = 4.0, **terms: object) -> Plan:
    spot = Destination("tpu", V6E_16, provisioning="spot", preemptions_per_day=rate, **terms)  # type: ignore[arg-type]
    return make(load("qwen3-1.7b-gsm8k-grpo", list(overrides)), spot)


def finding(plan: Plan) -> Finding:
    (only,) = [f for f in plan.findings if f.check == "preemption"]
    return only


def test_a_plan_states_the_seconds_of_a_save_and_what_preemptions_cost(tmp_path: Path) -> None:
    plan = planned()
    entry = plan.preemption
    assert entry and entry.checkpoint_gib == pytest.approx(12 * 1_720_574_976 / (1 << 30), rel=0.01)
    assert entry.loss is not None and entry.loss < MOST_LOSS and finding(plan).level == "info"
    assert "20.6 GB" in finding(plan).message and "4 preemptions a day" in finding(plan).message
    write_json(tmp_path / "plan.json", plan.document())
    assert Plan.read(tmp_path / "plan.json") == plan
    assert plan.document()["preemption"]["loss"] == entry.loss
    alone = planned(shared_storage=False).preemption
    assert alone and alone.write_s == 4 * entry.write_s, "the first host writes what four wrote"


@pytest.mark.parametrize("source", ["mine.jsonl", "nobody/has-this"])
def test_a_run_of_epochs_has_its_price_of_preemptions(source: str, tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(400)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = str(tmp_path / source) if source == "mine.jsonl" else source
    plan = planned("training.max_steps=0", "training.num_epochs=2", f"data.source={source}", "data.num_test=50")
    assert plan.preemption and plan.preemption.loss and plan.preemption.best_every_n_steps, plan.findings


def test_an_interval_that_loses_too_much_has_a_remedy_that_can_be_typed() -> None:
    plan = planned("checkpoint.every_n_steps=400")
    warning = finding(plan)
    assert warning.level == "warning" and plan.preemption and plan.preemption.loss
    assert plan.preemption.loss > MOST_LOSS > (plan.preemption.best_loss or 1)
    typed = warning.fix.removeprefix("type ").partition(",")[0]
    assert typed == f"checkpoint.every_n_steps={plan.preemption.best_every_n_steps}"
    assert finding(planned(typed)).level == "info"


def test_where_no_interval_is_good_enough_the_remedy_is_another_way_of_paying() -> None:
    best = planned(rate=1000.0).preemption
    assert best
    plan = planned(f"checkpoint.every_n_steps={best.best_every_n_steps}", rate=1000.0)
    assert "provisioning=on-demand" in finding(plan).fix


def test_without_the_time_of_a_step_the_loss_is_not_known() -> None:
    spot = Destination("tpu", V6E_16, provisioning="spot", preemptions_per_day=4.0)
    entry, said = check(load("qwen3-0.6b-pretrain"), 2e10, None, spot, V6E_16)  # type: ignore[arg-type]
    assert entry.loss is None and said.fix == "type --compile"


def test_machines_that_are_not_taken_away_have_no_such_line() -> None:
    plan = planned(rate=0.0)
    assert plan.preemption is None and not [f for f in plan.findings if f.check == "preemption"]
    assert "preemption" not in plan.document()


def test_a_loss_of_more_than_the_time_of_training_is_no_percentage() -> None:
    assert [_share(loss) for loss in (0.021, 32.968)] == ["2.1% of the time", "more than all of the time"]


@pytest.mark.parametrize(("step_s", "level"), [(0.02, "info"), (0.2, "warning")])
def test_no_interval_is_advised_where_a_step_is_far_below_a_second(step_s: float, level: str) -> None:
    spot = Destination("tpu", V6E_16, provisioning="spot", preemptions_per_day=4.0)
    recipe = load("qwen3-1.7b-gsm8k-grpo", ["checkpoint.every_n_steps=10"])
    entry, said = check(recipe, 2e10, step_s, spot, V6E_16)  # type: ignore[arg-type]
    assert entry.loss and entry.loss > MOST_LOSS
    assert said.level == level and ("checkpoint.every_n_steps=" in said.fix) is (level == "warning")
