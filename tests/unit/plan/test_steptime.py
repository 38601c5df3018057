"""What a step and a run take and cost, by hand from the seconds of programs; and which mesh axes a collective is over."""

import pytest

from podwright import slices
from podwright.data import gsm8k
from podwright.plan.checks.examples import num_test_examples, num_train_examples
from podwright.plan.checks.meshes import axes, resolved, spanned
from podwright.plan.compiled import dump, step_time
from podwright.plan.compiled.compile import Compiled
from podwright.plan.compiled.costs import ProgramCost, read
from podwright.recipe import load
from podwright.recipe.models import MODELS

V6E_8 = slices.parse("v6e-8")
SECONDS = {"update": 4.0, "score": 1.0, "rollout": 20.0, "evaluate": 30.0, "warm_start": 0.5}

NOTES = {"rollout": ("of v5e", "sorts"), "update": ("of v5e",), "evaluate": ("of v5e",)}


def recipe(*overrides, name="qwen3-1.7b-gsm8k-grpo"):
    return load.load(name, ["batch_size=32", "training.max_steps=100", "evaluation.every_n_steps=0", *overrides])


def compiled(without=()):
    memory = dump.Memory(1, 0, 0, 1, 0, ())
    costs = {
        name: ProgramCost(1e15, 1e12, 0, 0, seconds, "hbm", ())
        for name, seconds in SECONDS.items()
        if name not in without
    }
    return [Compiled(name, "fits", 1.0, memory, cost=cost, notes=NOTES.get(name, ())) for name, cost in costs.items()]


def document(made, num_test=None, price=None, where=V6E_8, without=()):
    return step_time.compiled_grpo(compiled(without), made, MODELS["qwen3-1.7b"], where, num_test, price)


@pytest.mark.parametrize(
    ("overrides", "scores", "updates", "step_s"),
    [
        ([], 1, 1, 25),
        (["grpo.beta=0"], 0, 1, 24),
        (["grpo.num_iterations=3"], 2, 3, 34),
        (["grpo.beta=0", "grpo.num_iterations=2"], 1, 2, 29),
    ],
)
def test_a_step_runs_what_the_loop_runs(overrides, scores, updates, step_s):
    step = document(recipe(*overrides))
    assert {p.name: p.runs for p in step.programs} == {"rollout": 1, "update": updates} | (
        {"score": scores} if scores else {}
    )
    assert step.step_s == sum(p.seconds for p in step.programs) == step_s


def test_rates_are_those_of_the_whole_batch():
    step = document(recipe())
    assert step.prompts_per_s == 32 / 25 and step.completions_per_s == 8 * 32 / 25
    assert step.tokens_per_s_per_device == 8 * 32 * 2048 / 25 / 8
    # 2 FLOPs a weight and token, of rollout, score, forward and twice backward
    tokens, dims = 32 * 256 + 32 * 8 * 2048, MODELS["qwen3-1.7b"]
    weights = 2 * dims.layer_matmul_params() * dims.num_layers * tokens
    least = 5 * (weights + 2 * dims.hidden_size * dims.vocab_size * 32 * 8 * 2048) / (25 * 8 * 918e12)
    assert least < step.mfu < 1.6 * least, "attention comes on top"


def test_a_run_is_its_steps_its_tests_and_its_supervised_steps():
    bare = document(recipe()).run
    assert (bare.evaluations, bare.steps_s, bare.hours) == (None, 2500, 2500 / 3600)
    assert bare.chip_hours == 8 * 2500 / 3600 and bare.cost is None
    # before and after; 300 questions of which 128 are decoded at a time
    tested = document(recipe("evaluation.batch_size=128"), num_test=300).run
    assert (tested.evaluations, tested.evaluations_s) == (2, 2 * 3 * 30)
    assert tested.hours == (2500 + 180) / 3600
    # a row of a batch for every device, whatever was asked for
    assert document(recipe("evaluation.batch_size=3"), num_test=16).run.evaluations_s == 2 * 2 * 30
    warm = "warm_start={max_steps: 40, batch_size: 8, learning_rate: 1e-3}"
    assert document(recipe(warm)).run.hours == (2500 + 40 * 0.5) / 3600


@pytest.mark.parametrize(
    ("every", "steps", "count"), [(0, 100, 2), (30, 100, 5), (50, 100, 3), (100, 100, 2), (99, 100, 3)]
)
def test_tests_fall_before_during_and_after(every, steps, count):
    assert (
        step_time.num_evaluations(recipe(f"evaluation.every_n_steps={every}", f"training.max_steps={steps}")) == count
    )


