"""Every error and finding has a stable code; the golden file has the texts of each."""

import pickle
import re

from podwright.errors import UserError
from tests import texts

CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*|\{.+\}")  # in braces where an expression says which


def test_every_error_and_each_finding_that_asks_for_something_has_a_code() -> None:
    without = [
        (each.where, each.code) for each in texts.texts() if each.level != "info" and not CODE.fullmatch(each.code)
    ]
    assert without == []


def test_the_golden_file_has_the_texts_of_now() -> None:
    assert texts.GOLDEN.read_text() == texts.golden(), "type python -m tests.texts, and read the difference"


def test_no_text_is_a_program_or_longer_than_a_line() -> None:
    assert [each.where for each in texts.texts() if "\n" in each.text or "python -c" in each.text] == []
    values = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
    with_values = {each.where: values.sub("x" * 12, each.text) for each in texts.texts()}
    assert [where for where, text in with_values.items() if len(text) > 240] == []


def test_an_error_comes_whole_out_of_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(UserError("a=1 is wrong", "type a=2", "bad-value")))
    assert (error.what, error.fix, error.code, str(error)) == (
        "a=1 is wrong",
        "type a=2",
        "bad-value",
        "a=1 is wrong; type a=2",
    )
