"""Turns as APIs write them, at the doors: check, the plans of GRPO and of pretraining, and the texts that are trained on."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from podwright.data import gsm8k, layouts, texts
from podwright.errors import UserError
from podwright.recipe.schema import GrpoData
from tests.verbs import call

ASKED = {"role": "user", "content": "What is 17*23?"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 17, "b": 23}'}}
BY_TOOL = [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "391"}]
ANSWER = {"role": "assistant", "content": "#### 391"}
QUESTIONS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"role": "user", "content": [{"type": "text", "text": "1+1?"}]}, ANSWER], "1+1?"),
    ([{"role": "user", "content": [{"type": "input_text", "text": "1"}, "+1?"]}, ANSWER], "1\n+1?"),
    ([{"role": "developer", "content": "Briefly."}, ASKED, ANSWER], "What is 17*23?"),
    ([{"role": "system", "content": None}, ASKED, ANSWER], "What is 17*23?"),
    ([{"role": "User", "content": "1+1?"}, {"role": "Assistant", "content": "#### 391"}], "1+1?"),
    ([{"role": "user", "parts": [{"text": "1+1?"}]}, {"role": "model", "parts": [{"text": "#### 391"}]}], "1+1?"),
    ([{"from": "human", "value": "1+1?"}, {"from": "chatgpt", "value": "#### 391"}], "1+1?"),
    ([*BY_TOOL, ANSWER], "What is 17*23?"),
    ([ASKED, {"role": "assistant", "content": None, "function_call": CALL["function"]},
      {"role": "function", "name": "multiply", "content": "391"}, ANSWER], "What is 17*23?"),
    ([{"from": "human", "value": "?"}, {"from": "function_call", "value": "f()"}, {"from": "observation", "value": ""},
      {"from": "gpt", "value": "#### 391"}], "?"),
]  # fmt: skip
UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image_url", "image_url": {}}]}, "image_url"),
    ({"role": "user", "parts": [{"inline_data": {}}]}, "inline_data"),
    ({"role": "user", "content": []}, "a list"),
    ({"role": "user", "content": None}, "null"),
    ({"role": "critic", "content": "?"}, "critic"),
]


def lines(path: Path, conversations: list[list[dict[str, Any]]]) -> Path:
    path.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in conversations))
    return path


@pytest.mark.parametrize(("turns", "question"), QUESTIONS)
def test_a_question_is_read_from_the_turns_of_an_api(turns: list[dict[str, Any]], question: str) -> None:
    example = layouts.example("a:1", {"messages": turns})
    assert (example.question, example.answer) == (question, "391")
    assert example.system == ("Briefly." if turns[0].get("content") == "Briefly." else "")


@pytest.mark.parametrize(("turn", "named"), UNREAD)
def test_what_is_no_text_is_named_with_its_line(turn: dict[str, Any], named: str) -> None:
    for read in (layouts.example, layouts.text):
        with pytest.raises(UserError) as refused:
            read("a:1", {"messages": [turn, ANSWER]})
        assert named in refused.value.what and "a:1" in refused.value.what and len(str(refused.value)) <= 240


def test_a_question_that_was_answered_with_tools_is_asked_without_them(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [[{**ASKED, "content": f"{n}?"}, *BY_TOOL[1:], ANSWER] for n in range(20)])
    sample = gsm8k.sampled(GrpoData(source=str(path)), 0)
    assert (sample.train.total, sample.test.total) == (18, 2)
    assert sample.train.examples[0].question.endswith("?") and not sample.warnings
    checked = json.loads(call("data", "check", str(path), "--json").stdout)
    assert (checked["valid"], checked["num_faults"]) == (20, 0)


def test_pretraining_keeps_calls_and_answers_of_tools(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [[*BY_TOOL, ANSWER]])
    (text,) = texts.read(str(path))
    asked, called, answered, said = text.split("\n\n")
    assert (asked, json.loads(called), answered, said) == ("What is 17*23?", [CALL], "391", "#### 391")


def test_turns_of_the_system_are_joined() -> None:
    system = [{"role": "system", "content": "A."}, {"role": "developer", "content": "B."}]
    assert layouts.example("a:1", {"messages": [*system, ASKED, ANSWER]}).system == "A.\n\nB."
    with pytest.raises(UserError, match="has 1 turn of the user, and GRPO takes one, after the system; "):
        layouts.example("a:1", {"messages": [ASKED, *system, ANSWER]})


@pytest.mark.parametrize(
    ("row", "question"),
    [
        ({"messages": [ASKED, ANSWER]}, "What is 17*23?"),
        ({"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "#### 391"}]}, "?"),
        ({"instruction": "?", "input": "17*23", "output": "#### 391"}, "?\n17*23"),
        ({"question": "?", "answer": "#### 391"}, "?"),
        ({"prompt": [ASKED], "completion": "#### 391"}, "What is 17*23?"),
    ],
)
def test_what_the_system_says_beside_the_turns_is_its_turn(row: dict[str, Any], question: str, tmp_path: Path) -> None:
    brief = row | {"system": "Be brief."}
    example = layouts.example("a:1", brief)
    assert (example.system, example.question, example.answer) == ("Be brief.", question, "391")
    plain = layouts.text("a:1", row)
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([brief]), path)
    assert [*texts.read(str(path))] == [f"Be brief.\n\n{plain}"]
    fields = layouts.with_response("a:1", brief)
    assert (fields["instruction"], fields["response"]) == (f"Be brief.\n\n{question}", "#### 391")
    for other in ("", " ", None, 7):
        assert layouts.text("a:1", row | {"system": other}) == plain
        assert layouts.example("a:1", row | {"system": other}).system == ""
    if "messages" in row:
        first = {"role": "system", "content": "Think."}
        assert layouts.example("a:1", brief | {"messages": [first, ASKED, ANSWER]}).system == "Think."
