"""How many different arithmetic problems can be generated: what data/arithmetic.py draws from, in closed form, for plans.

Problems of one operation run out first: each length gets the same share, and each more operation has at least ten times as many.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from podwright.errors import counted

MAX_NUMBER = 9
"""of GRPO: every number is one digit, and so one token"""
CORPUS_OPERATIONS, CORPUS_NUMBER = 3, 99
"""of a text to pretrain on: most operations, and the largest number"""
MAX_FACTOR = 5
SUM_WORDINGS, PRODUCT_WORDINGS = 2048, 1024
"""of one expression of one operation (data/wording.py): a sum or a difference, and a product"""
MOST_OPERATIONS = 10_000_000
"""in all problems of a run: three minutes on one core before training begins"""
_DRAWN = 0.99  # of the problems that there are, which drawing at random finds before it gives up
_EXPRESSIONS = 0.5  # of the expressions up to a large number, which it finds at least


@dataclass(frozen=True)
class ArithmeticCapacity:
    """Problems of one operation that one part can have: `sure` at least, `most` at most."""

    part: str
    wanted: int
    sure: int
    most: int


def capacities(num_train: int, num_test: int, max_operations: int, max_number: int) -> tuple[ArithmeticCapacity, ...]:
    """Of both parts; no expression of one operation is in both."""
    wanted = {"train": num_train // max_operations, "test": num_test // max_operations}
    total = sum(wanted.values())
    sums, products = _expressions(max_number)
    number = min(sums + products, total)
    sizes = dict.fromkeys(wanted, number)
    if all(wanted.values()) and number > 1:
        sizes["test"] = min(max(1, round(number * wanted["test"] / total)), number - 1)
        sizes["train"] = number - sizes["test"]
    share_drawn = 1.0 if max_number <= MAX_NUMBER else _EXPRESSIONS
    return tuple(
        ArithmeticCapacity(
            part,
            wanted[part],
            int(
                _DRAWN * share_drawn * (min(size, products) * PRODUCT_WORDINGS + max(0, size - products) * SUM_WORDINGS)
            ),
            min(size, sums) * SUM_WORDINGS + max(0, size - sums) * PRODUCT_WORDINGS,
        )
        for part, size in sizes.items()
    )


def shortage(num_train: int, num_test: int, max_operations: int, max_number: int) -> tuple[str, bool]:
    """Why there may not be as many problems, and whether that is certain; "" where there are enough."""
    problems = f"{num_train:,} training and {num_test:,} test problems of up to {counted(max_operations, 'operation')}"
    number = _operations(num_train, num_test, max_operations)
    if number > MOST_OPERATIONS:
        what = (
            f"{problems} have {number:,} operations, and at most {MOST_OPERATIONS:,} are generated, which takes minutes"
        )
        return what, True
    for capacity in capacities(num_train, num_test, max_operations, max_number):
        if capacity.wanted > capacity.sure:
            certain = capacity.wanted > capacity.most
            there = f"are {capacity.most:,}" if certain else f"may be no more than {capacity.sure:,}"
            what = f"{problems} take {capacity.wanted:,} of 1 operation for the {capacity.part} part, and there {there}"
            return what, certain
    return "", False


def largest(num_train: int, num_test: int, max_operations: int, max_number: int) -> tuple[int, int]:
    """As many training and test problems as there certainly are and as are generated, with no more of either."""

    def short() -> set[str]:
        if _operations(num_train, num_test, max_operations) > MOST_OPERATIONS:
            return {"train" if num_train > num_test else "test"}
        listed = capacities(num_train, num_test, max_operations, max_number)
        return {capacity.part for capacity in listed if capacity.wanted > capacity.sure}

    while parts := short():
        num_train, num_test = (
            _rounded(n * 9 // 10) if part in parts else n for part, n in (("train", num_train), ("test", num_test))
        )
    return num_train, num_test


def _operations(num_train: int, num_test: int, max_operations: int) -> int:
    """Of all problems: as many have 1 as have 2 ... as have `max_operations`."""
    return (num_train + num_test) * (max_operations + 1) // 2


def _rounded(number: int) -> int:
    """Down to two digits that are not 0."""
    unit = 10 ** max(0, len(str(number)) - 2)
    return number // unit * unit


@functools.cache
def _expressions(max_number: int) -> tuple[int, int]:
    """Sums and differences of one operation, and products; a + b is b + a, and so with products."""
    sums = sum(total // 2 for total in range(2, max_number + 1)) + max_number * (max_number + 1) // 2
    factors = {
        tuple(sorted((start, factor)))
        for start in range(1, max_number + 1)
        for factor in range(2, min(MAX_FACTOR, max_number // start) + 1)
    }
    return sums, len(factors)
