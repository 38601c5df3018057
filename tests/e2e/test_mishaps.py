"""What can befall a run's files and numbers, with the real trainer: killed, damaged, changed, not finite."""

import json
import shutil
import signal
import time

import pytest

from podwright.data.tokenizer import Tokenizer
from podwright.rundir import RunDir, append_jsonl, read_jsonl
from podwright.train.grpo import standalone
from tests.e2e.trainer import figures, finish, prepare, start, train


def events(run, name):
    return [e for e in read_jsonl(run.events) if e["event"] == name]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run on a file of its own, killed after its test at step 2 and then resumed to the end of step 4."""
    folder = tmp_path_factory.mktemp("killed")
    for n in range(40):
        append_jsonl(
            folder / "data.jsonl", {"question": f"How many are {n} and 1?", "answer": f"{n}+1={n + 1}\n#### {n + 1}"}
        )
    run = prepare(
        folder / "run", f"data.source={folder / 'data.jsonl'}", "evaluation.every_n_steps=2", "data.num_train=0"
    )
    process = start(run)
    deadline = time.time() + 900
    while not (run.checkpoints / "2").is_dir() or len(figures(run).get("grpo", [])) < 3:
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert finish(run, start(run, attempt=2), attempt=2)["ending"] == "FINISHED"
    return run


@pytest.fixture
def run(killed, tmp_path):
    return RunDir(shutil.copytree(killed.path, tmp_path / "run"))


@pytest.mark.long
def test_a_resume_repeats_no_evaluation(killed):
    assert [(e["when"], e["step"]) for e in events(killed, "evaluation")] == [
        ("before", 0),
        ("during", 2),
        ("after", 4),
    ]
    assert [e["step"] for e in events(killed, "resumed")] == [2]


def test_a_run_killed_after_its_last_evaluation_repeats_none(killed, run):
    """Killed between the last evaluation and the ending: what is left to do is the comparison."""
    end = finish(run, start(run, attempt=3), attempt=3)
    assert end["ending"] == "FINISHED"
    assert events(run, "evaluation") == events(killed, "evaluation") and len(events(run, "comparison")) == 2


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(killed, run):
    data = max((f for f in (run.checkpoints / "4").rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    data.write_bytes(data.read_bytes()[:100])
    end = finish(run, start(run, attempt=3), attempt=3)
    assert end["ending"] == "FINISHED", end
    (notice,) = events(run, "notice")[len(events(killed, "notice")) :]
    assert notice["message"] == "the checkpoint of step 4 is damaged and was put aside; this resumes from step 2"
    assert [e["step"] for e in events(run, "resumed")] == [2, 2]
    assert figures(run) == figures(killed)


def test_a_resume_without_any_checkpoint_says_that_it_begins_again(killed, run):
    shutil.rmtree(run.checkpoints)
    assert finish(run, start(run, attempt=3), attempt=3)["ending"] == "FINISHED"
    (notice,) = events(run, "notice")[len(events(killed, "notice")) :]
    assert notice["message"] == (
        f"no checkpoint is left in {run.checkpoints.resolve()}, where that of step 4 was: "
        "training begins again at step 0, after 4 steps"
    )
    assert [e["step"] for e in events(run, "resumed")] == [2] and figures(run) == figures(killed)


@pytest.mark.long
def test_a_trainer_whose_run_directory_is_deleted_in_the_middle_of_a_step_ends_and_creates_nothing(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n\ndef fn(prompts, completions, **columns):\n"
        "    pathlib.Path(__file__).with_name('called').touch()\n    time.sleep(600)\n"
    )
    run = prepare(tmp_path / "run", "warm_start=null", f"rewards=[{{function: '{tmp_path / 'slow.py'}:fn'}}]")
    process, deadline = start(run), time.time() + 900
    while not (tmp_path / "called").exists():
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.05)
    shutil.rmtree(run.path)
    assert process.wait(900) == 1 and not run.path.exists()


def test_changed_data_is_refused_before_anything_is_recorded(killed, run):
    recipe = json.loads(run.recipe.read_text())
    changed = run.path.parent / "data.jsonl"
    lines = (killed.path.parent / "data.jsonl").read_text().splitlines()
    changed.write_text("\n".join([*lines[:-1], lines[-1].replace("39+1", "40")]) + "\n")
    run.recipe.write_text(json.dumps(recipe | {"data": recipe["data"] | {"source": str(changed)}}))
    before = run.metrics.read_text()
    end = finish(run, start(run, attempt=3), attempt=3)
    assert end["ending"] == "BAD_INPUT" and "Traceback" not in end["log"]
    assert (
        f"data.source={changed} is not what run run began with: some of its rows have changed" in end["detail"]
        and "bring it back as it was" in end["fix"]
    )
    assert run.metrics.read_text() == before


def test_an_export_that_is_broken_off_leaves_nothing_that_looks_whole(run, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tokenizer, "save", killed)
        standalone.export(run.path, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
    standalone.export(run.path, tmp_path / "out")
    assert {"model.safetensors", "config.json", "tokenizer.json"} < {f.name for f in (tmp_path / "out").iterdir()}
    assert not list(tmp_path.glob(".out*"))


def test_a_warm_start_that_is_not_finite_says_which_rate_to_lower(tmp_path):
    rates = ["warm_start.learning_rate=1e30", "optimizer.max_grad_norm=1e30", "optimizer.warmup_ratio=0"]
    run, end = train(tmp_path / "run", *rates, "rollout.total_generation_steps=12")
    assert end["ending"] == "BAD_INPUT" and "Traceback" not in end["log"]
    assert end["detail"].startswith("step 2 of the warm start: loss=") and "nan" in end["detail"]
    assert end["fix"] == "type a lower warm_start.learning_rate than 1e+30"
    assert not run.start.exists()
    (notice,) = [e["message"] for e in events(run, "notice") if "warm start" in e["message"]]
    assert " of 200 worked answers are left out of the warm start: longer than 12 tokens" in notice


HANGS = """
import json, pathlib, re

