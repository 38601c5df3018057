"""Which questions an evaluation asks: all of a foreign file, the held-out part of a run's own."""

import pytest

from podwright.rundir import append_jsonl
from podwright.train.grpo import standalone
from tests.unit.train import small


@pytest.fixture
def file(tmp_path):
    for n in range(30):
        append_jsonl(tmp_path / "data.jsonl", {"question": f"{n}+1?", "answer": f"#### {n + 1}"})
    return tmp_path / "data.jsonl"


def test_a_foreign_file_is_used_whole(file):
    assert len(standalone._questions(small.recipe(), str(file))) == 30


def test_of_its_own_file_a_run_is_asked_only_what_it_did_not_train_on(file):
    recipe = small.recipe(f"data.source={file}", "data.num_train=0", "data.num_test=4")
    asked = standalone._questions(recipe, str(file))
    assert len(asked) == 4
    assert asked == standalone._questions(recipe, str(file.parent / "." / "data.jsonl"))
