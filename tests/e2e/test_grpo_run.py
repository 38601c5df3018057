"""The real trainer, really started: a whole run, killed and resumed bit for bit, in two processes, and badly treated."""

import json
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from podwright.counted_steps import read_steps
from podwright.recipe import load
from podwright.rundir import append_jsonl, read_jsonl
from tests.e2e.trainer import (
    ROOT,
    environment,
    figures,
    finish,
    finish_several,
    logs,
    prepare,
    start,
    start_several,
    train,
    weights,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Four uninterrupted steps."""
    run, end = train(tmp_path_factory.mktemp("whole") / "run", profiled=[3])
    assert end["ending"] == "FINISHED", end
    return run


def test_a_whole_run_leaves_every_record(whole):
    events = list(read_jsonl(whole.events))
    tests = [e for e in events if e["event"] == "evaluation"]
    assert [(e["when"], e["step"], e["num"]) for e in tests] == [("before", 0, 12), ("after", 4, 12)]
    assert all(0 <= e["strict"]["low"] <= e["strict"]["accuracy"] <= e["strict"]["high"] <= 1 for e in tests)
    assert sum(e["event"] == "comparison" for e in events) == 1
    steps = {stage: read_steps(whole, stage) for stage in ("warm_start", "grpo")}
    assert [r["step"] for r in steps["warm_start"]] == [1, 2, 3] and [r["step"] for r in steps["grpo"]] == [1, 2, 3, 4]
    promised = {
        "loss reward advantage_std frac_reward_zero_std frac_masked kl entropy clip_ratio importance_mismatch completion_length completion_length_max",
        "completion_clipped grad_norm learning_rate rollout_s score_s update_s step_s sequences_per_s tokens_per_s mfu peak_memory_gib",
    }
    assert set(" ".join(promised).split()) | {"reward/check_answer", "epoch"} <= set(steps["grpo"][0])
    assert len({s["question"] for s in read_jsonl(whole.samples)}) == 8
    assert [r["step"] for r in steps["grpo"] if r.get("profiled")] == [3] and list(
        (whole.profile / "step-3").rglob("*.xplane.pb")
    )


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(whole, tmp_path):
    run = prepare(tmp_path / "run")
    process = start(run)
    deadline = time.time() + 900
    while not (run.checkpoints / "2").is_dir() or len(figures(run).get("grpo", [])) < 3:
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not run.exit(1).exists()
    end = finish(run, start(run, attempt=2), attempt=2)
    assert end["ending"] == "FINISHED"
    assert [e["step"] for e in read_jsonl(run.events) if e["event"] == "resumed"] == [2]
    assert figures(run) == figures(whole)
    assert weights(run) == weights(whole)


@pytest.mark.long
def test_a_stop_saves_and_a_resume_goes_on(whole, tmp_path):
    run = prepare(tmp_path / "run", "checkpoint.every_n_steps=100")
    process = start(run)
    while len(figures(run).get("grpo", [])) < 1:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    end = finish(run, process)
    assert end["ending"] == "STOPPED" and end["detail"].startswith("stopped after step ")
    assert finish(run, start(run, attempt=2), attempt=2)["ending"] == "FINISHED"
    assert figures(run) == figures(whole)


CROSSING = "model.name=qwen3-tiny mesh.data=3 mesh.fsdp=1 mesh.tensor=2 batch_size=6 warm_start.batch_size=6"  # one tensor pair of three


@pytest.mark.long
@pytest.mark.parametrize(("meshed", "devices"), [("mesh.fsdp=8", 4), (CROSSING, 3)])
def test_two_processes_equal_one_of_as_many_devices(tmp_path, meshed, devices):
    meshed = [*meshed.split(), "evaluation.every_n_steps=2"]
    one, end = train(tmp_path / "one", *meshed, devices=2 * devices)
    assert end["ending"] == "FINISHED", end
    run = prepare(tmp_path / "two" / "run", *meshed)
    codes, end = finish_several(run, start_several(run, devices=devices))
    assert codes == [0, 0] and end["ending"] == "FINISHED", logs(run)
    assert [e["processes"] for e in read_jsonl(run.events) if e["event"] == "environment"] == [2]
    alone, together = figures(one), figures(run)
    for stage in alone:
        for a, b in zip(alone[stage], together[stage], strict=True):
            names = sorted(a.keys() - {"stage"})
            np.testing.assert_allclose(
                [a[k] for k in names], [b[k] for k in names], rtol=2e-3, atol=2e-5, err_msg=str(names)
            )
    answers = [[e["strict"]["correct"] for e in read_jsonl(r.events) if e["event"] == "evaluation"] for r in (one, run)]
    assert answers[0] == answers[1]


def evaluated(*words):
    """What the verb `eval` prints, of a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "podwright", "eval", *words, "--json"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_run_eval_of_the_export_and_transformers_give_the_same_answers(whole, tmp_path):
    """The run is asked without --data, the export the same questions as a file, transformers as people call it."""
    import transformers

    weights(whole)
    out = whole.path.parent / f"{whole.name}-export"
    after = [e for e in read_jsonl(whole.events) if e["event"] == "evaluation"][-1]
    samples = [sample for sample in read_jsonl(whole.samples) if sample["when"] == "after"]
    of_run = evaluated(str(whole.path))
    assert (of_run["strict"], of_run["mean_tokens"], of_run["step"]) == (after["strict"], after["mean_tokens"], 4)
    for sample in samples:
        append_jsonl(tmp_path / "a.jsonl", {"question": sample["question"], "answer": f"#### {sample['answer']}"})
    of_export = evaluated(str(out), "--data", str(tmp_path / "a.jsonl"))
    completions = [sample["completion"] for sample in samples]
    assert [sample["completion"] for sample in of_export["samples"]] == completions
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for sample in samples:
        turns = [{"role": "user", "content": sample["question"]}]
        prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True, return_tensors="pt")
        tokens = model.generate(**prompt)[0][prompt["input_ids"].shape[1] :]
        assert tokenizer.decode(tokens, skip_special_tokens=True) == sample["completion"]


