"""The shipped rewards, and how every reward a recipe names is found, called and checked.

A reward is `fn(prompts, completions, **columns) -> list[float]`: one value a completion; columns are those of the data set
(`question`, `answer`: the right number as text, `solution`: the worked answer), each as long as the completions.
Only functions that a recipe names are rewards. Reading numbers out of answers is `answers.py`.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from podwright.errors import UserError, expanded, message_of
from podwright.recipe import reward_call, schema
from podwright.recipe.answer_numbers import extract_flexible as extract_flexible
from podwright.recipe.answer_numbers import same_number as same_number
from podwright.rundir import Record

RIGHT = 3.0
_LARGEST = 1e15  # groups are compared in float32, where the squares of their differences are to be finite, weights and sums included
SIGNATURE = "fn(prompts, completions, **columns) -> list[float]"


def check_answer(
    prompts: Sequence[str], completions: Sequence[str], *, answer: Sequence[str], **columns: Any
) -> list[float]:
    """3.0 for the right number: the first `#### n`, else the last number after `</think>`; otherwise 0.0."""
    return [
        RIGHT if same_number(extract_flexible(text), right) else 0.0
        for text, right in zip(completions, answer, strict=True)
    ]


def format_reward(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """1.0 if both `<think>` and `####` occur, otherwise 0.0."""
    return [1.0 if "<think>" in text and "####" in text else 0.0 for text in completions]


Columns = Mapping[str, Sequence[Any]]
Row = tuple[str, str, str]
"""name of a reward, question, completion"""


class RewardTimeout(Exception):
    """A reward did not return in time. `record` (of JSON) has its name as `reward` and, if it hangs on a completion alone, the `question` and
    the `completion`."""

    def __init__(self, record: Record):
        self.record = record


@dataclasses.dataclass(frozen=True)
class LoadedReward:
    name: str
    """unique among the rewards of a recipe: the function's own name, with _2, _3 ... where another has it"""
    function: Callable[..., Any]
    weight: float


def load(rewards: Sequence[schema.Reward]) -> list[LoadedReward]:
    """The functions that a recipe names, in its order; UserError when one cannot be found or cannot be called as a reward."""
    modules: dict[str, ModuleType] = {}
    loaded: list[LoadedReward] = []
    for reward in rewards:
        function = _find(reward.function, modules)
        _check_signature(reward.function, function)
        name = _free_name(reward.function.rpartition(":")[2], {r.name for r in loaded})
        loaded.append(LoadedReward(name, function, reward.weight))
    return loaded


def score(
    loaded: Sequence[LoadedReward],
    prompts: Sequence[str],
    completions: Sequence[str],
    columns: Columns,
    zeros: Collection[Row] = (),
) -> dict[str, list[float]]:
    """Name -> unweighted value of each completion; None from a reward ("does not apply") counts as 0.0, and so does what `zeros` names.

    A reward gets an empty text in place of a completion of `zeros`, so that groups keep their size.
    Raises UserError when a reward fails or gives anything but one finite number per completion.
    """
    scored = {}
    for reward in loaded:
        rows = zip(columns.get("question", completions), completions, strict=True)
        zero = {i for i, pair in enumerate(rows) if (reward.name, *pair) in zeros}
        texts = ["" if i in zero else text for i, text in enumerate(completions)]
        values = _scored(reward, prompts, texts, columns)
        scored[reward.name] = [0.0 if i in zero else value for i, value in enumerate(values)]
    return scored


def _find(spec: str, modules: dict[str, ModuleType]) -> Callable[..., Any]:
    place, _, name = spec.rpartition(":")
    if place not in modules:
        modules[place] = _module(place)
    function = getattr(modules[place], name, None)
    if not callable(function):
        raise UserError(
            f"{place} has no function {name}", f"name a function {SIGNATURE} that it has", "no-such-function"
        )
    return function


def _module(place: str) -> ModuleType:
    try:
        return _of_file(place) if place.endswith(".py") else importlib.import_module(place)
    except (Exception, SystemExit) as e:
        raise UserError(
            f"the rewards of {place} cannot be imported ({_described(e)})",
            "fix it, or install what it needs; a file is named as file.py:function, from where the run was started",
            "rewards-not-loaded",
        ) from e


def _of_file(place: str) -> ModuleType:
    path = expanded(place).resolve()
    name = f"podwright_reward_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up here
    sys.path.insert(0, str(path.parent))  # so that the file may import its neighbours, as if it were run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _check_signature(spec: str, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C do not tell
        return
    try:
        reward_call.bind(signature)
    except TypeError as e:
        raise UserError(
            f"the reward {spec}{signature} cannot be called ({e})", f"write it as {SIGNATURE}", "reward-signature"
        ) from e


def _free_name(name: str, taken: set[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free = f"{name}_{number}"
        number += 1
    return free


def _scored(reward: LoadedReward, prompts: Sequence[str], completions: Sequence[str], columns: Columns) -> list[float]:
    def call(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> Any:
        # Lists of its own: a reward that sorts or changes what it is given spoils it for no other.
        columns = {k: list(v) for k, v in columns.items()}
        given = reward.function(prompts=list(prompts), completions=list(completions), **columns)
        listed = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
        return list(given) if listed else given  # a generator computes only here

    try:
        values = call(prompts, completions, **columns)
    except (UserError, RewardTimeout):  # of the process that computes it
        raise
    except (Exception, SystemExit) as e:  # a sys.exit() in it is a fault like any other
        faults = (Exception, SystemExit)
        index = failing_sample(call, faults, prompts, completions, columns)
        what = f"the reward {reward.name} failed: {_described(e)}, {where(index, columns, completions)}"
        raise UserError(what, "fix the function, then resume the run", "reward-failed") from e
    if not isinstance(values, list) or len(values) != len(completions):
        raise UserError(
            f"the reward {reward.name} gave {values!r:.60} for {len(completions)} completions",
            f"return a list with one value per completion, as {SIGNATURE}",
            "reward-values",
        )
    largest = _LARGEST / max(1.0, abs(reward.weight))
    return [_number(reward.name, value, largest, i, columns, completions[i]) for i, value in enumerate(values)]


def _number(name: str, value: Any, largest: float, index: int, columns: Columns, completion: str) -> float:
    if value is None:
        return 0.0
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= largest:
        raise UserError(
            f"the reward {name} gave {value!r:.40} for {_sample(index, columns, completion)}",
            f"return a finite number up to {largest:g} for every completion: within a group only differences count",
            "reward-values",
        )
    return number


def failing_sample(
    function: Callable[..., Any],
    faults: tuple[type[BaseException], ...],
    prompts: Sequence[str],
    completions: Sequence[str],
    columns: Columns,
    most_s: float = math.inf,
) -> int | None:
    """The first sample that makes `function` fail when it is given alone, as far as they are tried in `most_s`."""
    end = time.monotonic() + most_s
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        try:
            function(prompts=[prompt], completions=[completion], **{k: [v[i]] for k, v in columns.items()})
        except faults:
            return i
        if time.monotonic() > end:
            break
    return None


def where(index: int | None, columns: Columns, completions: Sequence[str]) -> str:
    if index is None:
        return f"on all {len(completions)} samples together but on none alone"
    return f"on {_sample(index, columns, completions[index])}"


def _sample(index: int, columns: Columns, completion: str) -> str:
    question = columns["question"][index] if "question" in columns else ""
    return f"sample {index} ({row(question, completion)})"


def row(question: str, completion: str) -> str:
    return f"question {question[:60]!r}, completion {completion[:60]!r}"


def _described(error: BaseException) -> str:
    """One line: type and message, and the line of a syntax error."""
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
