"""Runs get names of their own, and one that is in use is left alone."""

import errno
import json
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.run import create, journal, listing
from podwright.rundir import RunDir
from podwright.targets import ResolvedTarget
from podwright.targets.settings.local import LocalSettings
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import gke

RECIPE = load("qwen3-tiny-arithmetic-grpo")


def test_names_are_unique_by_themselves(tmp_path: Path) -> None:
    first = create.choose_name([tmp_path], "a", None)
    (tmp_path / first).mkdir()
    second = create.choose_name([tmp_path], "a", None)
    assert first.startswith("a-") and second != first


def test_a_name_in_use_says_what_to_type(tmp_path: Path) -> None:
    create.create(tmp_path / "r", RECIPE, "local", {})
    with pytest.raises(UserError, match=r"run name 'r' is in use: .*; type `podwright resume .*/r`"):
        create.choose_name([tmp_path], "a", "r")


def test_the_name_of_something_else_that_is_there_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("notes", "file", "link"):
        with pytest.raises(UserError, match=f"is in use: {tmp_path}/{name} exists"):
            create.choose_name([tmp_path], "a", name)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".hidden", "a b"])
def test_a_name_must_be_one_of_a_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a directory; use letters"):
        create.choose_name([tmp_path], "a", name)


def test_the_steps_to_trace_travel_with_the_run(tmp_path: Path) -> None:
    assert create.steps("7", RECIPE) == [7]
    run = create.create(tmp_path / "r", RECIPE, "local", {}, create.steps("7-9", RECIPE))
    assert json.loads(run.profiled.read_text()) == [7, 8, 9]
    assert not create.create(tmp_path / "s", RECIPE, "local", {}).profiled.exists()


def test_the_slice_of_a_run_is_fixed_when_it_is_created(tmp_path: Path) -> None:
    assert journal.read(create.create(tmp_path / "r", RECIPE, "local", {}, slice_="2x v6e-16")).slice == "2x v6e-16"
    assert journal.read(create.create(tmp_path / "s", RECIPE, "local", {})).slice == ""


def test_a_name_taken_meanwhile_is_left_alone(tmp_path: Path) -> None:
    run = create.create(tmp_path / "r", RECIPE, "local", {})
    before = run.journal.read_text()
    with pytest.raises(UserError, match="in use"):
        create.create(tmp_path / "r", RECIPE, "cpu-2", {})
    assert run.journal.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_a_full_disk_leaves_no_half_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: RunDir, event: str, **fields: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(run.journal))

    monkeypatch.setattr(journal, "append", full)
    with pytest.raises(OSError):
        create.create(tmp_path / "r", RECIPE, "local", {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_hold_no_runs_is_refused_before_anything_is_planned_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/below"):
        with pytest.raises(UserError, match="is no directory that can be written"):
            create.choose_name([tmp_path / folder], "recipe", None)
        with pytest.raises(UserError, match="is no directory that can be written"):
            create.seeded(RECIPE, "good", "0-1", [tmp_path / folder])
    with pytest.raises(UserError, match="is not a directory; type --runs"):
        listing.run_dirs(tmp_path / "file")
    assert create.choose_name([tmp_path / "new" / "below"], "recipe", "a") == "a"
    of_target = [tmp_path / "new", tmp_path / "file"]
    assert create.choose_name(of_target, "recipe", "a") == "a", "the check of a target names its key runs"
    assert list(create.seeded(RECIPE, "a", "1", of_target)) == ["a-seed-1"]
    assert not (tmp_path / "new").exists()


def test_of_several_seeds_no_name_may_be_in_use(tmp_path: Path) -> None:
    create.create(tmp_path / "good-seed-1", RECIPE, "local", {})
    with pytest.raises(UserError, match="run name 'good-seed-1' is in use"):
        create.seeded(RECIPE, "good", "0-2", [tmp_path])
    assert list(create.seeded(RECIPE, "good-3", "0-2", [tmp_path])) == [f"good-3-seed-{n}" for n in range(3)]
    assert list(create.seeded(RECIPE, "good", "0,2", [tmp_path])) == ["good-seed-0", "good-seed-2"]


LOCAL, PODS = ResolvedTarget("local", None, LocalSettings()), ResolvedTarget("pod", None, gke())


def test_a_recipe_starts_on_targets_for_its_kind_alone() -> None:
    create.require_startable(RECIPE, LOCAL)
    create.require_startable(RECIPE, PODS)
    create.require_startable(example(), PODS)
    with pytest.raises(
        UserError, match="of kind maxtext, which target local cannot start; type --on with a target of GKE"
    ):
        create.require_startable(example(), LOCAL)
    with pytest.raises(
        UserError, match="of kind contrastive, which target pod cannot start; type --on with a target that is not"
    ):
        create.require_startable(load("phase1-tiny"), PODS)


def test_a_recipe_without_variables_takes_no_values() -> None:
    assert create.prepared(RECIPE, LOCAL, {}).kept is RECIPE
    with pytest.raises(UserError, match="has no variable REGION; leave it out"):
        create.prepared(RECIPE, LOCAL, {"REGION": "x"})


def test_a_recipe_without_a_seed_is_not_run_with_several(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--seeds 0,1: a recipe of kind maxtext has no seed; leave --seeds out"):
        create.seeded(example(), "r", "0,1", [tmp_path])


def test_typed_values_stay_with_the_run_and_those_of_the_target_are_looked_up_by_each_attempt() -> None:
    recipe = example(environment={"REGION": "${REGION}"})
    ready = create.prepared(recipe, PODS, {"REGION": "here"})
    assert ready.kept.variables == ("WORKLOAD_IMAGE", "BASE_OUTPUT_DIR", "WORKLOAD_NAME")
    assert ready.planned.variables == ("WORKLOAD_NAME",) and ready.added["profiler"] == "xplane"
    with pytest.raises(UserError, match="WORKLOAD_NAME is named after the run; type --name mine in its place"):
        create.prepared(recipe, PODS, {"REGION": "here", "WORKLOAD_NAME": "mine"})
    without = ResolvedTarget("pod", None, gke(image=""))
    with pytest.raises(UserError, match="has no value of WORKLOAD_IMAGE; set image in the file of target pod"):
        create.prepared(example(), without, {})
    unparsed = example(launch=example().launch.model_dump() | {"after": "# | tee log"})
    with pytest.raises(UserError, match=r"bash cannot parse the container's command: .*; correct launch.setup"):
        create.prepared(unparsed, PODS, {})
    with pytest.raises(UserError, match="the recipe has no value of REGION; type REGION=VALUE"):
        create.prepared(recipe, PODS, {})
    with pytest.raises(UserError, match="machine_type=tpu7x-standard-1t is not for tpu7x-4x4x4"):
        create.prepared(example(), ResolvedTarget("pod", None, gke(machine_type="tpu7x-standard-1t")), {})
