"""One rule of both halves: a damaged state gives way to an older one, and one that cannot be read now stays where it is and ends the attempt."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from podwright.errors import UserError
from podwright.rundir import Ending, RunDir
from podwright.storage.base import StorageFailure
from podwright.train import attempt, saved_states
from podwright.train.emit import Emitter
from podwright.train.multimodal import checkpoints, course
from podwright.train.multimodal.processes.world import World
from podwright.train.run_storage import RunStorage

NOT_NOW = [
    PermissionError(errno.EACCES, "Permission denied", "x"),
    OSError(errno.ESTALE, "Stale file handle"),
    OSError(errno.EIO, "Input/output error"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    RuntimeError("unable to mmap 400 bytes from file <x>: Cannot allocate memory (12)"),
    ModuleNotFoundError("No module named 'numpy'"),
    RuntimeError("Weights only load failed. WeightsUnpickler error: Unsupported global: GLOBAL a.b was not an allowed global"),
    RuntimeError("UNAVAILABLE: connection reset"),
    ValueError("UNKNOWN: Error reading local file: Failed to read from file: Input/output error [os_error_code='5']"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes"),
]  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> RunStorage:
    """With states of steps 3 and 5 in PyTorch's form."""
    made = RunStorage(RunDir(tmp_path / "run"))
    for step in (3, 5):
        checkpoints.save(made, step, {"w": torch.arange(step)})
    return made


def names(storage: RunStorage) -> list[str]:
    return sorted(path.name for path in storage.run.checkpoints.iterdir())


BOTH = ["step-00000003.pt", "step-00000005.pt"]
STATES = [5, 3], "checkpoints/step-{:08}.pt".format


