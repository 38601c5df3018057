"""What a fault of the trainer is called, and what it says to type."""

import errno
import os
from pathlib import Path

import pytest

from podwright.rundir import Ending, RunDir
from podwright.train.__main__ import _explain

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
    ending, detail, fix = _explain(error, RunDir(tmp_path / "r"))
    assert ending is Ending.CRASHED and detail == f"the disk of {tmp_path / 'r'} is full"
    assert "free some space, then type: podwright resume " in fix


def test_a_lack_of_memory_says_what_to_lower(tmp_path):
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.")
    ending, detail, fix = _explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "68719476736" in detail and "lower batch_size" in fix


def test_a_gpu_without_room_says_what_to_lower(tmp_path):
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 15.77 GiB")
    ending, detail, fix = _explain(error, RunDir(tmp_path))
    assert ending is Ending.OUT_OF_MEMORY and "2.32 GiB" in detail and "lower per_device_batch_size" in fix


def test_a_process_that_nobody_came_to_has_stalled(tmp_path: Path) -> None:
    said = (Path(__file__).parents[2] / "logs" / "gloo-timeout.log").read_text().splitlines()[-1]
    ending, detail, fix = _explain(RuntimeError(said.partition("RuntimeError: ")[2]), RunDir(tmp_path / "r"))
    assert ending == Ending.STALLED and "did not come to a collective (RuntimeError: [/__w/" in detail
    assert fix == f"compare the logs of all, then type: podwright resume {tmp_path / 'r'}"
