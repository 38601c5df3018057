"""What the loop refuses before it starts, one step of it with written completions, and whole runs of a tiny model with every event."""

import dataclasses
import functools
import itertools
import json
import shutil
import types

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from podwright.counted_steps import read_steps
from podwright.errors import UserError
from podwright.models import lora
from podwright.recipe import even_groups, load, schema
from podwright.rundir import Ending, RunDir, read_jsonl, write_json
from podwright.train import checkpoint, devices, mesh, speed
from podwright.train.emit import Emitter
from podwright.train.grpo import loop, reward, standalone, start
from podwright.train.grpo.collect import Collector
from podwright.train.grpo.program import GrpoState
from podwright.train.grpo.reward import LoadedReward
from podwright.train.mesh import make_mesh
from podwright.train.program import Program
from podwright.train.run_storage import RunStorage
from tests.unit.train import scripted


def test_a_size_that_the_mesh_does_not_divide_is_one_line():
    laid = make_mesh(schema.GrpoMesh(data=2, fsdp=2), jax.devices()[:4])
    mesh.require_divides(laid, {"batch_size": 8, "warm_start.batch_size": 4})
    with pytest.raises(UserError, match=r"warm_start.batch_size=6 .* 4 devices; make it a multiple of 4"):
        mesh.require_divides(laid, {"batch_size": 8, "warm_start.batch_size": 6})


@pytest.mark.parametrize(("platform", "factor"), [("darwin", 1), ("linux", 1024)])
def test_peak_memory_is_in_the_units_of_the_platform(monkeypatch, platform, factor):
    monkeypatch.setattr(devices.sys, "platform", platform)
    peak = devices.resource.getrusage(devices.resource.RUSAGE_SELF).ru_maxrss
    assert speed.peak_memory_bytes() == pytest.approx(peak * factor, rel=0.5)


def rates(peak, warmup, steps):
    """The learning rate before each step, by transformers' cosine schedule with a linear warm-up."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, warmup, steps)
    values = []
    for _ in range(steps + 1):
        values.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return values


class Scripted:
    """Programs that write down what they are given; the completions of even rollouts are all right, those of odd ones half."""

    def __init__(self, *overrides):
        self.setup = scripted.setup("grpo.num_generations=2", *overrides)
        asked = scripted.encoded(self.setup, 40)
        self.sampler = scripted.sampler(self.setup, asked, 2, lambda q, g, number: "1" if g or number % 2 else "no")
        self.drew, self.scored, self.updates, self.rates = [], [], [], []
        programs = {"rollout": dataclasses.replace(self.sampler, step=self.rollout)}
        programs |= {"score": Program("score", self.score, ()), "update": Program("update", self.update, ())}
        ones = LoadedReward("one", lambda prompts, completions, **_: [float(c == "1") for c in completions], 1.0)
        self.collector = Collector(self.setup, programs, asked, scripted.TOKENIZER, [ones])

    def rollout(self, params, *arguments):
        self.drew.append((params, int(arguments[2])))
        return self.sampler(params, *arguments)

    def score(self, params, group):
        self.scored.append(params)
        return jax.numpy.full(group.completions_PGT.shape, len(self.scored))

    def update(self, state, batch, rate, base):
        self.updates.append((state, batch, base))
        self.rates.append(float(rate))
        return GrpoState(state.params + 1, state.opt_state), {"loss": jax.numpy.float32(len(self.updates))}


def test_a_step_moves_on_by_all_rollouts_that_it_took():
    """Rollout 5 is all right, so rollout 6 takes its groups' places: two rounds of four questions."""
    made = Scripted("grpo.dynamic_sampling=2", "grpo.beta=0", "training.max_steps=10")
    cursor = {"step": 3, "used": 20, "rollouts": 5}
    state, cursor, figures = loop.step(made.collector, GrpoState(7.0, None), None, cursor)
    assert cursor == {"step": 4, "used": 28, "rollouts": 7} and [n for _, n in made.drew] == [5, 6]
    assert figures["epoch"] == 28 / 40 and figures["reward"] == 0.5 and figures["loss"] == 1.0
    assert state.params == 8.0 and made.scored == []
    (_, batch, base), params = made.updates[0], [p for p, _ in made.drew]
    assert batch.old_PGT is None and batch.reference_PGT is None and base is None and params == [7.0, 7.0]
    r = made.setup.recipe.optimizer
    right = rates(r.learning_rate, round(r.warmup_ratio * 10), 10)
    assert figures["learning_rate"] == pytest.approx(right[3], rel=1e-5) and made.rates == [figures["learning_rate"]]
    assert {"rollout_s", "score_s", "update_s", "step_s", "own_s"} <= figures.keys()


