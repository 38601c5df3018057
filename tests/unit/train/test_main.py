"""What a fault of the trainer is called, and what it says to type."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.rundir import Ending, RunDir
from podwright.train.attempt import explain
from podwright.train.verbs import VERBS

# As tensorstore says it through orbax.
DISK_FULL = (
    'RESOURCE_EXHAUSTED: Error writing "w/0.0" in OCDBT database at local file "/r/checkpoints/1.orbax-checkpoint-tmp/": '
    "Failed to write 2673028 bytes to file 4: No space left on device [os_error_code='28']"
)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(DISK_FULL),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/r/metrics.jsonl"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_no_lack_of_memory(tmp_path, error):
    ending, detail, fix = explain(error, RunDir(tmp_path / "r"))
    assert ending is Ending.CRASHED and detail == f"the disk of {tmp_path / 'r'} is full"
    assert "free some space, then type: podwright resume " in fix


def test_a_lack_of_memory_says_what_to_lower(tmp_path):
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.")
    ending, detail, fix = explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "68719476736" in detail and "lower batch_size" in fix


def test_a_gpu_without_room_says_what_to_lower(tmp_path):
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 15.77 GiB")
    ending, detail, fix = explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "2.32 GiB" in detail and "lower per_device_batch_size" in fix


def test_a_process_that_nobody_came_to_has_stalled(tmp_path: Path) -> None:
    said = (Path(__file__).parents[2] / "logs" / "gloo-timeout.log").read_text().splitlines()[-1]
    ending, detail, fix = explain(RuntimeError(said.partition("RuntimeError: ")[2]), RunDir(tmp_path / "r"))
    assert ending == Ending.STALLED and "did not come to a collective (RuntimeError: [/__w/" in detail
    assert fix == f"compare the logs of all, then type: podwright resume {tmp_path / 'r'}"


def _drawn(folder: Path, *more: str, train: int = 2, test: int = 1) -> dict[str, Any]:
    return VERBS["data"](
        ["draw", str(folder), "--num-train", str(train), "--num-test", str(test), "--seed", "0", *more]
    )


@pytest.mark.parametrize("more", [(), ("--pairs",)])
@pytest.mark.parametrize("own", [("train.jsonl",), ("train.jsonl", "val.jsonl"), ("notes.txt",)])
def test_cats_are_not_drawn_over_what_is_there(tmp_path: Path, own: tuple[str, ...], more: tuple[str, ...]) -> None:
    for name in own:
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        UserError, match=r"is there already and not empty; name a directory that does not exist yet or is empty"
    ):
        _drawn(tmp_path, *more)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(own, "mine")
    with pytest.raises(UserError, match=f"{own[0]} is there already"):
        _drawn(tmp_path / own[0], *more)


def test_as_many_cats_are_drawn_as_were_asked_for(tmp_path: Path) -> None:
    for wrong, said in (
        ({"train": -3}, "--num-train -3 is less than 1"),
        ({"train": 0}, "-train 0 is"),
        ({"test": -1}, "-test -1 is less than 0"),
    ):
        with pytest.raises(UserError, match=f"{said}.*; type --num-t.* 100"):
            _drawn(tmp_path / "new", **wrong)
    (tmp_path / "empty").mkdir()
    for folder in ("new", "empty"):
        assert _drawn(tmp_path / folder, test=0) == {"out": str(tmp_path / folder), "train": 2, "val": 0}
        assert sorted(p.name for p in (tmp_path / folder).glob("*.jsonl")) == ["train.jsonl"]
