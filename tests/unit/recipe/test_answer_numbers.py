"""Numbers out of completions: the table of awkward ones, the real gold answers, and what must hold for any text."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from podwright.recipe.answer_numbers import extract_flexible, extract_strict, gold, same_number

AWKWARD = yaml.safe_load((Path(__file__).parent / "awkward.yaml").read_text())
GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"
OFFICIAL = re.compile(r"#### (\-?[0-9\.\,]+)")


@pytest.mark.parametrize("case", AWKWARD, ids=lambda case: repr(case["text"])[:40])
def test_awkward(case: dict) -> None:
    assert (extract_strict(case["text"]), extract_flexible(case["text"])) == (case["strict"], case["flexible"])


def test_the_table_is_long_enough() -> None:
    assert len({case["text"] for case in AWKWARD}) >= 60


def test_every_gold_answer() -> None:
    if not GSM8K.is_dir():
        pytest.skip(f"the GSM8K files are not at {GSM8K}")
    solutions = [json.loads(line)["answer"] for name in ("train", "test") for line in (GSM8K / f"{name}.jsonl").open()]
    assert len(solutions) == 8792
    official = [OFFICIAL.search(text).group(1).replace(",", "") for text in solutions]
    assert [extract_strict(text) for text in solutions] == official
    assert [gold(text)[::2] for text in solutions] == [(number, "") for number in official]
    assert [extract_flexible(text) for text in solutions] == official
    assert all(same_number(number, number) for number in official)


GOLD = [
    ("3/7", "3/7"), ("1 1/2", "1 1/2"), ("-2/3", "-2/3"), (r"\frac{3}{7}", "3/7"), (r"$\frac{3}{7}$", "3/7"), ("1e3", "1e3"), ("2.5e-2", "2.5e-2"), (".5", ".5"),
    ("1,234.5", "1234.5"), ("$18", "18"), ("50%", "50"), ("18 dollars", "18"), ("18 km per hour.", "18"), ("18元", "18"), ("20 °C", "20"), ("−5", "-5"), ("5.", "5"), ("+7", "7"),
    (r"2\frac{1}{2}", "2 1/2"), (r"\frac{-3}{7}", "-3/7"), (r"\frac37", "3/7"), ("10 m", "10"), ("5 months", "5"), ("5千克", "5"),
]  # fmt: skip
UNREAD = [
    ("3 sqrt(2)", " sqrt(2)"), ("2pi", "pi"), ("3x", "x"), ("3 x + 1", " x + 1"), ("2^10", "^10"), ("3 or 4", " or 4"), ("12 345", " 345"), ("1,23", ",23"), ("1.2.3", ".3"), ("3:30", ":30"),
    ("5-6", "-6"), ("3 million", " million"), ("18 and a half", " and a half"), ("3*4", "*4"), ("1 2 3", " 2 3"), ("7 (seven)", " (seven)"), ("3/0", "/0"), ("3/7/2", "/7/2"),
    ("10M", "M"), ("5 thousandths", " thousandths"), ("2 thirds", " thirds"), ("3 Lakh", " Lakh"), ("5万", "万"), ("5 亿元", " 亿元"), ("5个半", "个半"), ("5千", "千"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "number"), GOLD)
def test_a_gold_answer_is_read_as_a_completion_that_repeats_it(written: str, number: str) -> None:
    solution = f"3 + 4 = 7\n#### {written}\nmore 9"
    assert gold(solution)[::2] == (number, "") and extract_strict(solution) == number
    assert same_number(extract_flexible(solution), number)


@pytest.mark.parametrize(("written", "unread"), UNREAD)
def test_what_of_a_gold_answer_is_not_read_is_named(written: str, unread: str) -> None:
    assert gold(f"#### {written}\n9").unread == unread


@pytest.mark.parametrize("written", ["seven", "", "(3, 4)", "x = 3", r"\boxed{3}", "9" * 70, "1/" + "3" * 70])
def test_a_gold_answer_without_a_number_that_can_be_compared_has_none(written: str) -> None:
    assert gold(f"#### {written}").number is None and gold(written).number is None


SAME = [
    ("18", "18.0"), ("18", "18.00"), ("1,234", "1234"), ("−5", "-5"), ("$18", "18"), ("007", "7"), ("3/4", "0.75"), ("1 1/2", "1.5"),
    ("-1 1/2", "-1.5"), ("1e3", "1,000"), (".5", "0.5"), ("-0", "0"), ("+5", "5"), (" 5 ", "5"), ("0.1", "1/10"),
]  # fmt: skip
DIFFERENT = [
    ("18", "19"),
    ("5", "-5"),
    ("1/3", "0.333"),
    ("", ""),
    ("x", "x"),
    (None, None),
    (None, "5"),
    ("5", "5 apples"),
    ("1.5.2", "1.5"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same(one: str, other: str) -> None:
    assert same_number(one, other) and same_number(other, one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different(one: str | None, other: str | None) -> None:
    assert not same_number(one, other) and not same_number(other, one)


NUMBERISH = st.text(alphabet="0123456789,.-−+$/eE# \n%{}\\<>think", max_size=60)


@given(st.text() | NUMBERISH)
@example("#### " + "9" * 5000)
def test_any_text_gives_a_readable_number_or_none(text: str) -> None:
    strict, flexible = extract_strict(text), extract_flexible(text)
    assert strict is None or flexible == strict
    for found in (strict, flexible):
        assert found is None or re.fullmatch(r"-?([0-9]+ )?[0-9.]+(/[0-9]+|[eE][+-]?[0-9]+)?", found)
        assert found is None or len(found) > 64 or same_number(found, found)


@given(st.integers(-(10**12), 10**12), st.text(alphabet="abc .\n", max_size=20))
def test_a_marked_number_is_found_however_it_is_written(number: int, around: str) -> None:
    for written in (f"{number}", f"{number:,}", f"{number}.0"):
        found = extract_strict(f"{around}\n#### {written}\n{around}")
        assert same_number(found, str(number))


PIECES = [
    "9",
    "1,",
    ",111",
    "1 1",
    "-",
    "1/",
    ".",
    "1.",
    "####",
    "#### ",
    "1e",
    "e1",
    "$",
    "<think>",
    "\\frac{1}",
    "\\frac{",
]
READ_ALL = """
import itertools, json, resource, sys
from podwright.recipe.answer_numbers import gold, same_number
from podwright.train.grpo.reward import check_answer
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
for piece, head, tail in itertools.product(json.loads(sys.argv[1]), ("", "#### "), ("", "e100")):
    text = head + piece * (50_000 // len(piece)) + tail
    assert check_answer([""], [text], answer=["18"]) == [0.0]
    gold("#### 1" + text)
    assert not same_number(text, "18")
"""


def test_babble_of_any_length_is_read_in_linear_time() -> None:
    """The limit is of CPU time, so that no load of the machine counts: 64 texts take a second, and a minute where one sort is quadratic."""
    subprocess.run([sys.executable, "-c", READ_ALL, json.dumps(PIECES)], check=True)
