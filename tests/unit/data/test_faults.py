"""What `podwright data check` says of files that a kind of recipe reads by other keys than "text"."""

import json
from pathlib import Path

from podwright.data import faults


def test_questions_with_answers_are_checked_as_grpo_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [
        {"question": "1+1?", "answer": "1+1=2\n#### 2"},
        {"question": "1+2?", "answer": "three"},
        {"question": "1+3?"},
        {"question": " ", "answer": "#### 4"},
        {"title": "a"},
        {"text": "a", "question": "b"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = faults.check(str(path))
    assert (record["lines"], record["valid"]) == (6, 2)
    messages = [f["message"].removeprefix(f"{path}") for f in record["faults"]]
    starts = (":2: the answer has no '#### n'", ":3 has no 'answer'", ":4: question is empty", ":5 has no 'text'")
    assert [f["line"] for f in record["faults"]] == [2, 3, 4, 5]
    assert all(message.startswith(start) for message, start in zip(messages, starts, strict=True)), messages
