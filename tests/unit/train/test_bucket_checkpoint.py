"""Checkpoints in a bucket that fails: a failure is never taken for damage, and damage is put aside there as on a disk."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lab.bucket import EmulatedBucket
from podwright.rundir import Ending, RunDir, append_jsonl, write_json
from podwright.storage import base, open_storage
from podwright.storage.claim import Claim, ClaimLost
from podwright.train import attempt
from podwright.train.checkpoint import Checkpoints
from podwright.train.run_storage import RunStorage

SHARDING = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("fsdp",)), PartitionSpec("fsdp"))
ABSTRACT = {"w": jax.ShapeDtypeStruct((64, 8), np.float32, sharding=SHARDING)}


@pytest.fixture(scope="module")
def bucket():
    """One for the process: tensorstore reads the address once."""
    with EmulatedBucket() as made, pytest.MonkeyPatch.context() as patched:
        for name, value in made.environment.items():
            patched.setenv(name, value)
        yield made


@pytest.fixture
def run(bucket, tmp_path, monkeypatch):
    """With checkpoints of steps 2 and 4."""
    monkeypatch.setattr(base, "PATIENCE_S", 3.0)
    bucket.faults.status = 0
    run = RunDir(tmp_path / "r")
    write_json(run.storage, {"url": f"{bucket.url}/{tmp_path.name}"})
    with Checkpoints(claimed(run, 1), 2) as checkpoints:
        for step in (2, 4):
            append_jsonl(run.metrics, {"stage": "grpo", "step": step})
            checkpoints.save(step, state(step), {"step": step})
    return run


def claimed(run, number):
    storage = RunStorage.of(run)
    storage.claim(number, "", True)
    return storage


def state(step):
    return {"w": jax.device_put(np.full((64, 8), step, np.float32), SHARDING)}


def names(bucket, run):
    prefix = f"{run.storage_url.removeprefix(bucket.url)[1:]}/"
    return [name.removeprefix(prefix) for name in bucket.names(prefix)]


@pytest.mark.parametrize("status", [pytest.param(503, marks=pytest.mark.long), 403])
def test_a_lasting_failure_ends_the_attempt_and_moves_nothing(bucket, run, status):
    before = names(bucket, run)
    bucket.faults.only = lambda r: r.method == "GET" and "checkpoints/4/state" in r.object_name
    bucket.faults.status = status
    with pytest.raises(Exception) as e:
        Checkpoints(RunStorage.of(run), 2).restore(ABSTRACT)
    ending, detail, fix = attempt.explain(e.value, run)
    assert ending is Ending.STORAGE_UNREACHABLE and run.storage_url in detail and "podwright resume" in fix
    bucket.faults.status = 0
    assert names(bucket, run) == before
    found = Checkpoints(RunStorage.of(run), 2).restore(ABSTRACT)
    assert (found.step, found.damaged) == (4, ()) and (np.asarray(found.state["w"]) == 4).all()


def test_damaged_bytes_are_put_aside_and_the_step_can_be_saved_again(bucket, run):
    prefix = run.storage_url.removeprefix(bucket.url)[1:]
    for name in names(bucket, run):
        if name.startswith("checkpoints/4/state/") and "/d/" in name:
            data = bucket.content(f"{prefix}/{name}")
            bucket.put(f"{prefix}/{name}", data[: len(data) // 2])
    with Checkpoints(claimed(run, 2), 2) as checkpoints:
        found = checkpoints.restore(ABSTRACT)
        assert (found.step, found.damaged) == (2, (4,))
        for step in (3, 4):
            checkpoints.save(step, state(step), {"step": step})
    assert RunStorage.of(run).steps() == [3, 4]
    assert "checkpoints/4.damaged/state/_METADATA" in names(bucket, run)


def test_what_a_killed_save_has_left_does_not_count_and_is_replaced(bucket, run):
    storage = open_storage(run.storage_url)
    storage.delete("checkpoints/4/commit_success.txt")
    with Checkpoints(claimed(run, 2), 2) as checkpoints:
        assert checkpoints.latest() == 2
        checkpoints.save(4, state(4), {"step": 4})
    assert Checkpoints(RunStorage.of(run), None).restore(ABSTRACT).step == 4


def test_records_of_a_step_are_in_the_storage_before_its_checkpoint_counts(bucket, run):
    prefix = run.storage_url.removeprefix(bucket.url)[1:]
    written = [r.object_name.removeprefix(f"{prefix}/") for r in bucket.log if r.method == "POST"]
    segments = [name for name in written if name.startswith("records/")]
    for step in (2, 4):
        earlier = [s for s in segments if written.index(s) < written.index(f"checkpoints/{step}/commit_success.txt")]
        contents = [json.loads(bucket.content(f"{prefix}/{name}"))["grown"] for name in earlier]
        assert any(f'"step": {step}' in part["metrics.jsonl"]["text"] for part in contents if part)


def test_a_save_is_refused_that_begins_when_another_attempt_has_the_storage(bucket, run):
    storage = claimed(run, 2)
    claimed(run, 3)
    before = names(bucket, run)
    with Checkpoints(storage, 2) as checkpoints, pytest.raises(ClaimLost):
        checkpoints.save(6, state(6), {"step": 6})
    assert names(bucket, run) == before


def test_a_commit_is_refused_that_another_attempt_overtook_while_it_was_written(bucket, run):
    storage = claimed(run, 2)
    publish, late = storage.publish, []

    def overtaken():
        late.append(Claim.take(open_storage(run.storage_url), 3, takeover=True))
        publish()

    storage.publish = overtaken
    checkpoints = Checkpoints(storage, 2)
    checkpoints.save(6, state(6), {"step": 6})
    with pytest.raises(ClaimLost):
        checkpoints.close()
    assert late and RunStorage.of(run).steps() == [2, 4]