@pytest.mark.parametrize(("beta", "reference", "updates"), [("0", None, 0), ("0.1", 99.0, 1)])
def test_equal_rewards_are_an_update_only_where_the_weights_are_held_near_a_reference(beta, reference, updates):
    made = Scripted(f"grpo.beta={beta}", "grpo.num_iterations=1")
    cursor = {"step": 0, "used": 0, "rollouts": 1}
    state, cursor, figures = loop.step(made.collector, GrpoState(7.0, None), reference, cursor)
    assert len(made.updates) == updates and state.params == 7.0 + updates and cursor["step"] == 1
    assert figures["frac_reward_zero_std"] == figures["equal_reward"] == 1 and figures["advantage_std"] == 0


def test_a_step_without_time_is_dropped_after_its_rollouts_and_leaves_the_state_as_it_was():
    made = Scripted("grpo.beta=0.1")
    cursor, state = {"step": 2, "used": 0, "rollouts": 1}, GrpoState(7.0, None)
    assert loop.step(made.collector, state, "reference", cursor, hurried=lambda: True) is None
    assert made.drew == [(7.0, 1)] and made.scored == [] and made.updates == [] and state.params == 7.0
    assert cursor == {"step": 2, "used": 0, "rollouts": 1}


@pytest.mark.parametrize(("offload", "waits"), [("true", "pinned_host"), ("false", "device")])
def test_an_offloaded_reference_is_on_the_devices_only_while_it_scores(monkeypatch, offload, waits):
    made = Scripted("grpo.beta=0.1", f"grpo.offload_reference={offload}")
    job = types.SimpleNamespace(
        recipe=made.setup.recipe, emit=types.SimpleNamespace(storage=None), source=None, setup=made.setup
    )
    weights = {"w": jax.numpy.arange(8.0), "norm": jax.numpy.ones(8)}
    monkeypatch.setattr(start, "reference", lambda *_: weights)
    reference = loop._reference(job, GrpoState(7.0, None), None)
    loop.step(made.collector, GrpoState(7.0, None), reference, {"step": 0, "used": 0, "rollouts": 0})
    assert reference["w"].sharding.memory_kind == waits
    (scored,) = made.scored
    assert scored["w"].sharding.memory_kind == "device" and scored["w"].tolist() == list(range(8))


def test_several_updates_share_a_batch_and_the_log_probabilities_from_before_the_first(monkeypatch):
    monkeypatch.setattr(loop.program, "scored", lambda _, policy: policy)
    made = Scripted("grpo.num_iterations=3", "training.max_steps=10")
    cursor = {"step": 2, "used": 0, "rollouts": 1}
    state, cursor, figures = loop.step(made.collector, GrpoState(7.0, None), 99.0, cursor)
    assert cursor == {"step": 3, "used": 4, "rollouts": 2}
    assert made.scored == [7.0, 99.0], "the policy as it drew, and the reference"
    assert [s.params for s, _, _ in made.updates] == [7.0, 8.0, 9.0] and state.params == 10.0
    assert len({id(batch) for _, batch, _ in made.updates}) == 1 and figures["loss"] == 3.0
    batch = made.updates[0][1]
    assert (np.asarray(batch.old_PGT) == 1).all() and (np.asarray(batch.reference_PGT) == 2).all()
    r = made.setup.recipe.optimizer
    right = rates(r.learning_rate, round(r.warmup_ratio * 30), 30)
    assert figures["learning_rate"] == pytest.approx(right[6], rel=1e-5)
    assert made.rates == pytest.approx(right[6:9], rel=1e-5)


def test_a_step_of_adapters_hands_the_base_to_every_program():
    made = Scripted("grpo.beta=0.1")
    policy = lora.policy(7.0, "base")
    loop.step(made.collector, GrpoState(7.0, None), "reference", {"step": 0, "used": 0, "rollouts": 1}, "base")
    assert made.drew == [(policy, 1)] and made.scored == ["reference"] and made.updates[0][2] == "base"


