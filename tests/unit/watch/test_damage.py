"""What of a run cannot be read is named with its file, and a run without damage has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe.load import fingerprint_of
from podwright.rundir import DEVICE_COLUMNS, RunDir, append_jsonl, write_json
from podwright.watch import damage
from podwright.watch.metrics import Progress, samples_of

RECIPE = {"kind": "grpo", "training": {"max_steps": 2}}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A finished run without damage."""
    run = RunDir(tmp_path / "r")
    write_json(run.exit(1), {"ending": "FINISHED", "step": 2})
    for step in (1, 2):
        append_jsonl(run.metrics, {"stage": "grpo", "step": step, "time": float(step)})
    for when in ("before", "after"):
        append_jsonl(run.events, {"event": "evaluation", "when": when, "step": 2, "time": 3.0})
        append_jsonl(run.samples, {"when": when, "question": "1+1"})
        write_json(run.flags(when), [True])
    return run


def damages(run: RunDir, ended: bool = True) -> list[str]:
    return of_recipe(run, RECIPE, ended)


def of_recipe(run: RunDir, recipe: dict[str, object], ended: bool = True) -> list[str]:
    progress, samples = Progress(run, recipe), samples_of(run)
    progress.update()
    samples.new()
    return damage.of_run(run, progress, samples, ended)


def test_a_run_without_damage_has_none(run: RunDir) -> None:
    assert damages(run) == []


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "samples.jsonl"])
@pytest.mark.parametrize("garbage", [b"\xff\x00garbage\n", b"[1, 2]\n", b'{"step": "x"}\n', b"[" * 100_000 + b"\n"])
def test_a_line_that_is_no_record_is_counted(run: RunDir, name: str, garbage: bytes) -> None:
    with (run.path / name).open("ab") as f:
        f.write(garbage)
    (sentence,) = damages(run)
    assert sentence.startswith(f"{run.path / name} is damaged (lines that cannot be read: 1 of 3), so figures"), (
        sentence
    )


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "samples.jsonl"])
def test_a_file_that_is_cut_off_is_damaged_once_the_run_has_ended(run: RunDir, name: str) -> None:
    path = run.path / name
    path.write_bytes(path.read_bytes()[:-9])
    (sentence,) = damages(run)
    assert f"{path} is damaged (lines that cannot be read: 1 of 2)" in sentence
    run.exit(1).unlink()
    assert damages(run, ended=False) == [], "the line may be being written"


@pytest.mark.parametrize("content", ["", '{"event": "phase", "phase": "loading", "time": 1.0}\n'])
def test_an_evaluation_without_its_record_is_damage(run: RunDir, content: str) -> None:
    run.events.write_text(content)
    (sentence,) = damages(run)
    assert (
        "events.jsonl is damaged (it lacks the evaluation of which evaluations/before.json has the answers)" in sentence
    )


def test_steps_that_end_before_the_run_are_damage(run: RunDir) -> None:
    run.metrics.write_text(run.metrics.read_text().splitlines(keepends=True)[0])
    (sentence,) = damages(run)
    assert "metrics.jsonl is damaged (its last step is 1, and the run finished at step 2)" in sentence


def test_an_exit_record_that_cannot_be_read_is_damage(run: RunDir) -> None:
    run.exit(1).write_text(json.dumps({"ending": "FINISHED"})[:-5])
    (sentence,) = damages(run)
    assert "attempts/1/exit.json is damaged (it cannot be read)" in sentence


@pytest.mark.parametrize("content", ["", "\0{", "7", "[1, 0]", '{"a": true}', "[" * 100_000], ids=range(6))
def test_answers_of_an_evaluation_that_cannot_be_read_are_damage(run: RunDir, content: str) -> None:
    run.flags("before").write_text(content)
    (sentence,) = damages(run)
    assert sentence.startswith(f"{run.flags('before')} is damaged (it is no list of true and false), so figures")
    assert run.read_flags("before") is None and run.read_flags("after") == [True]


HEADER = ",".join(DEVICE_COLUMNS) + "\r\n"
SAMPLE = "1.0,cpu,50,1,2,,\r\n"


@pytest.mark.parametrize(
    ("content", "ended", "says"),
    [
        (HEADER + SAMPLE, True, ""),
        (HEADER + SAMPLE + SAMPLE[:5], False, ""),
        (HEADER + SAMPLE + SAMPLE[:5], True, "lines that cannot be read: 1 of 3"),
        (HEADER + "\0\0\r\n" + SAMPLE, False, "lines that cannot be read: 1 of 3"),
        (HEADER + SAMPLE[:-2] + SAMPLE, True, "lines that cannot be read: 1 of 2"),
        ("garbage\n", False, "lines that cannot be read: 1 of 1"),
        ("", True, ""),
    ],
)
def test_samples_of_devices_that_cannot_be_read_are_damage(run: RunDir, content: str, ended: bool, says: str) -> None:
    run.devices(1, 0).write_bytes(content.encode())
    sentences = damages(run, ended)
    assert len(sentences) == bool(says)
    assert not says or sentences[0].startswith(f"{run.devices(1, 0)} is damaged ({says}), so")


def test_a_storage_json_that_cannot_be_read_is_damage(run: RunDir) -> None:
    run.storage.write_text("{")
    (sentence,) = damages(run)
    assert sentence.startswith(f"{run.storage} is damaged: it does not name the storage of the run; restore it")


@pytest.mark.parametrize("change", [{"seed": 99}, {"kind": "pretrain"}, {"unknown": 1}, {"training": {"max_steps": 3}}])
def test_a_recipe_that_was_changed_after_the_start_is_named(run: RunDir, change: dict[str, object]) -> None:
    write_json(run.recipe, RECIPE)
    append_jsonl(run.journal, {"event": "created", "time": 1.0, "fingerprint": fingerprint_of(RECIPE)})
    assert damages(run) == []
    write_json(run.recipe, RECIPE | change)
    (sentence,) = of_recipe(run, RECIPE | change)
    assert sentence.startswith(f"{run.recipe} was changed since the run began (fingerprint "), sentence
    with pytest.raises(
        UserError, match=r"; restore it from a copy of the run, or start a run of it: type podwright run"
    ):
        damage.require_recipe(run)
