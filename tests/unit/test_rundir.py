"""What to type for a run."""

import shlex
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.run import create, listing
from podwright.rundir import RUNS, RunDir, read_jsonl, recipe_of, write_json


def test_a_run_is_typed_by_name_in_the_default_place_and_by_path_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunDir(Path("runs/r")).typed == RunDir(tmp_path / "runs/r").typed == "r"
    assert RunDir(Path("else where/r")).typed == "'else where/r'"
    assert RunDir(tmp_path / "r").typed == str(tmp_path / "r")


def test_what_cannot_be_put_in_its_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_json(tmp_path / "taken", {})
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("folder", ["runs", "else where", "/"])
def test_what_is_typed_finds_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "absolute" / "r" if folder == "/" else Path(folder) / "r"
    path.parent.mkdir()
    run = create.create(path, load("qwen3-tiny-arithmetic-grpo"), "local", {})
    (typed,) = shlex.split(run.typed)
    assert listing.find(RUNS, typed).path.resolve() == path.resolve()


def test_lines_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    records = tmp_path / "events.jsonl"
    records.write_bytes(b'{"a": 1}\n\xff\xfe\n{"b": 2}\n')
    assert list(read_jsonl(records)) == [{"a": 1}, {"b": 2}]


def test_a_stored_recipe_with_a_wrong_number_of_steps_is_damaged(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_json(run.recipe, {"kind": "grpo", "training": {"max_steps": "many"}})
    with pytest.raises(UserError, match=r"recipe.json cannot be read"):
        recipe_of(run)