SIZES = [
    "model.name=qwen3-micro",
    "data.num_train=40",
    "data.num_test=10",
    "batch_size=4",
    "grpo.num_generations=4",
    "grpo.num_iterations=2",
    "grpo.dynamic_sampling=1",
    "rollout.max_prompt_length=80",
    "rollout.total_generation_steps=16",
    "warm_start.max_steps=2",
    "warm_start.batch_size=4",
    "evaluation.batch_size=8",
    "evaluation.every_n_steps=2",
    "checkpoint.every_n_steps=2",
    "training.max_steps=5",
    "optimizer.warmup_ratio=0.2",
    "optimizer.learning_rate=1e-3",
    "rewards=[{function: tests.unit.train.scripted:varied}]",
]


def recipe(*overrides):
    return load.load("qwen3-tiny-arithmetic-grpo", [*SIZES, *overrides])


def never():
    return False


class StopWhen:
    """What the launcher asks for, as functions."""

    def __init__(self, stopping, hurried):
        self.stopping, self.hurried = stopping, hurried

    def __call__(self):
        return self.stopping()


def train(path, *overrides, attempt=1, stopping=never, hurried=never, load_rewards=reward.load):
    """On one device, in this process."""
    run = RunDir(path)
    run.attempt(attempt).mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_mesh", functools.partial(make_mesh, devices=jax.devices()[:1]))
        emit, asked = Emitter(run, attempt, True), StopWhen(stopping, hurried)
        return run, loop.train(run, recipe(*overrides), emit, asked, load_rewards)


def steps(run):
    """The figures of each step that do not depend on the clock."""
    names = ("step", "loss", "grad_norm", "reward", "kl", "entropy", "clip_ratio", "learning_rate", "epoch")
    return [{name: r[name] for name in names} for r in read_steps(run, "grpo")]


def events(run, attempt=None):
    """What happened, in its order: phases by name, evaluations by when and step, checkpoints; no notices."""
    named = []
    for e in read_jsonl(run.events):
        if attempt in (None, e["attempt"]) and e["event"] != "notice":
            step = [str(e[name]) for name in ("phase", "when", "step") if name in e]
            named.append(" ".join([e["event"], *step]).removeprefix("phase "))
    return named


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # What it says, and of which steps, is tested in test_even_groups.py.
        patch.setattr(
            even_groups,
            "notice",
            lambda recent, step: f"even groups of {[round(float(f['reward']), 5) for f in recent]}" * (len(recent) > 2),
        )
        run, outcome = train(tmp_path_factory.mktemp("whole") / "run")
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 5)
    return run


FROM_STEP_2 = ["checkpoint 2", "evaluation", "evaluation during 2", "grpo", "checkpoint 4"]
FROM_STEP_4 = ["evaluation", "evaluation during 4", "grpo", "checkpoint 5", "evaluation", "evaluation after 5"]
BEFORE = ["loading", "environment", "warm_start", "evaluation", "evaluation before 0", "grpo"]


def test_a_run_from_first_to_last(whole):
    assert events(whole) == [*BEFORE, *FROM_STEP_2, *FROM_STEP_4, "comparison"]
    found = steps(whole)
    assert [s["step"] for s in found] == [1, 2, 3, 4, 5]
    peak = recipe().optimizer.learning_rate
    right = rates(peak, 2, 10)  # two updates a step, a fifth of them to warm up
    assert [s["learning_rate"] for s in found] == pytest.approx(right[0:10:2], rel=1e-5, abs=1e-12)
    assert all(s["grad_norm"] > 0 and s["reward"] > 0 for s in found) and found[-1]["kl"] > 0
    used = [round(s["epoch"] * 40 / 4) for s in found]
    assert all(b - a in (1, 2) for a, b in zip([0, *used], used, strict=False)), "one or two rollouts of four questions"
    told = [e["message"] for e in read_jsonl(whole.events) if e["event"] == "notice" and "even groups" in e["message"]]
    rewards = [round(s["reward"], 5) for s in found]
    assert told == [f"even groups of {rewards[:3]}"], "it is said once"
    with checkpoint.Checkpoints(RunStorage(whole), None) as kept:
        assert kept.latest() == 5
    cursor = json.loads((whole.checkpoints / "5" / "cursor" / "metadata").read_text())
    assert cursor == {"step": 5, "used": 4 * used[-1], "rollouts": used[-1]}
    before, after = (json.loads(whole.flags(when).read_text()) for when in ("before", "after"))
    (compared,) = [e for e in read_jsonl(whole.events) if e["event"] == "comparison"]
    assert compared["gained"] == sum(a and not b for a, b in zip(after, before, strict=True))
    assert compared["lost"] == sum(b and not a for a, b in zip(after, before, strict=True))


