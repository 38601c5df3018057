"""What `python -m podwright.train check` says of GRPO: the data by the readers of training, then the tokenizer and the lengths.

It runs in a process of its own, without JAX. Where a package is missing for one of the two, the other is checked.
"""

from __future__ import annotations

from collections.abc import Collection

from podwright.data import gsm8k
from podwright.data.gsm8k import SampledData
from podwright.data.rows import MissingPackage
from podwright.errors import UserError
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.train.answers import collected, record


def findings(recipe: GrpoRecipe, without: Collection[str]) -> list[Record]:
    """Each {check, level, code, message, fix}; that of the code `examples` has their numbers besides. `without`: sections whose source cannot
    be had; without `model` the data alone is checked."""
    records: list[Record] = []
    sample = None
    if "data" not in without:
        records, sample = _data(recipe)
        if sample is None:
            return records
    if "model" in without:
        return records
    return [*records, *collected("context", lambda: _of_tokens(recipe, sample), extra="jax")]


def _of_tokens(recipe: GrpoRecipe, sample: SampledData | None) -> list[Record]:
    from podwright.train.grpo import token_check

    return token_check.findings(recipe, sample)


def _data(recipe: GrpoRecipe) -> tuple[list[Record], SampledData | None]:
    try:
        sample = gsm8k.sampled(recipe.data, recipe.seed)
    except MissingPackage as e:
        return [record("data", "inconclusive", e.what, e.fix, "missing-package")], None
    except UserError as e:
        # the hub may answer when the run starts
        check, level = ("context", "inconclusive") if e.code == "hub-unreachable" else ("data", "error")
        return [record(check, level, e.what, e.fix, e.code)], None
    train, test = sample.train, sample.test
    what = f"{train.total:,} training and {test.total:,} test examples"
    rows_read = None if sample.complete else len(train.examples) + len(test.examples)
    if rows_read is not None:
        what = f"about {what}, by {rows_read:,} rows that were read: larger files are read at both ends and between"
    counts = {"train": train.total, "test": test.total, "rows_read": rows_read}
    records = [record("data", "info", what, "", "examples") | counts]
    records += [record("data", "warning", *warning, "warning") for warning in sample.warnings]
    return records, sample
