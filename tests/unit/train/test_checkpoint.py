"""Checkpoints that were really damaged: an older one is taken, and a recipe that does not fit is not taken for damage."""

import gc
import shutil
import sys
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from podwright.errors import UserError
from podwright.rundir import RunDir, write_json
from podwright.train import checkpoint
from podwright.train.checkpoint import Checkpoints
from podwright.train.grpo import program
from podwright.train.run_storage import RunStorage
from tests.unit.train import small


@pytest.fixture(scope="module")
def setup():
    return small.setup()


@pytest.fixture(scope="module")
def abstract(setup):
    return program.abstract_state(setup)


@pytest.fixture(scope="module")
def two(setup, tmp_path_factory):
    """Checkpoints of steps 2 and 4, whose weights differ."""
    path = tmp_path_factory.mktemp("two") / "checkpoints"
    made = opened(path, 2)
    for step in (2, 4):
        state = program.new_state(setup, small.params(setup, seed=step))
        made.save(step, state, {"step": step})
    made.close()
    return path


@pytest.fixture
def saved(two, tmp_path):
    return shutil.copytree(two, tmp_path / "checkpoints")


def opened(path, keep):
    return Checkpoints(RunStorage(RunDir(path.parent)), keep)


def largest(folder):
    return max((f for f in folder.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


def damage(folder, how):
    if how == "truncated data":
        file = largest(folder)
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif how == "overwritten data":
        largest(folder).write_bytes(bytes(largest(folder).stat().st_size))
    elif how == "no data":
        largest(folder).unlink()
    elif how == "no data at all":
        for data in (folder / "state/d", *folder.glob("state/ocdbt.process_*")):
            shutil.rmtree(data, ignore_errors=True)
    elif how == "no index":
        next(folder.rglob("manifest.ocdbt")).unlink()
    elif how == "no metadata":
        (folder / "state/_METADATA").unlink()
    elif how == "empty cursor":
        (folder / "cursor/metadata").write_text("")
    else:
        shutil.rmtree(folder / "state")


WAYS = [
    "truncated data",
    "overwritten data",
    "no data",
    "no data at all",
    "no index",
    "no metadata",
    "empty cursor",
    "no state",
]


def test_the_newest_of_whole_checkpoints_is_restored(setup, abstract, saved):
    found = opened(saved, 2).restore(abstract)
    assert (found.step, found.cursor, found.damaged) == (4, {"step": 4}, ())
    jax.tree.map(np.testing.assert_array_equal, found.state.params, small.params(setup, seed=4))


@pytest.mark.brief(2)
@pytest.mark.parametrize("how", WAYS)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(setup, abstract, saved, how):
    damage(saved / "4", how)
    checkpoints = opened(saved, 2)
    found = checkpoints.restore(abstract)
    assert (found.step, found.cursor, found.damaged) == (2, {"step": 2}, (4,))
    jax.tree.map(np.testing.assert_array_equal, found.state.params, small.params(setup, seed=2))
    # what comes next can be saved, even before the damaged step is reached again
    for step in (3, 4):
        checkpoints.save(step, found.state, {"step": step})
    checkpoints.close()
    again = opened(saved, 2).restore(abstract)
    assert (again.step, again.damaged) == (4, ())
    assert (saved / "4.damaged").is_dir() and not (saved / "2").exists()


@pytest.mark.brief(2)
@pytest.mark.parametrize("how", WAYS)
def test_reads_that_a_failed_one_leaves_behind_print_nothing(abstract, saved, how, monkeypatch, capfd):
    unraised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda fault: unraised.append(str(fault.exc_value)))
    damage(saved / "4", how)
    assert opened(saved, None).restore(abstract).step == 2
    gc.collect()
    time.sleep(0.5)
    assert not unraised and "Event loop is closed" not in capfd.readouterr().err


def test_when_all_are_damaged_it_is_one_line_and_nothing_is_touched(abstract, saved):
    damage(saved / "2", "no index")
    damage(saved / "4", "truncated data")
    with pytest.raises(UserError, match=r"can be read: 4, 2 are damaged \((a file of it is|its content can)") as e:
        opened(saved, 2).restore(abstract)
    assert "\n" not in str(e.value) and "Error:" not in str(e.value)
    assert sorted(p.name for p in saved.iterdir()) == ["2", "4"]
    run = RunDir(saved.parent)
    assert e.value.fix.endswith(f"mv {saved} {saved}.damaged && podwright resume {run.typed}")
    run.attempt(1).mkdir(parents=True)
    write_json(run.exit(1), {"ending": "FINISHED"})  # `resume` trains no more
    with pytest.raises(UserError) as finished:
        opened(saved, 2).restore(abstract)
    assert finished.value.code == e.value.code == "no-checkpoint"
    assert finished.value.fix.endswith(f"type podwright run {run.recipe}")


@pytest.mark.parametrize(
    "other", [small.Qwen3Dims(32, 64, 3, 4, 2, 16, 96, True), small.Qwen3Dims(32, 64, 2, 4, 2, 16, 96, False)]
)
@pytest.mark.parametrize("part", [False, True])
def test_a_checkpoint_of_another_recipe_is_not_taken_for_damage(setup, saved, other, part):
    wanted = program.abstract_state(small.setup(dims=other))
    with pytest.raises(
        UserError, match=r"the checkpoint of step 4 does not fit this recipe .* use the recipe it was made with"
    ):
        opened(saved, 2).restore({"params": wanted.params} if part else wanted, part)
    assert (saved / "4").is_dir()


@pytest.mark.parametrize("how", ["truncated data", "no index", "overwritten data"])
def test_damaged_weights_of_the_start_are_one_line(setup, abstract, tmp_path, how):
    storage = RunStorage(RunDir(tmp_path))
    checkpoint.save_weights(storage, small.params(setup))
    jax.tree.map(
        np.testing.assert_array_equal,
        checkpoint.load_weights(storage, abstract.params),
        small.params(setup),
    )
    damage(tmp_path / "start", how)
    with pytest.raises(UserError, match=r"the weights in .*/start cannot be read .*; bring them back from a copy") as e:
        checkpoint.load_weights(storage, abstract.params)
    assert "\n" not in str(e.value)


def test_a_part_is_read_without_the_rest_and_a_reader_moves_nothing(setup, abstract, saved):
    damage(saved / "4", "no index")
    found = opened(saved, None).restore({"params": abstract.params}, part=True)
    assert (found.step, found.damaged, list(found.state)) == (2, (4,), ["params"])
    jax.tree.map(np.testing.assert_array_equal, found.state["params"], small.params(setup, seed=2))
    assert (saved / "4").is_dir()


def test_what_is_not_the_checkpoints_fault_is_not_damage(abstract, saved, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes")

    checkpoints = opened(saved, 2)
    monkeypatch.setattr(ocp.PyTreeCheckpointHandler, "restore", full)
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        checkpoints.restore(abstract)
    assert opened(saved, 2).latest() == 4
