"""Made-up problems are right, varied, within their limits, and never shared by training and test."""

import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.data import arithmetic, wording
from podwright.data.arithmetic import Problem, generate
from podwright.errors import UserError
from podwright.recipe import arithmetic_capacity
from podwright.recipe.answer_numbers import gold

DEMO = {"num_train": 4000, "num_test": 500, "max_operations": 2, "max_number": 20}


@pytest.fixture(scope="module")
def demo() -> tuple[list[Problem], list[Problem]]:
    return generate(**DEMO, seed=0)


def num_steps(problem: Problem) -> int:
    return problem.solution.count("\n")


def check(problem: Problem, max_number: int) -> None:
    """Every step follows from the one before, from the question's numbers, and the last gives the answer."""
    *lines, last = problem.solution.split("\n")
    told = [int(n) for n in re.findall(r"[0-9]+", problem.question)]
    steps = [re.fullmatch(r"([0-9]+)([-+*])([0-9]+)=([0-9]+)", line).groups() for line in lines]
    assert [int(a) for a, *_ in steps] == [told[0], *(int(result) for *_, result in steps[:-1])]
    assert [int(b) for _, _, b, _ in steps] == told[1:]
    for a, operation, b, result in steps:
        assert eval(f"{a}{operation}{b}") == int(result)
    assert last == f"#### {steps[-1][3]}" and problem.answer == steps[-1][3] == gold(problem.solution).number
    assert all(0 <= int(n) <= max_number for step in steps for n in (step[0], step[2], step[3]))


def test_every_problem_of_the_demo_is_right(demo) -> None:
    for problem in itertools.chain(*demo):
        check(problem, 20)
        assert len(problem.question.split()) <= 40


def test_training_and_test_share_nothing(demo) -> None:
    train, test = demo
    assert (len(train), len(test)) == (4000, 500)
    assert len({p.question for p in train + test}) == 4500
    assert not {p.expression for p in train} & {p.expression for p in test}


def test_difficulty_and_operations_are_balanced(demo) -> None:
    for part in demo:
        assert sum(num_steps(p) == 1 for p in part) == len(part) / 2
        for operation in "+-*":
            assert sum(operation in p.expression for p in part) > len(part) / 8


def test_the_problems_are_mixed(demo) -> None:
    lengths = [num_steps(p) for p in demo[0]]
    assert 0.4 < sum(a != b for a, b in itertools.pairwise(lengths)) / len(lengths) < 0.6


def test_the_same_seed_gives_the_same_problems(demo) -> None:
    assert generate(**DEMO, seed=0) == demo
    assert generate(**DEMO, seed=1) != demo


def test_one_order_of_a_sum_stands_for_both(demo) -> None:
    train, test = demo
    known = {p.solution for p in train if num_steps(p) == 1}
    for problem in test:
        if num_steps(problem) == 1 and "+" in problem.expression:
            a, b, result = re.findall(r"[0-9]+", problem.solution)[:3]
            assert f"{b}+{a}={result}\n#### {result}" not in known


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(2, 200), st.integers(0, 99))
def test_any_size(num_train: int, num_test: int, max_operations: int, max_number: int, seed: int) -> None:
    train, test = generate(num_train, num_test, max_operations, max_number, seed)
    assert (len(train), len(test)) == (num_train, num_test)
    assert len({p.question for p in train + test}) == num_train + num_test
    for problem in train + test:
        check(problem, max_number)
        assert 1 <= num_steps(problem) <= max_operations


def test_too_many_are_refused() -> None:
    with pytest.raises(
        UserError, match=r"not enough different problems .*numbers up to 1; type smaller data.num_train"
    ) as caught:
        generate(5000, 10, 1, 1, 0)
    assert "\n" not in str(caught.value)


def test_the_share_of_each_length_adds_up() -> None:
    for total, lengths in itertools.product((1, 2, 7, 100), (1, 2, 3, 5)):
        assert sum(arithmetic._share(total, n, lengths) for n in range(1, lengths + 1)) == total


@pytest.mark.brief(2)
@pytest.mark.parametrize(
    "sizes", [(18000, 100, 1), (18200, 1, 1), (19000, 1, 1), (1, 17500, 1), (16000, 2500, 1), (36000, 30, 2)]
)
def test_the_closed_form_says_how_many_problems_can_be_generated(sizes: tuple[int, int, int]) -> None:
    why, certain = arithmetic_capacity.shortage(*sizes, 3)
    num_train, num_test = arithmetic_capacity.largest(*sizes, 3)
    assert (why == "") == ((num_train, num_test) == sizes[:2])
    generate(num_train, num_test, sizes[2], 3, seed=0)
    if certain:
        with pytest.raises(UserError, match="not enough different problems"):
            generate(*sizes, 3, seed=0)


@pytest.mark.parametrize("sizes", [(10_000_000, 1, 3, 99), (2_000_000, 200, 50, 9), (200, 2_000_000, 50, 9)])
def test_problems_that_take_minutes_to_generate_are_refused(sizes: tuple[int, int, int, int]) -> None:
    why, certain = arithmetic_capacity.shortage(*sizes)
    assert certain and "at most 10,000,000 are generated, which takes minutes" in why
    num_train, num_test = arithmetic_capacity.largest(*sizes)
    assert arithmetic_capacity.shortage(num_train, num_test, *sizes[2:]) == ("", False)
    assert (num_train + num_test) * (sizes[2] + 1) / 2 > 0.8 * arithmetic_capacity.MOST_OPERATIONS


def test_the_closed_form_counts_what_the_generator_draws_from() -> None:
    chains = arithmetic._chains(1, arithmetic_capacity.MAX_NUMBER, 10**6, random.Random(0))
    products = [chain for chain in chains if chain.steps[0].operation == "*"]
    assert arithmetic_capacity._expressions(arithmetic_capacity.MAX_NUMBER) == (
        len(chains) - len(products),
        len(products),
    )
    for chain, wordings in ((products[0], 1024), (next(c for c in chains if c.steps[0].operation == "-"), 2048)):
        assert len({wording.tell(chain.start, chain.steps, random.Random(n)) for n in range(30_000)}) == wordings
