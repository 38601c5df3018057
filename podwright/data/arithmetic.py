"""Made-up word problems in GSM8K's format, graded by their number of steps: which expressions, and who trains on which.

No number in a problem, its steps or its answer is above `max_number` or below 0. The words are in `wording.py`.
Worked answers are short (`3+4=7`, a line a step) so that a model of a million weights can learn them on a laptop.
"""

from __future__ import annotations

import dataclasses
import random

from podwright.data import wording
from podwright.data.wording import Step
from podwright.errors import UserError
from podwright.recipe.arithmetic_capacity import MAX_FACTOR

_GIVE_UP = 3000
"""So many draws in a row without anything new mean that there is nothing new."""


@dataclasses.dataclass(frozen=True)
class Problem:
    question: str
    answer: str
    solution: str
    expression: str
    """the sum without its words, as in `3+4-2`; equal for two problems that differ in wording only"""


@dataclasses.dataclass(frozen=True)
class _Chain:
    start: int
    steps: tuple[Step, ...]

    def expression(self) -> str:
        """One text for all orders of a first sum or product: 4+3-2 is 3+4-2."""
        first, *rest = self.steps
        a, b = (self.start, first.number) if first.operation == "-" else sorted((self.start, first.number))
        return f"{a}{first.operation}{b}" + "".join(f"{s.operation}{s.number}" for s in rest)

    def worked(self) -> tuple[str, int]:
        lines, value = [], self.start
        for step in self.steps:
            after = step.apply(value)
            lines.append(f"{value}{step.operation}{step.number}={after}")
            value = after
        return "\n".join([*lines, f"#### {value}"]), value


def generate(
    num_train: int, num_test: int, max_operations: int, max_number: int, seed: int
) -> tuple[list[Problem], list[Problem]]:
    """(train, test): as many problems of 1 step as of 2 ... as of `max_operations`, shuffled; a pure function of the arguments.

    No question stands twice, in one part or in both. No expression is in both parts, unless there is only one of its
    length. Raises UserError when there are not that many different problems.
    """
    for name, value in (("num_train", num_train), ("num_test", num_test)):
        if value < 1:
            raise UserError(
                f"data.{name}={value} makes no arithmetic problems",
                f"type data.{name}=N with N at least 1",
                "no-examples",
            )
    rng = random.Random(f"arithmetic {seed}")
    parts: tuple[list[Problem], list[Problem]] = ([], [])
    for length in range(1, max_operations + 1):
        sizes = _share(num_train, length, max_operations), _share(num_test, length, max_operations)
        pools = _split(_chains(length, max_number, sum(sizes), rng), *sizes)
        seen: set[str] = set()
        for part, pool, size in zip(parts, pools, sizes, strict=True):
            part += _problems(
                pool, size, seen, rng, f"data.max_operations={max_operations} and numbers up to {max_number}"
            )
    for part in parts:
        rng.shuffle(part)
    return parts


def _share(total: int, length: int, max_operations: int) -> int:
    """How many of `total` problems have `length` steps; what does not divide goes to the longer ones."""
    return total * length // max_operations - total * (length - 1) // max_operations


def _chains(length: int, max_number: int, wanted: int, rng: random.Random) -> list[_Chain]:
    """Up to `wanted` chains of different expressions; fewer when there are no more."""
    chains: dict[str, _Chain] = {}
    misses = 0
    while len(chains) < wanted and misses < _GIVE_UP:
        chain = _draw(length, max_number, rng)
        if chain.expression() in chains:
            misses += 1
        else:
            chains[chain.expression()] = chain
            misses = 0
    return list(chains.values())


def _draw(length: int, max_number: int, rng: random.Random) -> _Chain:
    start = value = rng.randint(1, max_number)
    steps: list[Step] = []
    for _ in range(length):
        largest = {"+": max_number - value, "-": value, "*": min(MAX_FACTOR, max_number // value) if value else 0}
        possible = [op for op in "+-*" if largest[op] >= (2 if op == "*" else 1)]
        operation = rng.choice(possible)
        steps.append(Step(operation, rng.randint(2 if operation == "*" else 1, largest[operation])))
        value = steps[-1].apply(value)
    return _Chain(start, tuple(steps))


def _split(chains: list[_Chain], num_train: int, num_test: int) -> tuple[list[_Chain], list[_Chain]]:
    if len(chains) < 2 or not num_train or not num_test:
        return chains, chains
    cut = min(max(1, round(len(chains) * num_test / (num_train + num_test))), len(chains) - 1)
    return chains[cut:], chains[:cut]


def _problems(pool: list[_Chain], size: int, seen: set[str], rng: random.Random, limits: str) -> list[Problem]:
    """`size` problems that use the expressions of `pool` in turn; `seen` grows by their questions."""
    problems: list[Problem] = []
    turn = misses = 0
    while len(problems) < size:
        if misses >= _GIVE_UP:
            raise UserError(
                f"there are not enough different problems with {limits}",
                "type smaller data.num_train and data.num_test, or a larger data.max_operations",
                "too-few-problems",
            )
        chain = pool[turn % len(pool)]
        turn += 1
        question = wording.tell(chain.start, chain.steps, rng)
        if question in seen:
            misses += 1
            continue
        seen.add(question)
        misses = 0
        solution, value = chain.worked()
        problems.append(Problem(question, str(value), solution, chain.expression()))
    return problems
