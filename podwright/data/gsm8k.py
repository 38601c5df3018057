"""Questions with worked answers in GSM8K's format, from wherever the recipe says: which examples train and which test.

What files hold is read by `recipe/worked_examples.py`, which a plan reads by too; the hub is `hub.py`, and making problems up `arithmetic.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

from podwright.data import arithmetic, hub
from podwright.recipe import arithmetic_capacity, worked_examples
from podwright.recipe.paths import looks_like_path, missing
from podwright.recipe.schema import GrpoData
from podwright.recipe.worked_examples import Example, Rows, example


def load(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    """(train, test), each cut to the first `num_train` / `num_test`. Raises UserError for whatever is wrong with the source.

    A single .jsonl file has no test set: `num_test` of its distinct questions (or a tenth) are drawn by `seed` and held out.
    """
    if data.source == "arithmetic":
        return _generated(data, seed)
    path = Path(data.source).expanduser()
    if path.exists():
        files = worked_examples.files(data.source, path)
        train = _examples(worked_examples.rows(files.train))
        train, test = (
            (train, _examples(worked_examples.rows(files.test))) if files.test else _hold_out(train, data, seed)
        )
    elif looks_like_path(data.source, Path()):
        raise missing("data.source", data.source, Path())
    else:
        train, test = (_examples(part) for part in hub.load(data.source))
    for name, part in (("train", train), ("test", test)):
        if not part:
            raise worked_examples.no_examples(data.source, name)
    return train[: data.num_train or None], test[: data.num_test or None]


def read(path: Path) -> list[Example]:
    """Every example of one .jsonl file."""
    return _examples(worked_examples.rows([path]))


def _generated(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    problem_sets = arithmetic.generate(
        data.num_train, data.num_test, data.max_operations, arithmetic_capacity.MAX_NUMBER, seed
    )
    train, test = ([Example(p.question, p.answer, p.solution) for p in part] for part in problem_sets)
    return train, test


def _examples(located_rows: Rows) -> list[Example]:
    return [example(where, row) for where, row in located_rows]


def _hold_out(examples: list[Example], data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    """By question, so that a question that stands twice in the file is never in both parts."""
    questions = list(dict.fromkeys(e.question for e in examples))
    size = worked_examples.num_held_out(len(questions), data)
    held = set(random.Random(seed).sample(questions, size))
    return [e for e in examples if e.question not in held], [e for e in examples if e.question in held]