def test_a_run_that_was_stopped_and_resumed_repeats_no_step_and_no_evaluation(whole, tmp_path):
    path = tmp_path / "run"
    run, outcome = train(path, stopping=lambda: len(list(read_jsonl(RunDir(path).metrics))) == 2 + 3)
    assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 3, "stopped after step 3")
    until_3 = [*FROM_STEP_2[:-1], "saving", "checkpoint 3"]
    assert events(run) == [*BEFORE, *until_3]
    run, outcome = train(path, attempt=2)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 5)
    assert events(run, 2) == [
        *("loading", "environment", "resumed 3", "grpo", "checkpoint 4"),
        *(*FROM_STEP_4, "comparison"),
    ]
    assert steps(run) == steps(whole)
    assert json.loads(run.flags("after").read_text()) == json.loads(whole.flags("after").read_text())


@pytest.mark.long
def test_a_step_that_was_dropped_in_a_hurry_is_done_again_as_if_it_had_not_begun(whole, tmp_path):
    """The machines are taken while step 4 draws: step 3 is saved, though no checkpoint was due."""
    taken = itertools.count(1)
    run, outcome = train(tmp_path / "run", hurried=lambda: next(taken) > 3)
    assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 3, "stopped after step 3")
    assert events(run)[-2:] == ["saving", "checkpoint 3"] and steps(run) == steps(whole)[:3]
    run, outcome = train(tmp_path / "run", "grpo.offload_reference=true", attempt=2)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 5) and steps(run) == steps(whole)


def test_a_run_in_a_hurry_drops_the_step_at_work_and_keeps_the_one_before(whole, tmp_path, monkeypatch):
    """What a step does when it is asked in a hurry is tested above; here it is told by the run whether it is."""
    shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "5")
    monkeypatch.setattr(loop, "step", lambda *arguments: None if arguments[-1]() else pytest.fail("no hurry"))
    run, outcome = train(tmp_path / "run", attempt=2, hurried=lambda: True)
    assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 4, "stopped after step 4")
    assert [record["attempt"] for record in read_jsonl(run.metrics)] == [1] * 7, "no step of this attempt"


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        (("training.gradient_accumulation_steps=2",), "batch_size=4 rows at a time"),
        (("warm_start.batch_size=4",), "warm_start.batch_size=4 rows at a time"),
    ],
)
def test_a_batch_that_the_mesh_cannot_split_ends_the_run_before_it_trains(tmp_path, overrides, refused):
    run, asked = RunDir(tmp_path / "run"), StopWhen(never, never)
    sizes = ("mesh.fsdp=-1", "batch_size=8", "warm_start.batch_size=8", *overrides)
    with pytest.raises(UserError, match=f"^{refused} are not divisible by data x fsdp = 8 devices"):
        loop.train(run, recipe(*sizes), Emitter(run, 1, True), asked, reward.load)
    assert not run.metrics.exists()


@pytest.mark.long
def test_an_evaluation_that_is_written_down_is_not_repeated(whole, tmp_path):
    """A resume of a run that was killed right after an evaluation, and of one that had ended."""
    shutil.copytree(whole.path, tmp_path / "ended")
    run, outcome = train(tmp_path / "ended", attempt=2)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 5)
    assert events(run, 2) == ["loading", "environment", "resumed 5", "grpo", "comparison"]
    shutil.copytree(whole.path, tmp_path / "killed")
    run = RunDir(tmp_path / "killed")
    shutil.rmtree(run.checkpoints / "5")
    run.flags("after").unlink()
    lines = run.events.read_text().splitlines(keepends=True)
    (last,) = [n for n, line in enumerate(lines) if '"during"' in line and '"step": 4' in line]
    run.events.write_text("".join(lines[: last + 1]))
    assert train(tmp_path / "killed", attempt=2)[1].ending == Ending.FINISHED
    assert events(run, 2) == ["loading", "environment", "resumed 4", "grpo", *FROM_STEP_4[3:], "comparison"]
    assert steps(run) == steps(whole)