@pytest.mark.parametrize("fault", NOT_NOW, ids=lambda fault: f"{type(fault).__name__} {fault}"[:40])
def test_a_state_that_cannot_be_read_now_is_neither_put_aside_nor_passed_over(
    storage: RunStorage, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def load(*_: Any, **__: Any) -> Any:
        raise fault

    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(type(fault)) as raised:
        checkpoints.latest(storage)
    assert raised.value is fault and names(storage) == BOTH
    with pytest.raises(type(fault)):
        saved_states.newest(storage, *STATES, load)
    assert saved_states.why(fault, storage.run.checkpoints / BOTH[1])


def test_a_disk_that_fails_below_the_reader_is_told_by_reading_the_file_again(
    storage: RunStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's reader says of it what it says of a torn file."""
    (storage.run.checkpoints / BOTH[1]).write_bytes(b"torn")

    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(saved_states, "_read_through", stale)
        with pytest.raises(OSError, match="Stale"):
            checkpoints.latest(storage)
    assert names(storage) == BOTH
    found = checkpoints.latest(storage)
    assert found and (found.step, found.damaged) == (3, (5,)) and torch.equal(found.state["w"], torch.arange(3))
    assert names(storage) == [BOTH[0], "step-00000005.damaged"]


@pytest.mark.parametrize("half", ["jax", "torch"])
def test_a_fault_that_a_library_tells_in_words_of_its_own_is_told_by_the_files(
    storage: RunStorage, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    """TensorStore says UNKNOWN of EIO and ENOTCONN: a good state was put aside as damaged."""
    words = "UNKNOWN: Error reading local file: Failed to read from file [OS error 5: EIO Input/output error]"
    state, opened = storage.run.checkpoints / BOTH[1], Path.open
    if half == "jax":
        state.unlink()
        (state / "d").mkdir(parents=True)
        state = state / "d/3f"
        state.write_bytes(b"x")

    def failing(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == state:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *arguments, **named)

    def read(_: int) -> Any:
        raise ValueError(words)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(OSError, match="Input/output") as raised:
        saved_states.newest(storage, *STATES, read)
    assert attempt.explain(raised.value, storage.run)[1] == f"{state}: Input/output error"
    assert names(storage) == BOTH


@pytest.mark.parametrize("cut", [1, 300, 2000])
def test_a_state_that_was_cut_at_its_end_is_damaged(storage: RunStorage, cut: int) -> None:
    """PyTorch's reader seeks before the beginning of a short one, which is an OSError."""
    path = storage.run.checkpoints / BOTH[1]
    torch.save({"w": torch.arange(4096)}, path)
    path.write_bytes(path.read_bytes()[:-cut])
    newest = checkpoints.latest(storage)
    assert newest and (newest.step, newest.damaged) == (3, (5,))


@pytest.mark.parametrize("content", [b"", b"torn", b"PK\x03\x04 half"])
def test_when_all_are_damaged_nothing_is_touched_and_training_does_not_begin_again(
    storage: RunStorage, content: bytes
) -> None:
    for name in BOTH:
        (storage.run.checkpoints / name).write_bytes(content)
    with pytest.raises(UserError, match=r"can be read: 5, 3 are damaged \(its content cannot be decoded\)") as refused:
        checkpoints.latest(storage)
    where, typed = storage.run.checkpoints, storage.run.typed
    assert refused.value.fix.endswith(f"mv {where} {where}.damaged && podwright resume {typed}")
    assert names(storage) == BOTH
    shutil.move(where, f"{where}.damaged")
    assert checkpoints.latest(storage) is None, "the command leads out"


@pytest.mark.parametrize("half", ["jax", "torch"])
def test_a_folder_on_a_disk_that_is_gone_is_not_an_empty_one(storage: RunStorage, half: str, tmp_path: Path) -> None:
    ask = storage.steps if half == "jax" else lambda: checkpoints.latest(storage)
    disk = tmp_path / "disk"
    storage.run.checkpoints.rename(disk)
    assert not ask()
    storage.run.checkpoints.symlink_to(disk)
    disk.rename(tmp_path / "unmounted")
    with pytest.raises(
        UserError, match=r"checkpoints is a link to .*/disk, which is not there; mount its disk"
    ) as refused:
        ask()
    assert f"podwright resume {storage.run.typed}" in refused.value.fix
    (tmp_path / "unmounted").rename(disk)
    assert storage.steps() == [] if half == "jax" else checkpoints.latest(storage)


def test_a_state_on_a_disk_that_is_gone_is_not_a_damaged_one(storage: RunStorage, tmp_path: Path) -> None:
    state = storage.run.checkpoints / BOTH[1]
    state.unlink()
    state.symlink_to(tmp_path / "unmounted")
    with pytest.raises(UserError, match=r"00005\.pt is a link to .*/unmounted, which is not there; mount its disk"):
        checkpoints.latest(storage)
    assert names(storage) == BOTH


def test_a_storage_that_is_empty_although_checkpoints_were_saved_to_it_is_not_claimed(tmp_path: Path) -> None:
    """A mount point without its disk: the next attempt would make the folder there, and begin at step 0."""
    (tmp_path / "disk").mkdir()
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    RunStorage(run, f"{tmp_path}/disk/run").claim(1, "", False)
    Emitter(run, 1, True).event("checkpoint", step=4)
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    (tmp_path / "disk").mkdir()
    with pytest.raises(StorageFailure, match=r"the claim of .*/disk/run is gone; mount or restore the folder"):
        RunStorage(run, f"{tmp_path}/disk/run").claim(2, "", True)
    assert not list((tmp_path / "disk").iterdir())
    (tmp_path / "disk").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    RunStorage(run, f"{tmp_path}/disk/run").claim(2, "", True)


@pytest.mark.parametrize("half", ["jax", "torch"])
def test_a_folder_of_another_user_is_not_an_empty_one(
    storage: RunStorage, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Any) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(PermissionError) as raised:
        storage.steps() if half == "jax" else checkpoints.latest(storage)
    ending, what, fix = attempt.explain(raised.value, storage.run)
    assert ending is Ending.CRASHED and what == f"{storage.run.checkpoints}: Permission denied"
    assert fix.startswith("check that path") and fix.endswith(f"podwright resume {storage.run.typed}")


def test_a_disk_that_fails_is_named_with_what_to_do(storage: RunStorage) -> None:
    for number in (errno.ESTALE, errno.EIO):
        ending, what, fix = attempt.explain(OSError(number, os.strerror(number)), storage.run)
        assert ending is Ending.CRASHED and what == f"{storage.run.path}: {os.strerror(number)}"
        assert fix.startswith("check that path") and fix.endswith(f"podwright resume {storage.run.typed}")


def test_a_resume_of_phase_2_ends_instead_of_training_anew(
    storage: RunStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any, **__: Any) -> Any:
        raise NOT_NOW[0]

    monkeypatch.setattr(torch, "load", denied)
    training: Any = SimpleNamespace(recipe=SimpleNamespace(kind="multimodal"))
    with pytest.raises(PermissionError):
        course._begin(training, Emitter(storage.run, 2, True), World())
    assert names(storage) == BOTH and not storage.run.events.exists()
