"""Pretraining, really run: to its end, killed and resumed bit for bit, in two processes, out of data, into infinity."""

import functools
import json
import signal
import time

import jax
import numpy as np
import pytest

from podwright.counted_steps import read_steps
from podwright.recipe import load
from podwright.report.result import result
from podwright.rundir import Ending, read_jsonl, recipe_of
from podwright.train.emit import Emitter
from podwright.train.mesh import make_mesh
from podwright.train.pretrain import loop
from tests.e2e.trainer import (
    figures,
    finish,
    finish_several,
    logs,
    prepare,
    put_foreign_names,
    start,
    start_several,
    state,
    train,
)

RECIPE = "almodel-tiny"
SMALL = (
    "data.num_documents=2000",
    "batch_size=8",
    "sequence_length=64",
    "training.max_steps=6",
    "evaluation.every_n_steps=4",
    "evaluation.num_batches=1",
    "checkpoint.every_n_steps=2",
    "optimizer.learning_rate=0.01",
)


def evaluations(run):
    return [(e["when"], e["step"], e["num"], e["loss"]) for e in read_jsonl(run.events) if e["event"] == "evaluation"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run, end = train(tmp_path_factory.mktemp("whole") / "run", *SMALL, recipe=RECIPE, profiled=[4, 5])
    assert end["ending"] == "FINISHED", end
    return run


def test_a_whole_run_leaves_every_record_and_learns(whole):
    steps = read_steps(whole, "pretrain")
    assert [r["step"] for r in steps] == [1, 2, 3, 4, 5, 6]
    promised = "loss grad_norm learning_rate expert_load_max dead_experts target_tokens tokens tokens_per_s_per_device tflops_per_device mfu"
    assert set(f"{promised} peak_memory_gib data_wait_s step_s".split()) <= set(steps[0])
    assert [r["tokens"] for r in steps] == [512 * n for n in range(1, 7)] and steps[-1]["loss"] < steps[0]["loss"] - 0.5
    assert [test[:2] for test in evaluations(whole)] == [("before", 0), ("during", 4), ("after", 6)]
    before, _, after = (test[3] for test in evaluations(whole))
    assert before == pytest.approx(np.log(259), abs=0.1) and after < before - 0.5
    (seen,) = [e for e in read_jsonl(whole.events) if e["event"] == "environment"]
    assert seen["num_params"] == 414118 and seen["data"]["held_out_documents"] > 0 and seen["data"]["tokens"] > 10000


def test_chosen_steps_leave_traces_and_are_marked(whole):
    assert [r["step"] for r in read_steps(whole, "pretrain") if r.get("profiled")] == [4, 5]
    traces = sorted(
        path.relative_to(whole.profile).parts[0]
        for path in whole.profile.rglob("*.xplane.pb")
        if path.stat().st_size > 1000
    )
    assert traces == ["step-4", "step-5"]
    found = result(whole)
    assert found["profile"]["steps"] == [4, 5] and str(whole.profile) in found["profile"]["command"]
    assert (found["steady_state"]["num_steps"], found["steady_state"]["num_left_out"]) == (2, 2)


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(whole, tmp_path):
    run = prepare(tmp_path / "run", *SMALL, recipe=RECIPE)
    put_foreign_names(run)
    process, deadline = start(run), time.time() + 900
    while not (run.checkpoints / "2").is_dir() or len(figures(run).get("pretrain", [])) < 3:
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = finish(run, start(run, attempt=2), attempt=2)
    assert end["ending"] == "FINISHED" and next(
        e["step"] for e in read_jsonl(run.events) if e["event"] == "resumed"
    ) in (2, 4)
    assert figures(run) == figures(whole) and state(run, 6) == state(whole, 6)
    assert sorted(set(evaluations(run))) == sorted(evaluations(whole))


@pytest.mark.crowded
def test_a_small_dense_model_trains_in_two_processes_as_in_one(tmp_path, monkeypatch):
    """One process is that of the test; of the two each has a device and half of each batch."""
    small = (*SMALL, "model.name=qwen3-micro", "mesh.fsdp=2", "optimizer.name=adamw")
    small += ("evaluation.every_n_steps=0", "training.max_steps=2")
    run = prepare(tmp_path / "two" / "run", *small, recipe=RECIPE)
    processes = start_several(run, devices=1)
    one = prepare(tmp_path / "one", *small, recipe=RECIPE)
    monkeypatch.setattr(loop, "make_mesh", functools.partial(make_mesh, devices=jax.devices()[:2]))
    assert loop.train(one, load.parse(recipe_of(one)), Emitter(one, 1, True), lambda: False).ending is Ending.FINISHED
    codes, end = finish_several(run, processes)
    assert codes == [0, 0] and (end["ending"], end["step"]) == ("FINISHED", 2), logs(run)
    steps = [figures(each)["pretrain"] for each in (one, run)]
    for a, b in zip(*steps, strict=True):
        names = sorted(a.keys() - {"stage"})
        np.testing.assert_allclose([a[k] for k in names], [b[k] for k in names], rtol=2e-3, err_msg=str(names))
    assert state(one, 2).keys() == state(run, 2).keys()
    np.testing.assert_allclose(*([test[3] for test in evaluations(each)] for each in (one, run)), rtol=2e-3)


@pytest.mark.long
def test_two_processes_equal_one_of_as_many_devices(tmp_path):
    """Each has its part of every sequence, and of the experts."""
    meshed = (*SMALL, "sequence_length=256", "batch_size=2", "mesh.fsdp=1", "mesh.context=4", "mesh.expert=2")
    one, end = train(tmp_path / "one", *meshed, devices=8, recipe=RECIPE)
    assert end["ending"] == "FINISHED", end
    run = prepare(tmp_path / "two" / "run", *meshed, recipe=RECIPE)
    codes, end = finish_several(run, start_several(run, devices=4, module="tests.e2e.bias_of_each"))
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    for a, b in zip(figures(one)["pretrain"], figures(run)["pretrain"], strict=True):
        names = sorted(a.keys() - {"stage"})
        np.testing.assert_allclose([a[k] for k in names], [b[k] for k in names], rtol=2e-3, err_msg=str(names))
    for step in (2, 4, 6):
        first, *others = (np.load(path) for path in sorted(run.path.parent.glob(f"bias-{step}-*.npy")))
        assert len(others) == 7 and first.any() and all(np.array_equal(first, other) for other in others)


@pytest.mark.long
def test_data_that_is_used_up_is_an_ending_of_its_own_that_keeps_the_last_step(tmp_path):
    run, end = train(tmp_path / "run", *SMALL, "data.num_documents=25", "checkpoint.every_n_steps=400", recipe=RECIPE)
    assert end["ending"] == "OUT_OF_DATA" and 1 <= end["step"] < 6, end
    assert (
        f"is used up after {end['step']} of 6 steps; the last one is kept" in end["detail"]
        and "data.num_epochs" in end["fix"]
    )
    assert state(run, end["step"])


@pytest.mark.long
def test_a_loss_that_is_not_finite_ends_the_run_and_names_a_rate(tmp_path):
    _, end = train(
        tmp_path / "run", *SMALL, "optimizer.learning_rate=1e30", "optimizer.warmup_ratio=0.0", recipe=RECIPE
    )
    assert end["ending"] == "NOT_FINITE" and "optimizer.learning_rate=3e+29" in end["fix"], end


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["data.source=nowhere"], "nowhere"),
        (["evaluation.num_batches=1000"], "held out"),
    ],
)
def test_what_is_wrong_with_the_data_ends_the_run_before_it_begins(tmp_path, overrides, said):
    _, end = train(tmp_path / "run", *SMALL, *overrides, recipe=RECIPE)
    assert end["ending"] == "BAD_INPUT" and said in end["detail"] and end["fix"], json.dumps(end)


@pytest.mark.long
def test_a_short_run_learns_more_than_how_frequent_each_token_is(tmp_path):
    run, end = train(tmp_path / "run", *SMALL, "training.max_steps=60", recipe=RECIPE)
    assert end["ending"] == "FINISHED", end
    (last,) = [e for e in read_jsonl(run.events) if e["event"] == "evaluation" and e["when"] == "after"]
    assert 3.3 < last["unigram_entropy"] < 3.6 and last["loss"] < 0.75 * last["unigram_entropy"]