def test_a_stop_in_the_last_evaluation_keeps_the_last_step(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "run")
    run = RunDir(tmp_path / "run")
    lines = [line for line in run.events.read_text().splitlines(keepends=True) if '"after"' not in line]
    run.events.write_text("".join(lines))
    _, outcome = train(run.path, attempt=2, stopping=lambda: True)
    assert (outcome.ending, outcome.step) == (Ending.STOPPED, 5)
    assert events(run, 2) == ["loading", "environment", "resumed 5", "grpo", "evaluation", "saving", "checkpoint 5"]


def test_a_stop_before_the_first_step_keeps_no_checkpoint(tmp_path):
    path = tmp_path / "run"
    run, outcome = train(path, stopping=lambda: any("before" in e for e in events(RunDir(path))))
    assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 0, "stopped after step 0")
    assert events(run) == [*BEFORE, "saving"] and not (run.checkpoints / "0").exists()
    train(path, attempt=2, stopping=lambda: True)
    assert events(run, 2) == ["loading", "environment", "grpo", "saving"], "neither warm start nor evaluation again"


def test_a_stop_in_the_warm_start_ends_before_any_evaluation(tmp_path):
    run, outcome = train(tmp_path / "run", stopping=lambda: True)
    assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 0, "stopped during the warm start")
    assert events(run) == BEFORE[:3]


@pytest.mark.long
def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_step(tmp_path):
    run, outcome = train(
        tmp_path / "run", "optimizer.learning_rate=1e30", "optimizer.max_grad_norm=1e30", "checkpoint.every_n_steps=1"
    )
    assert outcome.ending == Ending.NOT_FINITE
    last = read_steps(run, "grpo")[-1]["step"]
    assert outcome.step == last - 1 and f"step {last}: loss=" in outcome.detail
    assert f"the weights of step {outcome.step} are kept" in outcome.detail
    assert outcome.fix.startswith(f"type: podwright run {run.recipe} optimizer.learning_rate=3e+29")
    assert events(run)[-1] in (f"checkpoint {outcome.step}", BEFORE[-1])


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_one_figure_that_is_not_finite_is_enough(whole, tmp_path, monkeypatch, name):
    shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "5")
    taken = loop.step
    monkeypatch.setattr(loop, "step", lambda *x: (*(y := taken(*x))[:2], y[2] | {name: float("nan")}))
    run, outcome = train(tmp_path / "run", attempt=2)
    assert (outcome.ending, outcome.step) == (Ending.NOT_FINITE, 4) and f"{name}=nan" in outcome.detail
    assert not (run.checkpoints / "5").exists()


class Hangs:
    """`varied`, which does not return for one completion of the rollouts of step 3; `shown` are all completions that it got."""

    def __init__(self):
        self.shown, self.stopping = [], False

    def load(self, rewards):
        (self.inner,) = reward.load(rewards)
        return [LoadedReward("varied", self, 1.0)]

    def __call__(self, prompts, completions, **columns):
        self.shown.append([*zip(columns["question"], completions, strict=True)])
        record = {"reward": "varied"}
        if len(self.shown) == 3 and not self.stopping:
            record |= zip(("question", "completion"), self.shown[-1][5], strict=True)
        if len(self.shown) == 3:
            raise reward.RewardTimeout(record)
        return self.inner.function(prompts, completions, **columns)


ONE_ROLLOUT = ("grpo.dynamic_sampling=0", "evaluation.every_n_steps=0", "checkpoint.every_n_steps=100")


def test_a_reward_that_hangs_keeps_the_last_step_and_a_resume_scores_that_completion_0(tmp_path):
    hangs = Hangs()
    run, outcome = train(tmp_path / "run", *ONE_ROLLOUT, load_rewards=hangs.load)
    (victim,) = [e for e in read_jsonl(run.events) if e["event"] == "reward_timeout"]
    pair = victim["question"], victim["completion"]
    assert (outcome.ending, outcome.step) == (Ending.REWARD_TIMEOUT, 2) and pair == hangs.shown[2][5]
    assert outcome.detail == (
        "step 3: the reward varied did not return within rewards_timeout=60 s for the "
        f"question {pair[0][:60]!r}, completion {pair[1][:60]!r}"
    )
    assert outcome.fix == f"type: podwright resume {run.typed}, which scores that completion 0"
    assert events(run)[-3:] == ["saving", "checkpoint 2", "reward_timeout"]
    _, outcome = train(run.path, *ONE_ROLLOUT, attempt=2, load_rewards=hangs.load)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 5) and events(run, 2)[2] == "resumed 2"
    assert hangs.shown[3] == [(q, "" if (q, text) == pair else text) for q, text in hangs.shown[2]]
    (notice,) = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice" and "0 for" in e["message"]]
    assert notice.startswith("the reward varied did not return in attempt 1: it is 0 for the question ")