CALLS, PAIR = (pathlib.Path(__file__).with_name(name) for name in ("calls", "pair.json"))

def fn(prompts, completions, *, question, **columns):
    with CALLS.open("a") as calls:
        calls.write(".")
    if CALLS.stat().st_size == 3:
        PAIR.write_text(json.dumps([question[5], completions[5]]))
    for pair in zip(question, completions):
        if PAIR.exists() and json.loads(PAIR.read_text()) == list(pair):
            re.match(r"(a+)+$", "a" * 40 + "b")
    return [float(len(text) % 7) for text in completions]
"""


@pytest.mark.long
def test_a_reward_that_hangs_in_c_ends_the_run_and_a_resume_scores_that_completion_0(tmp_path):
    (tmp_path / "mine.py").write_text(HANGS)
    rewards = [f"rewards=[{{function: '{tmp_path / 'mine.py'}:fn'}}]", "rewards_timeout=5"]
    run, end = train(tmp_path / "run", *rewards, "checkpoint.every_n_steps=100", "warm_start=null")
    question, completion = json.loads((tmp_path / "pair.json").read_text())
    assert (end["ending"], end["step"]) == ("REWARD_TIMEOUT", 2) and "REWARD_TIMEOUT: step 3: " in end["log"], end
    assert (
        f"the reward fn did not return within rewards_timeout=5 s for the question {question[:60]!r}" in end["detail"]
    )
    assert f"completion {completion[:60]!r}" in end["detail"] and "which scores that completion 0" in end["fix"]
    end = finish(run, start(run, attempt=2), attempt=2)
    assert end["ending"] == "FINISHED" and [e["step"] for e in events(run, "resumed")] == [2]
    assert "the reward fn did not return in attempt 1: it is 0 for the " in events(run, "notice")[-1]["message"]


@pytest.mark.long
def test_a_stop_of_a_run_whose_reward_hangs_in_c_saves_the_last_step_within_a_minute(tmp_path):
    (tmp_path / "mine.py").write_text(HANGS)
    rewards = [f"rewards=[{{function: '{tmp_path / 'mine.py'}:fn'}}]", "rewards_timeout=600"]
    run = prepare(tmp_path / "run", *rewards, "checkpoint.every_n_steps=100", "warm_start=null")
    process, deadline = start(run), time.time() + 900
    while not (tmp_path / "pair.json").exists():
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    end = finish(run, process, timeout=60)
    assert (end["ending"], end["step"], end["detail"]) == ("STOPPED", 2, "stopped after step 2")
