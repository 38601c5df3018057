"""Whether the examples that GRPO trains and tests on can be read, how many they are, and how often each is seen.

Files of this machine are read by the loaders of training, in the process of token_lengths.py.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from podwright import errors
from podwright.errors import UserError, expanded, nearest
from podwright.plan.checks import hub, token_lengths
from podwright.plan.findings import Finding, of_error
from podwright.recipe import arithmetic_capacity
from podwright.recipe.paths import looks_like_path, missing
from podwright.recipe.schema import GrpoData, GrpoRecipe


@dataclasses.dataclass(frozen=True)
class ExampleCounts:
    train: int
    test: int
    rows_read: int | None = None
    """of files that were too large to read all of, so that `train` and `test` are estimates; None: all were read"""


def check(recipe: GrpoRecipe, cwd: Path) -> list[Finding]:
    """What is wrong with the data, or how long it lasts."""
    data = recipe.data
    findings: list[Finding] = []
    try:
        _require_source(data, cwd)
        counted = counts(recipe, cwd)
        if token_lengths.is_local(recipe, cwd):
            records = [r for r in token_lengths.checked(recipe, cwd) if r["check"] == "data"]
            findings = [token_lengths.finding(r) for r in records if r.get("code") != token_lengths.EXAMPLES]
        elif counted is None:
            findings = [hub.dataset(data.source), *_uncounted(recipe)]
        if counted is None:
            return findings
        if counted.train < recipe.batch_size:
            what = f"batch_size={recipe.batch_size} is more than the {counted.train} training examples"
            fix = f"type batch_size={counted.train} or less, or give more data"
            raise UserError(what, fix, "too-few-examples")
        resolved = recipe.in_steps(counted.train)
    except UserError as e:
        return [of_error("data", e)]
    lasting = [Finding("data", "info", _lasting(resolved, counted))]
    if epochs := recipe.training.num_epochs:
        steps = errors.counted(resolved.training.max_steps, "step")
        about = f"training.num_epochs={epochs} of {counted.train:,} examples is {steps}"
        lasting.insert(0, Finding("data", "info", f"{about}; the run counts again, without prompts that are too long"))
    if data.source == "arithmetic":
        why = _shortage(data)[0]
        if why:
            findings.append(Finding("data", "inconclusive", why, _fewer(data), "too-few-problems"))
    return lasting + findings


def _require_source(data: GrpoData, cwd: Path) -> None:
    """UserError for a path with nothing there."""
    if data.source == "arithmetic" or os.path.exists(cwd / expanded(data.source)):
        return
    if nearest(data.source, ["arithmetic"]):
        what = f"there is no data.source={data.source}"
        raise UserError(what, "did you mean data.source=arithmetic?", "no-such-file")
    if looks_like_path(data.source, cwd):
        raise missing("data.source", data.source, cwd)


def counts(recipe: GrpoRecipe, cwd: Path) -> ExampleCounts | None:
    """None where they are not known here; UserError for problems that cannot be generated."""
    if recipe.data.source == "arithmetic":
        return _generated(recipe.data)
    if not token_lengths.is_local(recipe, cwd):
        return None
    for record in token_lengths.checked(recipe, cwd):
        if record.get("code") == token_lengths.EXAMPLES:
            return ExampleCounts(record["train"], record["test"], record["rows_read"])
    return None


def _uncounted(recipe: GrpoRecipe) -> list[Finding]:
    """What a plan says of epochs whose steps it cannot count."""
    if recipe.training.max_steps:
        return []
    what = f"the steps of training.num_epochs={recipe.training.num_epochs} are counted when the run has read data.source={recipe.data.source}"
    return [Finding("data", "info", what)]


def in_steps(recipe: GrpoRecipe, cwd: Path) -> GrpoRecipe:
    """`recipe` with its steps in the place of epochs, by the examples that are read here; as it is where they cannot be counted."""
    if recipe.training.max_steps:
        return recipe
    num_train = num_train_examples(recipe, cwd)
    if not num_train:
        return recipe
    try:
        return recipe.in_steps(num_train)
    except UserError:
        return recipe


def num_train_examples(recipe: GrpoRecipe, cwd: Path) -> int | None:
    """None where they cannot be counted here."""
    counted = _counts_or_none(recipe, cwd)
    return counted.train if counted else None


def num_test_examples(recipe: GrpoRecipe, cwd: Path) -> int | None:
    """None where they cannot be counted here."""
    counted = _counts_or_none(recipe, cwd)
    return counted.test if counted else recipe.data.num_test or None


def _counts_or_none(recipe: GrpoRecipe, cwd: Path) -> ExampleCounts | None:
    try:
        return counts(recipe, cwd)
    except UserError:
        return None


def _generated(data: GrpoData) -> ExampleCounts:
    for key, part, usual in (("num_train", "training", 1000), ("num_test", "test", 200)):
        if getattr(data, key) < 1:
            what = f"data.source=arithmetic has no {part} examples"
            raise UserError(what, f"type data.{key}={usual}", "no-examples")
    why, certain = _shortage(data)
    if certain:
        raise UserError(why, _fewer(data), "too-few-problems")
    return ExampleCounts(data.num_train, data.num_test)


def _shortage(data: GrpoData) -> tuple[str, bool]:
    return arithmetic_capacity.shortage(
        data.num_train, data.num_test, data.max_operations, arithmetic_capacity.MAX_NUMBER
    )


def _fewer(data: GrpoData) -> str:
    """As many problems as there certainly are."""
    num_train, num_test = arithmetic_capacity.largest(
        data.num_train, data.num_test, data.max_operations, arithmetic_capacity.MAX_NUMBER
    )
    sizes = {"num_train": num_train, "num_test": num_test}
    return "type " + " ".join(f"data.{key}={n}" for key, n in sizes.items() if n != getattr(data, key))


def _lasting(recipe: GrpoRecipe, counted: ExampleCounts) -> str:
    """Epochs and the steps of one; a prompt that turns out too long is left out, and makes both a little worse."""
    num_train = counted.train
    needed, rounds = recipe.training.max_steps * recipe.batch_size, 1 + recipe.grpo.dynamic_sampling
    seen, steps = f"{needed / num_train:.2g}", f"{num_train // recipe.batch_size:,}"
    if rounds > 1:  # a step draws again for groups whose rewards are all equal
        seen = f"{seen} to {rounds * needed / num_train:.2g}"
        steps = f"{num_train // (recipe.batch_size * rounds):,} to {steps}"
    about = "" if counted.rows_read is None else "about "
    message = (
        f"{needed:,} prompt{'s' * (needed > 1)} out of {about}{num_train:,} training examples: {seen} epoch{'s' * (seen != '1')}; "
        f"one epoch is {steps} step{'s' * (steps != '1')}"
    )
    if counted.rows_read is not None:
        message += (
            f"; of the files {counted.rows_read:,} rows were read, at both ends and between, and training reads all"
        )
    return message
