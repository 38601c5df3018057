"""Questions with worked answers in GSM8K's format, from wherever the recipe says: which examples train and which test.

What files hold is read by `recipe/worked_examples.py`, which a plan reads by too; the hub is `hub.py`, and making problems up `arithmetic.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from podwright.data import arithmetic, hub
from podwright.errors import expanded
from podwright.recipe import arithmetic_capacity, worked_examples
from podwright.recipe.paths import looks_like_path, missing
from podwright.recipe.schema import GrpoData
from podwright.recipe.worked_examples import Example, Rows, example

_SIZES = ("num_train", "num_test")
_STEPS = 40_000  # in all problems of a part that a plan generates, at most: a few seconds with their tokens
_STREAMED = 2_000  # rows of each part of a data set on the hub


@dataclasses.dataclass(frozen=True)
class SampledPart:
    examples: Sequence[Example]
    total: int
    """examples that training reads; an estimate where these are not all of them"""


class Parts(NamedTuple):
    train: list[Example]
    test: list[Example]
    read: dict[str, int]
    """examples of each part of the source"""


def load(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    """(train, test) of a run that begins."""
    return parts(data, seed)[:2]


def parts(data: GrpoData, seed: int, began: Mapping[str, int] = MappingProxyType({})) -> Parts:
    """Training and test, each cut to the first `num_train` / `num_test`. Raises UserError for whatever is wrong with the source.

    A single .jsonl file has no test set: `num_test` of its distinct questions (or a tenth) are drawn by `seed` and held out.
    `began`: the sizes that a run has begun with. The test is chosen among the first so many examples.
    """
    if data.source == "arithmetic":
        train, test = _generated(data, seed)
        return Parts(train, test, {})
    path, test = expanded(data.source), []
    if path.exists():
        files = worked_examples.files(data.source, path)
        train = _examples(worked_examples.rows(files.train))
        test = _examples(worked_examples.rows(files.test))
    elif looks_like_path(data.source, Path()):
        raise missing("data.source", data.source, Path())
    else:
        train, test = (_examples(part) for part in hub.load(data.source))
    read = {"train": len(train), "test": len(test)}
    if path.exists() and not files.test:
        train, test = worked_examples.hold_out(train, data, seed, began.get("train"))
    else:
        test = test[: began.get("test")]
    for name, part in (("train", train), ("test", test)):
        if not part:
            raise worked_examples.no_examples(data.source, name)
    return Parts(train[: data.num_train or None], test[: data.num_test or None], read)


def sampled(data: GrpoData, seed: int) -> tuple[SampledPart, SampledPart]:
    """(train, test) as `load` has them, in bounded time: of large files, large numbers of problems and of the hub some examples."""
    path = expanded(data.source)
    if data.source == "arithmetic":
        sizes, most = (data.num_train, data.num_test), _STEPS // data.max_operations
        parts = _generated(data.model_copy(update={k: min(n, most) for k, n in zip(_SIZES, sizes, strict=True)}), seed)
        return SampledPart(parts[0], sizes[0]), SampledPart(parts[1], sizes[1])
    if not path.exists():
        rows = hub.load(data.source, streaming=True)
        train, test = (_examples(itertools.islice(part, _STREAMED)) for part in rows)
        return _cut(train, len(train), data.num_train), _cut(test, len(test), data.num_test)
    files = worked_examples.files(data.source, path)
    sample = worked_examples.sampled(files.train)
    train, num_train = list(sample.examples), sample.num_rows
    if files.test:
        of_test = worked_examples.sampled(files.test)
        test, num_test = list(of_test.examples), of_test.num_rows
    else:
        train, test = worked_examples.hold_out(train, data, seed)
        num_test = len(test) if sample.complete else worked_examples.num_held_out(num_train, data)
        num_train -= num_test
    return _cut(train, num_train, data.num_train), _cut(test, num_test, data.num_test)


def _cut(examples: list[Example], total: int, wanted: int) -> SampledPart:
    """The first `wanted`, 0 for all, of a part with `total` examples."""
    return SampledPart(examples[: wanted or None], min(total, wanted or total))


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
