"""Rows of data sets of the Hugging Face hub, each with a name for the place it stands at."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

from podwright.data.rows import LocatedRows, not_installed, of_table
from podwright.errors import UserError, message_of

_ELSEWHERE = "type data.source=DIRECTORY of a download, with train.jsonl and test.jsonl"
_CONFIGS = {"openai/gsm8k": "main"}  # hub sets of which one configuration must be chosen


def load(name: str, columns: Collection[str], *, streaming: bool = False) -> tuple[LocatedRows, LocatedRows]:
    """(train, test) of a Hugging Face data set, downloaded or from its cache; test may be called validation.

    `columns`: those that are read; what others hold need not even be readable. With `streaming` rows are fetched as they are read, and not kept.
    """
    try:
        import datasets
    except ImportError as e:
        raise not_installed("datasets", "the hub") from e
    try:
        dataset = datasets.load_dataset(name, _CONFIGS.get(name), streaming=streaming)
    except Exception as e:  # the hub's clients raise dozens of types, all of them meaning that there is no data
        raise UserError(
            f"data.source={name} is no path here, and the Hugging Face hub failed ({type(e).__name__}: {message_of(e)})",
            _ELSEWHERE,
            "hub-unreachable",
        ) from e
    test = "test" if "test" in dataset else "validation"
    if "train" not in dataset or test not in dataset:
        raise UserError(f"{name} has the parts {', '.join(dataset)}", "give a set with train and test", "no-examples")
    return _named(f"{name} train", dataset["train"], columns), _named(f"{name} {test}", dataset[test], columns)


def _named(name: str, table: Any, columns: Collection[str]) -> LocatedRows:
    try:
        yield from of_table(name, table, columns, itertools.count())
    except Exception as e:  # of the network, or of a file that is no table
        raise UserError(
            f"{name} cannot be read ({type(e).__name__}: {message_of(e)})", _ELSEWHERE, "hub-unreachable"
        ) from e