def test_a_price_is_paid_for_chips_not_devices():
    one = document(recipe(), price=2.7).run
    assert one.cost == pytest.approx(2.7 * 8 * 2500 / 3600)
    of_16_devices = document(recipe(), price=2.7, where=slices.parse("tpu7x-16")).run
    assert of_16_devices.cost == pytest.approx(one.cost), "8 chips"


def test_what_is_not_counted_is_said():
    assert "rollout.total_generation_steps=2048 tokens" in document(recipe(), num_test=10).notes[0]
    assert document(recipe(), num_test=10).notes[1:] == ("update, rollout: of v5e", "rollout: sorts")
    drawn, tested = document(recipe("grpo.dynamic_sampling=2")).notes[1:3]
    assert "up to 40 s" in drawn and "evaluations are not counted" in tested


def test_a_step_with_a_program_that_has_no_time_has_none():
    assert document(recipe(), without=("rollout",)) is None
    assert document(recipe("grpo.beta=0"), without=("score",)) is not None


@pytest.mark.parametrize(
    ("on", "mesh", "devices", "axis"),
    [
        ("v6e-8", [], (0, 1, 2, 3, 4, 5, 6, 7), "fsdp"),
        ("v6e-16", ["mesh.tensor=4"], (0, 1, 2, 3), "tensor"),
        ("v6e-16", ["mesh.tensor=4"], (0, 4, 8, 12), "fsdp"),
        ("v6e-16", ["mesh.tensor=4"], tuple(range(16)), "fsdp x tensor"),
        ("v6e-8", ["mesh.data=2", "mesh.tensor=2"], (0, 2), "fsdp"),
        ("v6e-8", ["mesh.data=2", "mesh.tensor=2"], (0, 4), "data"),
        ("v6e-8", ["mesh.data=2", "mesh.tensor=2"], (0, 2, 4, 6), "data x fsdp"),
        ("v6e-8", ["mesh.data=2", "mesh.tensor=2"], (1, 2, 4), "data x fsdp x tensor"),
        ("v6e-8", [], (3,), ""),
    ],
)
def test_a_group_is_named_by_the_axes_along_which_it_lies(on, mesh, devices, axis):
    made = recipe(*mesh)
    assert spanned(dict(zip(axes(made), resolved(made, slices.parse(on)), strict=True)), devices) == axis


SCHEDULE = """HloModule jit_step, is_scheduled=true, num_partitions=4

ENTRY %main (x: f32[1000]) -> f32[2000] {
  %x = f32[1000]{0} parameter(0)
  %y = f32[1000]{0} all-reduce(%x), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%add
  %z = f32[1000]{0} all-reduce(%y), replica_groups={{1,3},{0,2}}, to_apply=%add
  ROOT %w = f32[2000]{0} all-gather(%z), replica_groups={{0,1},{2,3}}, dimensions={0}
}
"""


def test_a_dump_is_read_whole_or_not_at_all(tmp_path):
    where, shape, path = (
        slices.parse("v6e-4"),
        {"data": 1, "fsdp": 2, "tensor": 2},
        tmp_path / "module_0001.jit_step.after_optimizations.txt",
    )
    assert read(tmp_path, where, shape) == (None, ("no time is predicted: the compiler left no schedule",))
    path.write_text(SCHEDULE)
    cost, notes = read(tmp_path, where, shape)
    assert notes == () and cost.bound == "ici"
    assert [(t.kind, t.axis, t.sent_bytes, t.count) for t in cost.collectives] == [
        ("all-gather", "tensor", 4000, 1),
        ("all-reduce", "fsdp", 8000, 2),
    ], "two groups of one axis are one line"
    for size in range(100, len(SCHEDULE) - 2, 50):
        path.write_text(SCHEDULE[:size])
        cost, (note,) = read(tmp_path, where, shape)
        assert cost is None and "the compiler's schedule cannot be read (ValueError" in note


@pytest.mark.parametrize("num_test", [0, 7])
def test_questions_are_counted_as_the_trainer_reads_them(tmp_path, num_test):
    """Also those that stand in a file twice, of which a part is held out."""
    for name, lines in (("train.jsonl", 43), ("test.jsonl", 12)):
        rows = [f'{{"question": "{n % 29}?", "answer": "#### {n % 29}"}}\n' for n in range(lines)]
        (tmp_path / name).write_text("".join(rows))
    for source in (tmp_path, tmp_path / "train.jsonl"):
        for seed in range(5):
            counted = recipe(
                "model.source=random", f"data.source={source}", f"data.num_test={num_test}", f"seed={seed}"
            )
            train, test = gsm8k.parts(counted.data, seed)[:2]
            assert num_test_examples(counted, tmp_path) == len(test)
            assert num_train_examples(counted, tmp_path) == len(train)
    assert num_test_examples(recipe(f"data.num_test={num_test}"), tmp_path) == (num_test or None)
