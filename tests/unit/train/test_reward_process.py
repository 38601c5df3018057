"""Rewards in a process of their own: the same numbers, what hangs or crashes there, and who ends whom."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from podwright.errors import UserError
from podwright.recipe.schema import Reward
from podwright.train.grpo import reward, reward_process
from podwright.train.grpo.reward_process import RewardProcess

ROOT = Path(__file__).resolve().parents[3]
FILE = '''
import ctypes, os, re, signal, subprocess, sys, time
import numpy as np

def numbers(prompts, completions, **columns):
    return [0.1 * len(c) / 3 for c in completions]

def single_precision(prompts, completions, **columns):
    return np.array([len(c) / 7 for c in completions], "float32")

def group(prompts, completions, *, question, answer, solution):
    assert len(prompts) == len(question) == len(answer) == len(solution) == len(completions)
    return [None if "skip" in c else float(len(completions)) for c in completions]

def alarmed(prompts, completions, **columns):
    """As libraries do that limit their own time."""
    def late(*_):
        raise TimeoutError
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        time.sleep(5)
    except TimeoutError:
        return [7.0] * len(completions)
    finally:
        signal.signal(signal.SIGALRM, before)

def prints(prompts, completions, **columns):
    print("seen:", completions[0])
    print("and on stderr", file=sys.stderr)
    return [0.0] * len(completions)

def starts_another(prompts, completions, **columns):
    child = subprocess.Popen(["sleep", "60"])
    child.terminate()
    return [float(child.wait()) for c in completions]

def raises(prompts, completions, **columns):
    return [1 / ("zero" not in c) for c in completions]

def in_c(prompts, completions, **columns):
    return [bool(re.match(r"(a+)+$", "a" * 40 + "b")) if "hang" in c else 1.0 for c in completions]

def sleeps(prompts, completions, **columns):
    return [time.sleep(60) if "hang" in c else 1.0 for c in completions]

def slow(prompts, completions, **columns):
    time.sleep(0.9 * len(completions))
    return [1.0] * len(completions)

def segfault(prompts, completions, **columns):
    return [ctypes.string_at(0) if "hang" in c else 1.0 for c in completions]

def leaves(prompts, completions, **columns):
    return [os._exit(5) if "hang" in c else 1.0 for c in completions]

def leaves_at_random(prompts, completions, **columns):
    return os._exit(6) if len(completions) > 1 else [1.0]
'''
COMPLETIONS = ["#### 2", "it is 5", "", "skip \ud800 \u4e2d", "hang", "hang too"]
PROMPTS = [f"p{n}" for n in range(6)]
COLUMNS = {name: [f"{name} {n}" for n in range(6)] for name in ("question", "answer", "solution")}
SAMPLE = "sample 4 (question 'question 4', completion 'hang')"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def process() -> Iterator[RewardProcess]:
    process = RewardProcess(lambda: False)
    yield process
    process.close()


def loaded(process: RewardProcess, file: Path, *names: str, limit_s: float = 60.0) -> list[reward.LoadedReward]:
    return process.load([Reward(function=f"{file}:{name}", weight=0.5) for name in names], limit_s)


def scored(rewards: list[reward.LoadedReward]) -> dict[str, list[float]]:
    return reward.score(rewards, PROMPTS, COMPLETIONS, COLUMNS)


def test_the_numbers_are_those_of_a_call_in_this_process(process: RewardProcess, file: Path) -> None:
    names = ("numbers", "single_precision", "group", "numbers")
    there = loaded(process, file, *names)
    here = reward.load([Reward(function=f"{file}:{name}") for name in names])
    assert [(r.name, r.weight) for r in there] == [(r.name, 0.5) for r in here]
    assert scored(there) == reward.score(here, PROMPTS, COMPLETIONS, COLUMNS)
    assert scored(there)["group"] == [6.0, 6.0, 6.0, 0.0, 6.0, 6.0]


def test_a_reward_may_use_signals_print_and_start_processes(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(RewardProcess(lambda: False)) as process:
        rewards = loaded(process, file, "alarmed", "prints", "starts_another")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):  # meant for the trainer
            os.kill(process._process.pid, number)
        values = scored(rewards)
    assert values["alarmed"] == [7.0] * 6 and values["starts_another"] == [float(-signal.SIGTERM)] * 6
    printed = capfd.readouterr()
    assert "seen: #### 2\n" in printed.out and "and on stderr\n" in printed.err


@pytest.mark.parametrize("function", ["nowhere/mine.py:f", "podwright.train.grpo.reward:chek_answer", "mine.py:"])
def test_what_cannot_be_loaded_is_refused_in_the_same_words(process: RewardProcess, function: str) -> None:
    with pytest.raises(UserError) as here:
        reward.load([Reward(function=function)])
    with pytest.raises(UserError) as there:
        process.load([Reward(function=function)], 60.0)
    assert (there.value.what, there.value.fix) == (here.value.what, here.value.fix)


def test_a_reward_that_raises_is_refused_in_the_same_words_and_the_process_goes_on(
    process: RewardProcess, file: Path
) -> None:
    (there,) = loaded(process, file, "raises")
    with pytest.raises(UserError, match=r"the reward raises failed: ZeroDivisionError.*on sample 1 \(question 'q'"):
        reward.score([there], ["p", "p"], ["one", "zero"], {"question": ["q", "q"]})
    assert scored([there])["raises"] == [1.0] * 6


@pytest.mark.parametrize("name", ["in_c", pytest.param("sleeps", marks=pytest.mark.long)])
def test_a_completion_on_which_a_reward_hangs_is_named(process: RewardProcess, file: Path, name: str) -> None:
    rewards = loaded(process, file, "numbers", name, limit_s=3.0)
    with pytest.raises(reward.RewardTimeout) as caught:
        scored(rewards)
    assert caught.value.record == {"reward": name, "question": "question 4", "completion": "hang"}
    assert process._process.poll() is not None


def test_a_process_that_does_not_take_its_rows_is_late_too(process: RewardProcess, file: Path) -> None:
    """As when a thread that a reward has left hangs in C code; a socket holds 200 KB, and the rows of a step have megabytes."""
    rewards = loaded(process, file, "numbers", limit_s=1.0)
    os.kill(process._process.pid, signal.SIGSTOP)

    def late(*_: object) -> None:
        raise AssertionError("it waits for the process to take them")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 30)
    try:
        with pytest.raises(reward.RewardTimeout) as caught:
            reward.score(rewards, PROMPTS[:2], ["x" * 8_000_000] * 2, {n: v[:2] for n, v in COLUMNS.items()})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.value.record == {"reward": "numbers"}


def test_a_reward_that_is_slow_with_all_hangs_on_none(process: RewardProcess, file: Path) -> None:
    with pytest.raises(reward.RewardTimeout) as caught:
        scored(loaded(process, file, "slow", limit_s=3.0))
    assert caught.value.record == {"reward": "slow"}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("segfault", f"ended its process (killed by SIGSEGV), on {SAMPLE}"),
        ("leaves", f"ended its process (exit code 5), on {SAMPLE}"),
        ("leaves_at_random", "(exit code 6), on all 6 samples together but on none alone"),
    ],
)
def test_a_reward_that_ends_its_process_is_one_line(process: RewardProcess, file: Path, name: str, how: str) -> None:
    with pytest.raises(UserError) as caught:
        scored(loaded(process, file, name))
    assert f"the reward {name} " in caught.value.what and how in caught.value.what and "resume" in caught.value.fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import os; os._exit(4)", "did not load within 60 s, or ended their process (exit code 4)"),
        ("import time; time.sleep(60)", "did not load within 1 s, or ended their process"),
    ],
)
def test_a_file_that_ends_or_hangs_its_process_is_one_line(
    process: RewardProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(reward_process, "LOAD_S", 60.0 if "exit" in text else 1.0)
    (tmp_path / "bad.py").write_text(f"{text}\ndef f(prompts, completions, **columns): ...")
    with pytest.raises(UserError) as caught:
        loaded(process, tmp_path / "bad.py", "f", limit_s=0.1)
    assert says in caught.value.what


def test_a_stop_does_not_wait_for_a_reward_that_hangs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_process, "STOP_S", 0.5)
    stopping = False
    process = RewardProcess(lambda: stopping)
    try:
        rewards = loaded(process, file, "in_c")
        stopping = True
        with pytest.raises(reward.RewardTimeout) as caught:
            scored(rewards)
    finally:
        process.close()
    assert "completion" not in caught.value.record


def test_a_completion_of_an_earlier_attempt_is_zero_and_not_shown_again(process: RewardProcess, file: Path) -> None:
    rewards = loaded(process, file, "in_c", "numbers", limit_s=5.0)
    zeros = {("in_c", "question 4", "hang"), ("in_c", "question 5", "hang too"), ("in_c", "question 0", "another")}
    values = reward.score(rewards, PROMPTS, COMPLETIONS, COLUMNS, zeros)
    assert values["in_c"] == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert values["numbers"] == scored(rewards[1:])["numbers"], "of that reward alone"


TRAINER = """
import sys
from podwright.recipe.schema import Reward
from podwright.train.grpo.reward_process import RewardProcess
process = RewardProcess(lambda: False)
(hangs,) = process.load([Reward(function=sys.argv[1] + ":in_c")], 60.0)
print(process._process.pid, flush=True)
hangs.function(prompts=["p"], completions=["hang"], question=["q"])
"""


def test_the_process_ends_with_a_trainer_that_is_killed_while_a_reward_hangs(file: Path) -> None:
    argv = [sys.executable, "-c", TRAINER, str(file)]
    trainer = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert trainer.stdout
    child = psutil.Process(int(trainer.stdout.readline()))
    time.sleep(0.5)
    trainer.kill()
    trainer.wait()
    assert psutil.wait_procs([child], timeout=20)[1] == []