@pytest.mark.parametrize("stopped", [True, False])
def test_a_reward_that_is_too_slow_says_which_limit_to_raise_unless_the_run_is_stopped(whole, tmp_path, stopped):
    shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "5")
    hangs = Hangs()
    hangs.stopping, hangs.shown = True, [None, None]
    run, outcome = train(
        tmp_path / "run", attempt=2, load_rewards=hangs.load, stopping=lambda: stopped and len(hangs.shown) > 2
    )
    if stopped:
        assert (outcome.ending, outcome.step, outcome.detail) == (Ending.STOPPED, 4, "stopped after step 4")
        return
    assert (outcome.ending, outcome.step) == (Ending.REWARD_TIMEOUT, 4)
    assert outcome.detail.endswith("rewards_timeout=60 s for all its completions, and hangs on none of them alone")
    assert outcome.fix.endswith(f"or type: podwright run {run.recipe} rewards_timeout=180")


def test_prompts_that_are_too_long_are_counted_in_a_notice(tmp_path):
    run, outcome = train(tmp_path / "run", "rollout.max_prompt_length=56", stopping=lambda: True)
    assert outcome.ending == Ending.STOPPED
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    lengths = [n for n in notices if n.endswith("prompts are longer than 56 tokens and are left out")]
    assert lengths and all(n.split()[1:4] in (["of", "40", "training"], ["of", "10", "test"]) for n in lengths)


