"""What programs cost on a CPU: counts of really compiled programs, prices from samples, and a calibration that is kept."""

import json

import jax
import pytest

from podwright import slices
from podwright.plan.compiled import calibrate, costs, environment, hlo
from podwright.recipe import load
from podwright.recipe.models import MODELS
from podwright.shell import Shell
from podwright.train.grpo.program import GrpoSetup, programs
from podwright.train.mesh import make_mesh

MICRO = MODELS["qwen3-micro"]
ONE = (1, 1, 1)
PRICES = calibrate.Prices((1e-11, 5e-11, 4e-10, 1e-6), "a machine", 0.0)
SMALL = [
    "model.name=qwen3-micro",
    "rollout.max_prompt_length=32",
    "rollout.total_generation_steps=16",
    "grpo.num_generations=4",
]


def compiled(name, *overrides):
    recipe = load.load("qwen3-tiny-arithmetic-grpo", [*SMALL, *overrides])
    made = programs(GrpoSetup(recipe, MICRO, make_mesh(recipe.mesh, jax.devices()[:1]), (-1,), 0))[name]
    return hlo.parse(made.lower().compile().as_text())


def count(name, *overrides):
    return PRICES.cost(compiled(name, *overrides), ONE, 0)


@pytest.fixture(scope="module")
def update():
    return count("update", "batch_size=16")


@pytest.mark.long
def test_a_program_of_twice_the_batch_takes_twice_as_long(update):
    twice = count("update", "batch_size=32")
    assert twice.flops == pytest.approx(2 * update.flops, rel=0.02)
    for resource in ("compute", "memory"):
        assert twice.limits[resource] == pytest.approx(2 * update.limits[resource], rel=0.1), resource
    assert twice.limits["overhead"] < 1.2 * update.limits["overhead"], (
        "more of them in an instruction, not more instructions"
    )
    assert twice.predicted_s == sum(twice.limits.values())


def test_the_products_of_an_update_are_those_of_the_closed_form(update):
    prompts, new = 16 * 32, 16 * 4 * 16
    # three times a forward pass: attention sees a prompt whole and, from a completion, prompt and completion whole
    forward = MICRO.forward_flops(prompts, 32, 0) + MICRO.forward_flops(new, 32 + 16, new)
    again = 2 * MICRO.hidden_size * MICRO.vocab_size * new  # logits of a chunk are not kept for the backward pass
    assert update.flops == pytest.approx(3 * forward + again, rel=0.05)


@pytest.mark.long
def test_a_rollout_counts_every_token(update):
    short, long = (count("rollout", f"rollout.total_generation_steps={n}") for n in (16, 48))
    assert any("counted with the most it can turn, 15" in note for note in short.notes)
    assert any("counted with the most it can turn, 47" in note for note in long.notes)
    assert 2.5 < long.starts / short.starts < 3.2
    assert any("calibrated on this machine (a machine): 100 GFLOP/s" in note for note in long.notes)


def test_memory_that_malloc_maps_anew_is_paid_for():
    module = compiled("score", "batch_size=4")
    below, above = (PRICES.cost(module, ONE, size) for size in (32 * 1024**2, 64 * 1024**2))
    assert below.limits["page faults"] == 0
    assert above.predicted_s - below.predicted_s == pytest.approx(4e-10 * 64 * 1024**2)


def test_prices_are_found_again_in_what_they_make():
    units = [
        (9e9, 1e8, 0.0, 500.0),
        (1e8, 2e9, 0.0, 900.0),
        (5e8, 1e8, 6e7, 300.0),
        (1e7, 2e7, 0.0, 9000.0),
        (3e9, 3e9, 3e7, 700.0),
    ]
    seconds = [sum(map(float.__mul__, PRICES.seconds, map(float, row))) for row in units]
    assert calibrate.fitted(units, seconds) == pytest.approx(PRICES.seconds, rel=1e-3)


def test_no_price_is_below_zero():
    assert min(calibrate.fitted([(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)], [1.0, 3.0, 5.0])) == 0.0


class Counting(Shell):
    started = 0

    def start(self, *arguments, **rest):
        self.started += 1
        return super().start(*arguments, **rest)


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(calibrate, "PROBES", ((MICRO, 2, 2),))
    monkeypatch.setattr(calibrate, "PROGRAMS", ("score", "rollout"))
    monkeypatch.setattr(calibrate, "ROUND_S", 0.01)


def prices(cache, runner):
    return calibrate.prices(1, "float32", ["1"], environment.here(), cache, runner, lambda *a: None)


def test_a_machine_is_calibrated_once_and_again_when_the_file_is_damaged(brief, tmp_path):
    runner = Counting()
    first = prices(tmp_path, runner)
    assert runner.started == 1 and min(first.seconds) >= 0 < max(first.seconds)
    assert prices(tmp_path, runner) == first and runner.started == 1
    (kept,) = tmp_path.glob("cpu-*.json")
    assert list(tmp_path.iterdir()) == [kept], "what was measured with is gone"
    kept.write_text(kept.read_text()[:-20])
    prices(tmp_path, runner)
    assert runner.started == 2 and len(json.loads(kept.read_text())["seconds"]) == 4


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        '{"seconds": [1',
        "[]",
        '{"seconds": null, "others": 0}',
        '{"seconds": [1, 2], "others": 0}',
        '{"seconds": [1, 2, 3, 4]}',
    ],
)
def test_a_damaged_file_is_no_calibration(damaged, tmp_path):
    (tmp_path / "cpu.json").write_text(damaged)
    assert calibrate._read(tmp_path / "cpu.json", "a machine") is None


def test_a_machine_that_cannot_be_calibrated_has_no_times(brief, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    assert prices(tmp_path, Counting()) is None
    (log,) = tmp_path.glob("cpu-*/log.txt")
    assert "xla_no_such_flag" in log.read_text() and not list(tmp_path.glob("cpu-*.json"))
    cost, (note,) = costs.read(tmp_path, slices.parse("cpu-1"), {"data": 1, "fsdp": 1, "tensor": 1})
    assert cost is None and "this machine could not be calibrated" in note
