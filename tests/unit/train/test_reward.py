"""Rewards as plugins: what is found, what is refused with which line, and what happens when one fails."""

import dataclasses
import time
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from podwright.errors import UserError
from podwright.recipe.schema import Reward
from podwright.train.grpo import reward

COLUMNS = {"question": ["1+1?", "2+2?"], "answer": ["2", "4"], "solution": ["#### 2", "#### 4"]}
PROMPTS = ["p1", "p2"]
COMPLETIONS = ["#### 2", "it is 5"]


@pytest.fixture
def plugin(tmp_path: Path):
    """Loads functions of a file with the given text."""

    def load(text: str, *names: str) -> list[reward.LoadedReward]:
        path = tmp_path / "mine.py"
        path.write_text(dedent(text))
        return reward.load([Reward(function=f"{path}:{name}") for name in names or ("f",)])

    return load


def scored(loaded: list[reward.LoadedReward]) -> dict[str, list[float]]:
    return reward.score(loaded, PROMPTS, COMPLETIONS, COLUMNS)


def test_shipped_rewards_under_the_names_recipes_use() -> None:
    names = ["check_answer", "format_reward"]
    loaded = reward.load(
        [Reward(function=f"podwright.train.grpo.reward:{n}", weight=w) for n, w in zip(names, (1.0, 0.5), strict=True)]
    )
    assert [(r.name, r.weight) for r in loaded] == [("check_answer", 1.0), ("format_reward", 0.5)]
    assert scored(loaded) == {"check_answer": [3.0, 0.0], "format_reward": [0.0, 0.0]}


@pytest.mark.parametrize(
    ("completion", "right", "formed"),
    [
        ("<think>\n1+1\n</think>\n\n#### 2", 3.0, 1.0),
        ("<think>\n#### 3", 0.0, 1.0),
        ("<think>\nit is 3\n</think>\n\nIt is 2.0", 3.0, 0.0),
        ("#### $2.00 in all", 3.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_what_a_completion_earns(completion: str, right: float, formed: float) -> None:
    assert reward.check_answer(["p"], [completion], answer=["2"], question=["?"]) == [right]
    assert reward.format_reward(["p"], [completion], answer=["2"]) == [formed]


def test_only_what_is_named_is_a_reward(plugin) -> None:
    loaded = plugin("def helper(x): 1 / 0\ndef f(prompts, completions, **columns): return [1.0] * len(completions)")
    assert scored(loaded) == {"f": [1.0, 1.0]}


def test_columns_reach_the_function_as_its_own_copies(plugin) -> None:
    loaded = plugin(
        """
        def f(prompts, completions, question, answer, solution):
            assert (prompts, question, answer, solution) == (["p1", "p2"], ["1+1?", "2+2?"], ["2", "4"], ["#### 2", "#### 4"])
            completions.clear(), answer.clear()
            return [0, 1]
        def g(prompts, completions, answer, **columns):
            return [len(a) + len(c) for a, c in zip(answer, completions, strict=True)]
        """,
        "f",
        "g",
    )
    assert scored(loaded) == {"f": [0.0, 1.0], "g": [7.0, 8.0]}


def test_one_name_twice_gets_two(plugin) -> None:
    loaded = plugin("def f(prompts, completions, **columns): return [1.0] * len(completions)\nf_2 = f", "f", "f", "f_2")
    assert len({r.name for r in loaded}) == 3 and loaded[0].name == "f"


@pytest.mark.parametrize(
    ("returned", "values"),
    [
        ("[1, 2]", [1.0, 2.0]),
        ("(True, None)", [1.0, 0.0]),
        ("__import__('numpy').array([1.5, 2], 'float32')", [1.5, 2.0]),
        ("(x for x in (1, 2))", [1.0, 2.0]),
    ],
)
def test_what_counts_as_numbers(plugin, returned: str, values: list[float]) -> None:
    found = scored(plugin(f"def f(prompts, completions, **columns): return {returned}"))["f"]
    assert found == values and all(type(v) is float for v in found)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("[1.0]", "gave [1.0] for 2 completions"),
        ("[1.0, 2.0, 3.0]", "gave [1.0, 2.0, 3.0] for 2"),
        ("1.0", "gave 1.0 for 2"),
        ("None", "gave None for 2"),
        ("'12'", "gave '12' for 2"),
        ("[1.0, float('nan')]", "gave nan for sample 1"),
        ("[float('inf'), 1.0]", "gave inf for sample 0"),
        ("[1.0, '2']", "gave '2' for sample 1"),
        ("[1.0, [2.0]]", "for sample 1 (question '2+2?', completion 'it is 5')"),
        ("__import__('numpy').array(1.5)", "failed: TypeError: iteration over a 0-d array, on sample 0"),
        (
            "(float(c.split()[1]) for c in completions)",
            "failed: ValueError: could not convert string to float: 'is', on sample 1",
        ),
    ],
)
def test_what_a_reward_may_not_give(plugin, returned: str, says: str) -> None:
    refused(lambda: scored(plugin(f"def f(prompts, completions, **columns): return {returned}")), says, "the reward f")


def test_the_size_of_a_reward_is_limited_with_its_weight(plugin) -> None:
    """Its groups are compared in float32: with 1e25 the deviation is infinite, every advantage 0, and nothing is learned."""
    loaded = plugin("def f(prompts, completions, **columns): return [1e15, 0]")
    assert scored(loaded)["f"] == [1e15, 0.0]
    heavy = [dataclasses.replace(r, weight=-1e10) for r in loaded]
    refused(lambda: scored(heavy), "gave 1000000000000000.0 for sample 0", "a finite number up to 100000 for")


def test_an_exception_names_the_sample(plugin) -> None:
    loaded = plugin("def f(prompts, completions, **columns): return [float(c.split()[1]) for c in completions]")
    refused(
        lambda: scored(loaded), "the reward f failed: ValueError", "on sample 1 (question '2+2?', completion 'it is 5')"
    )


def test_an_exit_in_a_reward_is_a_fault_like_any_other(plugin) -> None:
    loaded = plugin(
        "import sys\ndef f(prompts, completions, **columns): return [sys.exit('enough') if '5' in c else 1.0 for c in completions]"
    )
    refused(lambda: scored(loaded), "the reward f failed: SystemExit: enough", "on sample 1 (question '2+2?'")


def test_an_exception_that_only_the_whole_batch_causes(plugin) -> None:
    loaded = plugin("def f(prompts, completions, **columns): assert len(completions) == 1, 'too many'")
    refused(lambda: scored(loaded), "AssertionError: too many", "on all 2 samples together but on none alone")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def g(prompts, completions, **columns): ...", "has no function f"),
        ("f = 3", "has no function f"),
        ("def f(prompts, completions): ...", "cannot be called (got an unexpected keyword argument 'question')"),
        ("def f(a, b, **columns): ...", "write it as fn(prompts, completions, **columns)"),
        ("def f(prompts, completions, limit, **columns): ...", "missing a required argument: 'limit'"),
        ("def f(:", "cannot be imported (SyntaxError"),
        ("import nothing_of_this_name", "cannot be imported (ModuleNotFoundError"),
        ("import sys; sys.exit(1)", "cannot be imported (SystemExit: 1)"),
        ("raise RuntimeError('two\\nlines')", "(RuntimeError: two)"),
    ],
)
def test_files_that_are_refused(plugin, text: str, says: str) -> None:
    refused(lambda: plugin(text), says)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("nowhere/mine.py:f", "the rewards of nowhere/mine.py cannot be imported (FileNotFoundError"),
        ("no_such_package.mine:f", "cannot be imported (ModuleNotFoundError"),
        ("podwright.train.grpo.reward:chek_answer", "podwright.train.grpo.reward has no function chek_answer"),
        ("check_answer", "cannot be imported (ValueError"),
        ("mine.py:", "a file is named as file.py:function"),
    ],
)
def test_names_that_are_refused(function: str, says: str) -> None:
    refused(lambda: reward.load([Reward(function=function)]), says)


