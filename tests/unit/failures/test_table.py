"""The table of failures: every row matches its example, no row takes that of another, and every text can be filled in."""

import re
import string
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import pytest

from podwright.failures.match import FILES, FailureRow, match, rows
from podwright.recipe.advice import of_kind
from podwright.run.states import Budget
from podwright.rundir import Ending
from podwright.targets.google.replies import Consequence
from tests.diagnosed import diagnosed

LOGS = Path(__file__).parents[2] / "logs"
PREFIX = "[pod/cats-1-slice-0/trainer] "
ROWS = list({id(row): row for row in chain.from_iterable(map(rows, FILES))}.values())
FIELDS = {
    "gke": {"project", "location", "cluster", "zone", "machine_type", "target"},
    "tpu_vm": {"project", "zone", "target"},
    "kubectl": {"project", "location", "cluster", "namespace", "context", "summary", "message"},
    "host": {"host"},
    "ssh": {"host", "login", "port", "jump", "options", "command"},
    "jump_host": {"host", "login", "port", "jump", "options", "command"},
    "tpu_ssh": {"host", "key"},
    "tpu_worker": {"host"},
    "tpu_peer": {"host"},
    "slurm_waiting": {"target"},
    "ending": {"run", *asdict(of_kind("grpo"))},
    "log": set(asdict(of_kind("grpo"))),
    "trainer": {"first", "seen", "then", *asdict(of_kind("grpo"))},
}
"""what who asks has besides the values of the text"""
OF_WAITING = {"what", "message", "namespace", "context", "target", "run", "queue", "selector", "image", "name"}


def name_of(row: FailureRow) -> str:
    return f"{row.seen_in[0]}-{row.name}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.example or not row.pattern], ids=name_of)
def test_the_example_of_a_row_is_matched_by_it_first(row: FailureRow) -> None:
    for seen_in in row.seen_in:
        failure = match(row.example or row.name, seen_in)
        assert failure and failure.row is row, failure


def test_every_row_has_an_example() -> None:
    """Those of logs are in tests/logs."""
    logs = {path.stem.partition("@")[0] for path in LOGS.glob("*.log")}
    assert not [row.name for row in ROWS if row.pattern and not row.example and row.name not in logs]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_text_of_a_row_can_be_filled_in(row: FailureRow) -> None:
    for seen_in in row.seen_in:
        fields = FIELDS.get(seen_in, OF_WAITING if FILES[seen_in] == "waiting" else set())
        for text in (row.cause, row.remedy, *row.zh.values()):
            names = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
            assert names <= {*fields, *row.values, "line"}, (seen_in, text)


def test_what_a_row_lets_one_conclude_is_there() -> None:
    for row in ROWS:
        legal = {"ending": set(Budget), "slurm_command": {"unknown", "final"}}.get(
            row.seen_in[0], {c.value for c in Consequence}
        )
        assert not row.retry or row.retry in legal, row.name
        assert bool(row.retry) == (
            FILES[row.seen_in[0]] in ("gcloud", "cluster", "endings") or "slurm_command" in row.seen_in
        ), row.name
    assert [row.ending for row in rows("ending")] == list(Ending)


def test_the_value_of_a_group_is_that_of_the_alternative_that_took_part() -> None:
    failure = match("Permission 'tpu.nodes.create' denied on x\nmore", "gke")
    assert failure and failure.values == {"what": "tpu.nodes.create"} and failure.line.endswith("denied on x")
    assert failure.filled("{what} {project} {line}", {"what": "other", "project": "p"}).startswith(
        "tpu.nodes.create p Perm"
    )


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_a_failure_is_found_behind_the_prefix_of_kubectl(log: Path) -> None:
    """A pattern that begins with ^ needs a `search` without it."""
    lines = log.read_text().splitlines()
    assert diagnosed(PREFIX + line for line in lines)[0]["rule"] == diagnosed(lines)[0]["rule"]


@pytest.mark.parametrize("row", rows("log"), ids=name_of)
def test_the_chinese_texts_of_a_row_say_what_the_english_ones_do(row: FailureRow) -> None:
    """The same values and commands, and no English clause."""
    assert set(row.zh) == {"cause", "remedy"}
    for english, chinese in ((row.cause, row.zh["cause"]), (row.remedy, row.zh["remedy"])):
        named = [{name for _, name, _, _ in string.Formatter().parse(text) if name} for text in (english, chinese)]
        assert named[0] == named[1] and set(re.findall(r"\d+", english)) <= set(re.findall(r"\d+", chinese))
        assert named[0] or re.search(r"[\u4e00-\u9fff]", chinese)
        assert not re.search(r"(?:\b[a-zA-Z]+\b[ ,;.:]+){6}", chinese)
    commands = r"podwright \w+|gcloud [a-z]+|kubectl \w+|--[a-z]+\b"
    typed = [set(re.findall(commands, text)) for text in (row.remedy, row.zh["remedy"])]
    assert typed[0] <= typed[1] | {"podwright resume"}
