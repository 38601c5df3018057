"""Which of a run's saved states a resume takes: the newest that can be read. Both halves of training ask here.

A state is damaged when bytes of it are wrong or missing. One that cannot be read now (no permission, no disk, no memory, no storage) is not:
it stays where it is and ends the attempt, for an older one in its place would throw good steps away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, NamedTuple, NoReturn, TypeVar

from podwright.errors import UserError, message_of
from podwright.storage.base import cause_of
from podwright.train.run_storage import RunStorage

T = TypeVar("T")
# Signs of a fault that is not the state's, in the words of orbax, of the storage's clients, of PyTorch and of the C library.
_NOT_DAMAGE = re.compile(
    "RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED"
    "|os_error_code='(?!2')"  # of TensorStore; 2: no such file
    "|(?i:can't allocate memory|cannot allocate memory|not enough memory|out of memory|bad_alloc|unsupported (global|class))"
)


class Newest(NamedTuple, Generic[T]):
    step: int
    state: T
    damaged: tuple[int, ...]
    """newer steps that could not be read"""
    cursor: dict[str, int] = {}  # noqa: RUF012
    """in JAX, the host's part: how far the data and the random numbers have been used"""

    @property
    def notices(self) -> list[str]:
        """What to say of states that were put aside."""
        then = f"and was put aside; this resumes from step {self.step}"
        return [f"the checkpoint of step {step} is damaged {then}" for step in self.damaged]


def newest(
    storage: RunStorage,
    steps: Iterable[int],
    name: Callable[[int], str],
    read: Callable[[int], T],
    anywhere: Callable[[bool], bool] = lambda here: here,
) -> Newest[T] | None:
    """The state of the first of `steps` that `read` gives; None without steps. `name`: of the file or folder of a step.

    `anywhere`: whether something holds in any process, if several read. UserError when all are damaged. What is no fault of the bytes is
    raised as it came.
    """
    damaged: list[int] = []
    first = ""
    for step in steps:
        state: T | None = None
        fault = ""
        try:
            state = read(step)
        except Exception as e:
            fault = damage(e, storage.path(name(step)))
            # In the log of the attempt: the cause, for whoever restores the files.
            print(f"checkpoint {step}: {type(e).__name__}: {message_of(e, 300)}", flush=True)
        if not anywhere(state is None):
            assert state is not None
            return Newest(step, state, tuple(damaged))
        first = first or fault
        damaged.append(step)
    if damaged:
        raise _none_left(storage, damaged, first)
    return None


def damage(e: Exception, path: Path | None) -> str:
    """Why a read of the file or folder `path` failed; raises what is no fault of the bytes.

    The libraries use many types, bare Exception among them, and tell of a disk that fails in words of their own. So its files are read once
    more here, unless they are in a bucket (None).
    """
    if path and not isinstance(e, UserError):
        _read_through(path)
    unread = isinstance(e, OSError) and not isinstance(e, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    if isinstance(e, OSError) and e.errno == errno.EINVAL:  # of a short file, for a place before its beginning
        unread = False
    if unread or isinstance(e, MemoryError | ImportError | UserError) or cause_of(e) or _NOT_DAMAGE.search(str(e)):
        raise e
    missing = isinstance(e, OSError) or "NOT_FOUND" in str(e)
    return "a file of it is missing" if missing else "its content cannot be decoded"


def _read_through(path: Path) -> None:
    """OSError, with its name, for a file that cannot be read to its end."""

    def refuse(e: OSError) -> NoReturn:
        raise e

    files = [path]
    if path.is_dir():
        files = [Path(folder, name) for folder, _, names in os.walk(path, onerror=refuse) for name in names]
    for file in files:
        try:
            with contextlib.suppress(FileNotFoundError), file.open("rb") as f:
                while f.read(1 << 24):
                    pass
        except OSError as e:
            raise OSError(e.errno, e.strerror, str(file)) from e


def why(e: Exception, path: Path) -> str:
    """In words, what is wrong with bytes that cannot be read, or with reading them."""
    try:
        return damage(e, path)
    except OSError as unread_now:
        return f"{unread_now.strerror or unread_now}"
    except Exception as unread_now:
        return f"{type(unread_now).__name__}: {message_of(unread_now, 60)}"


def _none_left(storage: RunStorage, damaged: list[int], fault: str) -> UserError:
    where, run = f"{storage.root}/checkpoints", storage.run
    aside = f"mv {shlex.quote(where)} {shlex.quote(where + '.damaged')}"
    if storage.in_bucket:
        aside = f"gcloud storage rm -r {where}"
    begin = run.train_again if run.is_finished else f"{aside} && podwright resume {run.typed}"
    listed = f"{', '.join(map(str, damaged))} {'are' if len(damaged) > 1 else 'is'} damaged ({fault})"
    return UserError(
        f"no checkpoint in {where} can be read: {listed}",
        f"bring one back from a copy, or train from step 0: type {begin}",
        "no-checkpoint",
    )