def test_a_run_of_adapters_ends_with_an_export_that_has_what_it_trained(tmp_path):
    """One step at the whole learning rate, with the three programs that a run cannot do without."""
    few = ("warm_start=null", "grpo.beta=0", "grpo.num_iterations=1", "grpo.dynamic_sampling=0", "training.max_steps=1")
    few += ("evaluation.every_n_steps=0", "optimizer.warmup_ratio=0")
    run, outcome = train(tmp_path / "run", "model.lora_rank=2", *few)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 1)
    (begun,) = [e for e in read_jsonl(run.events) if e["event"] == "environment"]
    assert 0 < begun["num_trained_params"] < begun["num_params"] / 2
    write_json(run.recipe, recipe("model.lora_rank=2", *few).model_dump(mode="json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standalone, "make_mesh", functools.partial(make_mesh, devices=jax.devices()[:1]))
        assert standalone.export(run.path, tmp_path / "out")["step"] == 1
        setup, _, policy, _ = standalone._open(run.path, standalone._recipe_for(run.path))
    exported = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    weight = exported["model.layers.0.mlp.up_proj.weight"].T
    base = np.asarray(policy.base["layers"]["up"][0])
    a, b = (np.asarray(policy.adapters["layers"]["up"][k][0]) for k in "ab")
    np.testing.assert_allclose(weight, base + setup.lora_scale * a @ b, rtol=1e-4, atol=1e-6)
    assert np.abs(weight - base).max() > 1e-5


class ByStep:
    """A reward by the number of its rollout, from 1: `varied` in those of `steps`, else 0.7 for every completion."""

    def __init__(self, *steps, begun=0):
        self.steps, self.asked = steps, begun

    def load(self, rewards):
        (self.inner,) = reward.load(rewards)
        return [LoadedReward("by_step", self, 1.0)]

    def __call__(self, prompts, completions, **columns):
        self.asked += 1
        if self.asked in self.steps:
            return self.inner.function(prompts, completions, **columns)
        return [0.7] * len(completions)


GROUPS_OF_7 = (
    *ONE_ROLLOUT[:2],
    *("checkpoint.every_n_steps=1", "grpo.beta=0", "grpo.num_generations=7", "training.max_steps=4"),
)


@pytest.fixture
def states(monkeypatch):
    """Step -> every array of the state that a run saved behind it."""
    saved = {}

    class Kept(checkpoint.Checkpoints):
        def save(self, step, state, cursor):
            saved[step] = jax.tree.map(np.array, state)
            super().save(step, state, cursor)

    monkeypatch.setattr(loop.checkpoint, "Checkpoints", Kept)
    return saved


def bits(state):
    return [x.tobytes() for x in jax.tree.leaves(state)]


@pytest.mark.parametrize(
    "kind", ["grpo", *(pytest.param(x, marks=pytest.mark.long) for x in ("dr_grpo", "dapo", "gspo", "cispo"))]
)
def test_a_step_whose_rewards_are_all_equal_changes_no_weight_and_no_moment_and_the_rate_goes_on(
    states, tmp_path, kind
):
    """A warm-up of two steps, and only step 3 has rewards that differ, behind a resume: AdamW moves a weight by its learning rate at first.

    Its moments and weight decay would move the weights in step 4.
    """
    sizes = (*GROUPS_OF_7, "grpo.num_iterations=1", "optimizer.warmup_ratio=0.5", f"grpo.loss={kind}")
    rewards, path = ByStep(3), tmp_path / "run"
    run, outcome = train(
        path, *sizes, load_rewards=rewards.load, stopping=lambda: len(read_steps(RunDir(path), "grpo")) == 2
    )
    assert (outcome.ending, outcome.step) == (Ending.STOPPED, 2)
    run, outcome = train(path, *sizes, load_rewards=rewards.load, attempt=2)
    assert outcome.ending == Ending.FINISHED
    assert bits(states[1]) == bits(states[2]) != bits(states[3]) == bits(states[4])
    peak = recipe().optimizer.learning_rate
    assert [s["learning_rate"] for s in steps(run)] == pytest.approx(rates(peak, 2, 4)[:4], rel=1e-5)
    moved = np.abs(states[3].params["embed"] - states[2].params["embed"]).max()
    assert moved == pytest.approx(peak, rel=0.05)
    *_, differs, equal = read_steps(run, "grpo")
    nothing = {"grad_norm": 0.0, "loss": 0.0, "advantage_std": 0.0, "frac_reward_zero_std": 1.0, "entropy": None}
    assert nothing.items() <= equal.items() and equal["equal_reward"] == pytest.approx(0.7)
    assert differs["grad_norm"] > 0 and differs["frac_reward_zero_std"] < 1


@pytest.mark.long
def test_adapters_are_counted_as_what_is_trained(tmp_path):
    run, outcome = train(tmp_path / "run", "model.lora_rank=2", "training.max_steps=1", "grpo.beta=0.1")
    assert outcome.ending == Ending.FINISHED
    (begun,) = [e for e in read_jsonl(run.events) if e["event"] == "environment"]
    assert 0 < begun["num_trained_params"] < begun["num_params"] / 2
    (only,) = steps(run)
    assert only["grad_norm"] > 0


@pytest.mark.long
def test_epochs_are_steps_of_the_prompts_that_fit(tmp_path, whole):
    """40 examples in batches of 12: 3 steps and a remainder of 4; the same as with three steps, also when stopped and resumed."""
    batch = ("batch_size=12", "warm_start.batch_size=12", "grpo.dynamic_sampling=0")
    by_steps, outcome = train(tmp_path / "steps", *batch, "training.max_steps=3")
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 3)
    epochs = (*batch, "training.max_steps=0", "training.num_epochs=1")
    by_epochs, outcome = train(tmp_path / "epochs", *epochs)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 3)
    assert steps(by_epochs) == steps(by_steps) and steps(by_epochs)[-1]["epoch"] == 36 / 40
    assert [e["max_steps"] for e in read_jsonl(by_epochs.events) if e["event"] == "environment"] == [3]
    path = tmp_path / "halved"
    halved, outcome = train(path, *epochs, stopping=lambda: len(list(read_jsonl(RunDir(path).metrics))) == 2 + 1)
    assert (outcome.ending, outcome.step) == (Ending.STOPPED, 1)
    _, outcome = train(path, *epochs, attempt=2)
    assert (outcome.ending, outcome.step) == (Ending.FINISHED, 3)
    assert steps(halved) == steps(by_epochs)


@pytest.mark.long
def test_a_reward_of_tunix_trains_and_its_seconds_are_counted(tmp_path, whole):
    module = tmp_path / "plugin.py"
    module.write_text(
        "import time\n\n"
        "def length(prompts, completions, answer, **kwargs):\n"
        "    time.sleep(0.4)\n"
        "    return [float(len(text)) for text, _ in zip(completions, answer)]\n"
    )
    run, outcome = train(tmp_path / "run", f"rewards=[{{function: '{module}:length'}}]", "training.max_steps=1")
    (figures,) = read_steps(run, "grpo")
    assert outcome.ending == Ending.FINISHED
    assert figures["reward/length"] > 0 and figures["rollout_s"] >= 0.4