def test_a_file_may_import_its_neighbour(plugin, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("VALUE = 2.5")
    loaded = plugin(
        "import neighbour_of_mine\ndef f(prompts, completions, **columns): return [neighbour_of_mine.VALUE] * len(completions)"
    )
    assert scored(loaded) == {"f": [2.5, 2.5]}


def test_two_functions_of_a_file_share_it(plugin) -> None:
    loaded = plugin(
        """
        calls = []
        def f(prompts, completions, **columns): calls.append(1); return [0.0] * len(completions)
        def g(prompts, completions, **columns): return [float(len(calls))] * len(completions)
        """,
        "f",
        "g",
    )
    assert scored(loaded)["g"] == [1.0, 1.0]


def test_numbers_of_a_large_batch_keep_their_order(plugin) -> None:
    loaded = plugin("def f(prompts, completions, **columns): return [len(c) for c in completions]")
    completions = ["x" * n for n in np.random.default_rng(0).integers(0, 50, 200)]
    assert reward.score(loaded, completions, completions, {"question": completions})["f"] == [
        float(len(c)) for c in completions
    ]


def refused(call, *says: str) -> None:
    """`call` raises a UserError of one line that says all of `says`, and what to do."""
    with pytest.raises(UserError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line and caught.value.fix
    assert all(part in line for part in says), line


TUNIX = """
import re
import time
from typing import List

__all__ = ["check_answer"]


def check_answer(prompts: List[str], completions: List[str], answer: List[str], **kwargs) -> List[float]:
    scores = []
    for completion, truth in zip(completions, answer):
        match = re.search(r"####\\s*([\\-\\d\\.,]+)", completion)
        scores.append(3.0 if match and float(match.group(1)) == float(truth) else 0.0)
    {}
    return scores


def asked(prompts, completions, **kwargs):
    return [float(kwargs["question"][i][0]) for i in range(len(completions))]
"""


def test_a_module_of_tunix_loads_unchanged(plugin) -> None:
    loaded = plugin(TUNIX.format("pass"), "check_answer", "asked")
    assert scored(loaded) == {"check_answer": [3.0, 0.0], "asked": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("scores.pop()", "the reward check_answer gave [3.0] for 2 completions"),
        ("scores[1] = float('nan')", "gave nan for sample 1"),
        ("scores = ['3.0', '0.0']", "gave '3.0' for sample 0"),
        ("scores[0] = {}", "gave {} for sample 0"),
        ("raise KeyError('x')", "the reward check_answer failed: KeyError: 'x'"),
        ("return", "gave None for 2"),
    ],
)
def test_a_module_of_tunix_that_returns_something_wrong_is_refused(plugin, line: str, says: str) -> None:
    refused(lambda: scored(plugin(TUNIX.replace("{}", line, 1), "check_answer")), says)


def test_a_reward_that_sleeps_is_waited_for(plugin) -> None:
    begin = time.perf_counter()
    assert scored(plugin(TUNIX.format("time.sleep(0.3)"), "check_answer")) == {"check_answer": [3.0, 0.0]}
    assert time.perf_counter() - begin >= 0.3
