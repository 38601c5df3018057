"""Questions with right answers, from wherever the recipe says: which examples train and which test.

`rows.py` reads files, `layouts.py` says what a row holds, and `example_files.py` which files are read; the hub is `hub.py`, and making
problems up `arithmetic.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from podwright.data import arithmetic, example_files, hub, layouts, rows
from podwright.data.example_files import ExampleFiles
from podwright.data.layouts import Example
from podwright.errors import UserError, expanded
from podwright.recipe import arithmetic_capacity, held_out
from podwright.recipe.paths import looks_like_path, missing
from podwright.recipe.schema import GrpoColumns, GrpoData

_SIZES = ("num_train", "num_test")
_STEPS = 40_000  # in all problems of a part that a plan generates, at most: a few seconds with their tokens
_STREAMED = 2_000  # rows of each part of a data set on the hub
_HELD_OUT = 10  # one question in so many is held out of a file that has no test set of its own


@dataclasses.dataclass(frozen=True)
class SampledPart:
    """What a plan reads of the training or the test part."""

    examples: Sequence[Example]
    total: int
    """examples that training reads; an estimate where these are not all of them"""


class SampledData(NamedTuple):
    """What a plan reads of a source."""

    train: SampledPart
    test: SampledPart
    complete: bool = True
    """whether every row was read, so that the totals are counts"""
    warnings: tuple[tuple[str, str], ...] = ()
    """what is wrong and what to do: test questions that training has too, files that are not read"""


class Parts(NamedTuple):
    train: list[Example]
    test: list[Example]
    read: dict[str, int]
    """examples of each part of the source"""


def parts(data: GrpoData, seed: int, began: Mapping[str, int] = MappingProxyType({})) -> Parts:
    """Training and test, each cut to the first `num_train` / `num_test`. Raises UserError for whatever is wrong with the source.

    A single file has no test set: `num_test` of its distinct questions (or a tenth) are drawn by `seed` and held out.
    `began`: the sizes that a run has begun with. The test is chosen among the first so many examples.
    """
    if data.source == "arithmetic":
        train, test = _generated(data, seed)
        return Parts(train, test, {})
    path = expanded(data.source)
    test = []
    if path.exists():
        files = example_files.files(data.source, path)
        train, test = _of_files(files.train, data.columns), _of_files(files.test, data.columns)
    elif looks_like_path(data.source, Path()):
        raise missing("data.source", data.source, Path())
    else:
        located = hub.load(data.source, layouts.names_read(data.columns))
        train, test = (_examples(part, data.columns) for part in located)
    read = {"train": len(train), "test": len(test)}
    if path.exists() and not files.test:
        train, test = hold_out(train, data, seed, began.get("train"))
    else:
        test = test[: began.get("test")]
    _require_both(data.source, train, test)
    return Parts(train[: data.num_train or None], test[: data.num_test or None], read)


def sampled(data: GrpoData, seed: int) -> SampledData:
    """(train, test) as `parts` has them, in bounded time: of large files, large numbers of problems and of the hub some examples."""
    path = expanded(data.source)
    if data.source == "arithmetic":
        sizes, most = (data.num_train, data.num_test), _STEPS // data.max_operations
        fewer = {key: min(size, most) for key, size in zip(_SIZES, sizes, strict=True)}
        train, test = _generated(data.model_copy(update=fewer), seed)
        return SampledData(SampledPart(train, sizes[0]), SampledPart(test, sizes[1]))
    if path.exists():
        return _sampled_files(example_files.files(data.source, path), data, seed)
    located = hub.load(data.source, layouts.names_read(data.columns), streaming=True)
    train, test = (_examples(itertools.islice(part, _STREAMED), data.columns) for part in located)
    _require_both(data.source, train, test)
    return SampledData(_cut(train, len(train), data.num_train), _cut(test, len(test), data.num_test), complete=False)


def _sampled_files(files: ExampleFiles, data: GrpoData, seed: int) -> SampledData:
    train, num_train, complete = _sample(files.train, data.columns)
    warnings = [warning] if (warning := example_files.unread(files)) else []
    if files.test:
        test, num_test, test_complete = _sample(files.test, data.columns)
        complete = complete and test_complete
    elif train:
        num_test = 0 if complete else _num_held_out(num_train, data)
        train, test = hold_out(train, data, seed)
        num_train = len(train) if complete else num_train - num_test
        num_test = num_test or len(test)
    else:
        test, num_test = [], 0
    _require_both(data.source, train, test)
    parts = _cut(train, num_train, data.num_train), _cut(test, num_test, data.num_test)
    if files.test:
        questions = [[example.question for example in part.examples] for part in parts]
        if equal := held_out.shared(*questions):
            names = files.train[0].name, files.test[0].name
            warnings.append(held_out.warning(data.source, names, equal, len(questions[1])))
    return SampledData(*parts, complete, tuple(warnings))


def _sample(paths: Iterable[Path], columns: GrpoColumns | None) -> tuple[list[Example], int, bool]:
    """Examples of the files of a part, how many these have, and whether all were read."""
    samples = [rows.sampled(path, layouts.names_read(columns)) for path in paths]
    examples = [example for sample in samples for example in _examples(sample.rows, columns)]
    return examples, sum(sample.total for sample in samples), all(sample.complete for sample in samples)


def _cut(examples: list[Example], total: int, wanted: int) -> SampledPart:
    """The first `wanted`, 0 for all, of a part with `total` examples."""
    return SampledPart(examples[: wanted or None], min(total, wanted or total))


def _require_both(source: str, train: Sequence[Example], test: Sequence[Example]) -> None:
    for name, part in (("train", train), ("test", test)):
        if not part:
            what = f"data.source={source} has no {name} examples"
            raise UserError(what, "give a set with at least one question in each part", "no-examples")


def read(path: Path, columns: GrpoColumns | None = None) -> list[Example]:
    """Every example of a file, or of the test part of a directory."""
    return _of_files(example_files.part_files(path, "test") or example_files.files(str(path), path).train, columns)


def hold_out(
    examples: Sequence[Example], data: GrpoData, seed: int, first: int | None = None
) -> tuple[list[Example], list[Example]]:
    """(train, test) of a single file, by question, so that a question that stands twice in it is never in both. `first`: examples among
    which the test is chosen."""
    if not examples:
        return [], []
    questions = list(dict.fromkeys(e.question for e in examples[:first]))
    size = _num_held_out(len(questions), data)
    held = set(random.Random(seed).sample(questions, size))
    training = [e for e in examples if e.question not in held]
    test = [e for e in examples[:first] if e.question in held]
    return training, test


def _num_held_out(num_questions: int, data: GrpoData) -> int:
    """Of the different questions of a single file; UserError where that leaves none to train on."""
    size = data.num_test or max(1, num_questions // _HELD_OUT)
    if size >= num_questions:
        what = f"{data.source} has {num_questions} different questions, too few to hold {size} out for the test"
        if num_questions == 1:
            raise UserError(what, "give a file with at least 2 questions", "held-out")
        raise UserError(what, f"type data.num_test={max(1, num_questions // _HELD_OUT)}", "held-out")
    return size


def _generated(data: GrpoData, seed: int) -> tuple[list[Example], list[Example]]:
    problem_sets = arithmetic.generate(
        data.num_train, data.num_test, data.max_operations, arithmetic_capacity.MAX_NUMBER, seed
    )
    train, test = ([Example(p.question, p.answer, p.solution) for p in part] for part in problem_sets)
    return train, test


def _of_files(paths: Iterable[Path], columns: GrpoColumns | None) -> list[Example]:
    return [e for path in paths for e in _examples(rows.rows(path, layouts.names_read(columns)), columns)]


def _examples(located: Iterable[tuple[str, rows.Row | UserError]], columns: GrpoColumns | None) -> list[Example]:
    return [layouts.example(where, rows.required(row), columns) for where, row in located]