@pytest.mark.long
def test_an_exploding_loss_stops_at_the_last_good_checkpoint(tmp_path):
    run, end = train(
        tmp_path / "run", "optimizer.learning_rate=1e30", "optimizer.max_grad_norm=1e30", "checkpoint.every_n_steps=1"
    )
    assert end["ending"] == "NOT_FINITE"
    what, name, *overrides = shlex.split(end["fix"].removeprefix("type: podwright "))
    assert what == "run" and load.load(name, overrides).optimizer.learning_rate == pytest.approx(3e29)
    assert load.load(name) == load.parse(json.loads(run.recipe.read_text()))
    assert (
        f"the weights of step {end['step']} are kept" in end["detail"]
        and end["step"] < 4
        and "Traceback" not in end["log"]
    )
    assert (run.checkpoints / str(end["step"])).is_dir() == (end["step"] > 0)


def test_a_failing_reward_names_the_sample_and_ends_cleanly(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "def fn(prompts, completions, **columns):\n    return [1 / 0 if '3' in q else 1.0 for q in columns['question']]\n"
    )
    _, end = train(tmp_path / "run", f"rewards=[{{function: '{plugin}:fn'}}]")
    assert end["ending"] == "BAD_INPUT" and "ZeroDivisionError" in end["detail"] and "sample" in end["detail"]
    assert "Traceback" not in end["log"]


@pytest.mark.long
def test_long_prompts_are_counted_and_said(tmp_path):
    run, end = train(tmp_path / "run", "rollout.max_prompt_length=56", "training.max_steps=1")
    notices = [e["message"] for e in read_jsonl(run.events) if e["event"] == "notice"]
    assert end["ending"] == "FINISHED" and any("are longer than 56 tokens and are left out" in n for n in notices)
    _, end = train(tmp_path / "none", "rollout.max_prompt_length=5")
    assert end["ending"] == "BAD_INPUT" and "type rollout.max_prompt_length=" in end["fix"]


def test_a_second_trainer_in_the_same_run_is_turned_away(tmp_path):
    run = prepare(tmp_path / "run")
    first = start(run)
    while not run.events.exists():
        time.sleep(0.05)
    end = finish(run, start(run, attempt=2), attempt=2)
    assert end["ending"] == "BAD_INPUT" and "another trainer" in end["detail"]
    first.kill()
    first.wait()
