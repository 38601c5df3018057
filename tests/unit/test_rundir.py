"""What to type for a run."""

import contextlib
import resource
import shlex
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.run import create, listing
from podwright.rundir import (
    RUNS,
    RunDir,
    append_jsonl,
    numbers,
    part_of,
    planned_steps,
    read_jsonl,
    recipe_of,
    write_json,
)
from podwright.watch.metrics import Tail


def test_a_run_is_typed_by_name_in_the_default_place_and_by_path_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunDir(Path("runs/r")).typed == RunDir(tmp_path / "runs/r").typed == "r"
    assert RunDir(Path("else where/r")).typed == "'else where/r'"
    assert RunDir(tmp_path / "r").typed == str(tmp_path / "r")


def test_names_that_a_run_does_not_write_are_no_attempts_and_no_processes(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    for name in ("2", "10", "007", "²", "3.old", "1 (copy)"):
        run.attempt(1).with_name(name).mkdir(parents=True)
    assert run.attempts == [2, 10]
    names = ["devices-0.csv", "devices-12.csv", "devices-1-copy.csv", "devices-02.csv"]
    assert numbers(names, lambda process: run.devices(2, process).name) == [0, 12]


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
    with pytest.raises(UserError, match=r"recipe\.json is not there, or no recipe"):
        recipe_of(run)


def test_steps_are_those_of_the_trainer_or_an_argument_of_maxtext() -> None:
    assert planned_steps({"training": {"max_steps": 7}}) == 7
    assert planned_steps({"arguments": {"steps": "10"}}) == 10 and planned_steps({"arguments": {}}) == 0


@pytest.mark.parametrize("arguments", [None, 3, ["steps"], {"steps": "many"}, {"steps": [1]}])
def test_a_stored_maxtext_recipe_with_damaged_arguments_is_one_line(tmp_path: Path, arguments: object) -> None:
    run = RunDir(tmp_path)
    write_json(run.recipe, {"kind": "maxtext", "arguments": arguments})
    with pytest.raises(UserError, match=r"recipe\.json is not there, or no recipe"):
        recipe_of(run)


def test_records_that_no_parser_takes_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n' + "[" * 100_000 + '\n{"a": ' + "1" * 5000 + '}\n{"b": 2}\n')
    assert list(read_jsonl(path)) == [{"a": 1}, {"b": 2}]
    assert Tail(path).new() == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("torn", ['{"step": 2, "lo', '{"step": 2, "text": "' + "x" * 50_000, "\x00" * 9000])
@pytest.mark.parametrize("before", ["", '{"step": 1}\n'])
def test_a_line_that_was_cut_short_goes_with_the_next_record(tmp_path: Path, before: str, torn: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(before + torn)
    tail = Tail(path)
    assert len(tail.new()) == bool(before)
    append_jsonl(path, {"step": 2})
    assert path.read_text() == before + '{"step": 2}\n'
    assert tail.new() == [{"step": 2}] and tail.damage(True) == ""


def test_a_record_without_the_end_of_its_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"step": 1}')
    append_jsonl(path, {"step": 2})
    assert list(read_jsonl(path)) == [{"step": 1}, {"step": 2}]


def test_a_full_disk_leaves_no_part_of_a_record(tmp_path: Path) -> None:
    """A limit on the size of files cuts a write short as a full disk does."""
    path = tmp_path / "records.jsonl"
    append_jsonl(path, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, before[1]))
    try:
        with pytest.raises(OSError, match="No space left") as full:
            append_jsonl(path, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.filename == str(path) and path.read_text() == '{"step": 1}\n'
    append_jsonl(path, {"step": 2})
    assert list(read_jsonl(path)) == [{"step": 1}, {"step": 2}]


def test_a_run_that_has_finished_is_trained_again_under_a_free_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunDir(Path("runs/r"))
    for ending, is_finished in (("STOPPED", False), ("FINISHED", True), ("STOPPED", True)):
        number = len(list(run.path.glob("attempts/*"))) + 1
        run.attempt(number).mkdir(parents=True)
        write_json(run.exit(number), {"ending": ending})
        assert run.is_finished == is_finished
    assert run.without_checkpoints == "podwright run runs/r/recipe.json"
    Path("runs/r-2").mkdir()
    assert run.train_again == "podwright run runs/r/recipe.json"
    assert RunDir(Path("runs/s")).without_checkpoints == "podwright resume s"


@pytest.mark.parametrize("fault", [None, UserError("a", "b", "c"), KeyboardInterrupt(), OSError("full")])
def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path, fault: BaseException | None) -> None:
    out = tmp_path / "new" / "model"
    with contextlib.ExitStack() as stack:
        if fault:
            stack.enter_context(pytest.raises(type(fault)))
        with part_of(out, f".{out.name}") as part:
            part.mkdir()
            (part / "weights").write_text("1")
            assert not out.exists()
            if fault:
                raise fault
    assert [path.name for path in out.parent.iterdir()] == ([] if fault else ["model"])
