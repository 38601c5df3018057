"""Which questions an evaluation asks: all of a foreign file, the held-out part of a run's own."""

import pytest

from podwright.rundir import RunDir, append_jsonl, write_json
from podwright.storage import inputs, open_storage
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


def test_the_file_that_a_run_in_a_storage_was_started_with_is_its_own(file, tmp_path):
    """What it trained on is a copy in its directory then."""
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    recipe = small.recipe(f"data.source={file}", "data.num_train=0", "data.num_test=4")
    write_json(run.recipe, recipe.model_dump(mode="json"))
    write_json(run.storage, {"url": str(tmp_path / "kept")})
    inputs.upload(run, recipe.model_dump(mode="json"), tmp_path, open_storage(run.storage_url))
    copied = standalone._recipe_for(run.path)
    assert copied.data.source != recipe.data.source
    asked = standalone._questions(copied, str(file), standalone._original_source(run.path))
    assert asked == standalone._questions(recipe, str(file)) and len(asked) == 4
