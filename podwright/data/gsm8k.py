"""Questions with worked answers in GSM8K's format, from wherever the recipe says: which examples train and which test.

A row is {"question", "answer"}, the answer ending in `#### n`. Reading files is `rows.py`; making problems up is `arithmetic.py`.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from podwright.data import arithmetic, rows
from podwright.errors import UserError
from podwright.recipe.schema import GrpoData

HELD_OUT = 10
"""One question in so many is held out of a file that has no test set of its own."""

# The pattern and the stripping of commas are those of the data set's authors (openai/grade-school-math, dataset.py).
_GOLD = re.compile(r"#### (\-?[0-9\.\,]+)")


@dataclasses.dataclass(frozen=True)
class Example:
    question: str
    answer: str
    """the right number as text, without commas"""
    solution: str
    """the worked answer, its `#### n` line included"""


def load(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    """(train, test), each cut to the first `num_train` / `num_test`. Raises UserError for whatever is wrong with the source.

    A single .jsonl file has no test set: `num_test` of its distinct questions (or a tenth) are drawn by `seed` and held out.
    """
    if data.source == "arithmetic":
        return _generated(data, seed)
    path = Path(data.source).expanduser()
    if path.is_file():
        train, test = _hold_out(read(path), data, seed)
    else:
        parts = rows.directory(path) if path.is_dir() else rows.hub(data.source)
        train, test = _examples(parts[0]), _examples(parts[1])
    for name, part in (("train", train), ("test", test)):
        if not part:
            raise UserError(
                f"data.source={data.source} has no {name} examples",
                "give a set with at least one question in each part",
            )
    return train[: data.num_train or None], test[: data.num_test or None]


def read(path: Path) -> list[Example]:
    """Every example of one .jsonl file."""
    return _examples(rows.jsonl(path))


def gold(solution: str) -> str | None:
    """The number of the first `#### n` of a worked answer, as the data set's authors read it; None if there is none."""
    match = _GOLD.search(solution)
    number = match.group(1).replace(",", "").rstrip(".") if match else ""
    return number if re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)", number) else None


def _generated(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    problem_sets = arithmetic.generate(data.num_train, data.num_test, data.max_operations, arithmetic.MAX_NUMBER, seed)
    train, test = ([Example(p.question, p.answer, p.solution) for p in part] for part in problem_sets)
    return train, test


def _examples(located_rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Example]:
    return [_example(where, row) for where, row in located_rows]


def _example(where: str, row: Mapping[str, Any]) -> Example:
    for key in ("question", "answer"):
        if key not in row:
            raise UserError(
                f"{where} has no {key!r}",
                f'write {{"question": ..., "answer": "... #### n"}}, found keys: {", ".join(row)}',
            )
        if not isinstance(row[key], str):
            raise UserError(f"{where}: {key} is {type(row[key]).__name__}, not text", f"put {key} in quotes")
        if not row[key].strip():
            raise UserError(f"{where}: {key} is empty", "fill it in or remove the row")
    number = gold(row["answer"])
    if number is None:
        raise UserError(
            f"{where}: the answer has no '#### n'", "end the worked answer with a line '#### ' and the number"
        )
    return Example(row["question"], number, row["answer"])


def _hold_out(examples: list[Example], data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    """By question, so that a question that stands twice in the file is never in both parts."""
    questions = list(dict.fromkeys(e.question for e in examples))
    size = data.num_test or max(1, len(questions) // HELD_OUT)
    if size >= len(questions):
        raise UserError(
            f"{data.source} has {len(questions)} different questions, too few to hold {size} out for the test",
            f"type data.num_test={len(questions) - 1} or less"
            if len(questions) > 1
            else "give a file with at least 2 questions",
        )
    held = set(random.Random(seed).sample(questions, size))
    return [e for e in examples if e.question not in held], [e for e in examples if e.question in held]
