"""Accuracies, intervals and the paired test against scipy and against their definitions."""

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from podwright.train import confidence
from podwright.train.grpo import grading

Flags = st.lists(st.booleans(), max_size=60)
Pairs = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=200)


def test_an_answer_is_read_both_ways() -> None:
    grades = [grading.grade_one(*pair) for pair in (("#### 2", "2"), ("it is 4", "4"), ("no", "6"), ("#### 9", "8"))]
    assert grades == [(True, True), (False, True), (False, False), (False, False)]


def test_a_summary_counts_what_it_is_given() -> None:
    found = grading.summary(
        [True, False, False, False], [True, True, False, False], [False, False, True, False], [3, 4, 10, 3]
    )
    assert found["num"] == 4 and found["truncated"] == 0.25 and found["mean_tokens"] == 5.0
    assert (found["strict"]["correct"], found["flexible"]["correct"]) == (1, 2)
    assert (found["strict"]["accuracy"], found["flexible"]["accuracy"]) == (0.25, 0.5)


def test_extracted_is_what_the_flexible_grade_reads() -> None:
    assert grading.grade_one("it is 4", "4.0") == (False, True)


def test_nothing_to_grade() -> None:
    found = grading.summary([], [], [], [])
    assert found["num"] == 0 and found["strict"] == {"correct": 0, "accuracy": 0.0, "low": 0.0, "high": 1.0}


@given(Flags, st.data())
def test_summary_agrees_with_its_flags(strict: list[bool], data: st.DataObject) -> None:
    flexible = [s or data.draw(st.booleans()) for s in strict]
    found = grading.summary(strict, flexible, [not f for f in flexible], [1] * len(strict))
    for name, flags in (("strict", strict), ("flexible", flexible)):
        part = found[name]
        assert part["correct"] == sum(flags) and 0 <= part["low"] <= part["accuracy"] <= part["high"] <= 1
    assert found["flexible"]["accuracy"] >= found["strict"]["accuracy"]
    assert found["truncated"] == pytest.approx(1 - found["flexible"]["accuracy"] if strict else 0)


def test_whole_numbers_do_for_flags() -> None:
    assert grading.summary([1, 0], [1, 1], [0, 1], [2, 4]) == grading.summary(
        [True, False], [True, True], [False, True], [2, 4]
    )


@given(st.integers(1, 5000), st.data())
def test_wilson_is_scipys(num: int, data: st.DataObject) -> None:
    correct = data.draw(st.integers(0, num))
    reference = scipy.stats.binomtest(correct, num).proportion_ci(0.95, method="wilson")
    assert confidence.wilson(correct, num) == pytest.approx((reference.low, reference.high), abs=1e-9)
    low, high = confidence.wilson(correct, num)
    mirrored = confidence.wilson(num - correct, num)
    assert (1 - high, 1 - low) == pytest.approx(mirrored, abs=1e-9)


def test_wilson_of_nothing_says_nothing() -> None:
    assert confidence.wilson(0, 0) == (0.0, 1.0)


@given(Pairs)
def test_paired_is_the_exact_test(pairs: list[tuple[bool, bool]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    found = grading.paired(before, after)
    changed = found["gained"] + found["lost"]
    expected = scipy.stats.binomtest(found["gained"], changed).pvalue if changed else 1.0
    assert found["p_value"] == pytest.approx(expected, abs=1e-9)
    assert found["gained"] - found["lost"] == sum(after) - sum(before)
    back = grading.paired(after, before)
    assert (back["gained"], back["lost"], back["p_value"]) == (found["lost"], found["gained"], found["p_value"])


def test_paired_on_a_whole_test_set() -> None:
    before, after = [False] * 1319, [True] * 1319
    assert grading.paired(before, after) == {"gained": 1319, "lost": 0, "p_value": 0.0}
    assert grading.paired(before, before)["p_value"] == 1.0


def test_paired_needs_the_same_questions() -> None:
    with pytest.raises(ValueError, match="longer"):
        grading.paired([True], [True, False])
