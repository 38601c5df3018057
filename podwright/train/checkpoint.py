"""Whole training states by step: asynchronous, atomic, the newest few kept (orbax); and which of them can still be read."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

import jax

from podwright.errors import UserError
from podwright.storage.base import cause_of
from podwright.train import gathered, trees
from podwright.train.mesh import anywhere, from_first, together
from podwright.train.run_storage import RunStorage

Tree = Any
KEPT = 2  # the newest, and one more in case that one is damaged
# Signs of a fault that is not the checkpoint's: falling back to an older one would throw good steps away.
_NOT_DAMAGE = re.compile(
    "RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED"
)


class Restored(NamedTuple):
    step: int
    state: Tree
    cursor: dict[str, int]
    """the host's part: how far the data and the random numbers have been used"""
    damaged: tuple[int, ...]
    """newer steps that could not be read"""


class Checkpoints:
    """States by step in `storage`; `keep` of them, or None to read only."""

    def __init__(self, storage: RunStorage, keep: int | None):
        self._storage = storage
        self._keep = keep
        self._writer = trees.TreeWriter(storage, self._drop_old) if keep else None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """Waits for what is being written, unless another process that has a part in it may be gone."""
        if kind is None or issubclass(kind, UserError) or jax.process_count() == 1:
            self.close()

    def latest(self) -> int | None:
        """The newest step that can be restored; a save that was started is waited for."""
        if self._writer:
            self._writer.wait()
        return from_first(lambda: max(self._storage.steps(), default=None))

    def save(self, step: int, state: Tree, cursor: dict[str, int]) -> None:
        """Starts the save and returns; the step counts when it is whole. ClaimLost when another attempt has the storage."""
        assert self._writer
        self._writer.wait()
        if from_first(lambda: self._begin(step)):
            self._writer.write(_name(step), state, cursor)

    def _begin(self, step: int) -> bool:
        if step in self._storage.steps():
            return False
        self._storage.check()
        self._storage.clear(_name(step))  # what an attempt that was killed has left in a bucket
        return True

    def _drop_old(self) -> None:
        assert self._keep
        for step in self._storage.steps()[: -self._keep]:
            self._storage.clear(_name(step))

    def restore(self, abstract: Tree, part: bool = False) -> Restored:
        """The newest state that can be read, under the shardings of `abstract`; the mesh may differ from the one it was saved on.

        `part`: `abstract` names only what is wanted of the state. Damaged newer states are put aside as STEP.damaged, so that
        training can save under their names again.
        """
        damaged: list[int] = []
        first_fault = ""
        for step in from_first(lambda: self._storage.steps()[::-1]):
            with together():
                self._refuse_misfit(step, abstract, part)
            stored, fault = self._read(step, abstract, part)
            if not anywhere(stored is None):
                self._put_aside(damaged)
                return self._restored(step, stored, abstract, tuple(damaged))
            first_fault = first_fault or fault
            damaged.append(step)
        where, run = f"{self._storage.root}/checkpoints", self._storage.run
        aside = f"mv {shlex.quote(where)} {shlex.quote(where + '.damaged')}"
        if self._storage.in_bucket:
            aside = f"gcloud storage rm -r {where}"
        begin = run.train_again if run.is_finished else f"{aside} && podwright resume {run.typed}"
        listed = f"{', '.join(map(str, damaged))} {'are' if len(damaged) > 1 else 'is'} damaged ({first_fault})"
        raise UserError(
            f"no checkpoint in {where} can be read: {listed}",
            f"bring one back from a copy, or train from step 0: type {begin}",
        )

    def close(self) -> None:
        """Waits for what is being written."""
        if self._writer:
            self._writer.close()

    def _reads_here(self) -> bool:
        return not self._storage.gathered or jax.process_index() == 0

    def _read(self, step: int, abstract: Tree, part: bool) -> tuple[Any, str]:
        """What the checkpoint holds, or None and why not. Each process reads its own shards and waits for no other."""
        if not self._reads_here():
            return {"state": None, "cursor": None}, ""
        try:
            return {
                "state": trees.read(self._storage, f"{_name(step)}/state", abstract, part),
                "cursor": trees.read_json(self._storage, f"{_name(step)}/cursor"),
            }, ""
        except Exception as e:
            fault = _damage(e)
            if self._keep:  # in the log of the attempt: the cause, for whoever restores the files
                print(f"checkpoint {step}: {type(e).__name__}: {(str(e).splitlines() or [''])[0][:300]}", flush=True)
            return None, fault

    def _restored(self, step: int, stored: dict[str, Any], abstract: Tree, damaged: tuple[int, ...]) -> Restored:
        state, cursor = stored["state"], stored["cursor"]
        if self._storage.gathered:
            cursor = from_first(lambda: cursor)
            state = gathered.distribute(state, abstract)
        return Restored(step, state, cursor, damaged)

    def _refuse_misfit(self, step: int, abstract: Tree, part: bool) -> None:
        """UserError if the checkpoint is of another recipe by its own account; one that gives none is damaged."""
        if not self._reads_here():
            return
        try:
            held = trees.held_shapes(self._storage, f"{_name(step)}/state")
        except Exception as e:
            _damage(e)
            return
        wanted = trees.shapes(abstract)
        unlike = [name for name in wanted if held.get(name) != wanted[name]]
        unlike += [] if part else [name for name in held if name not in wanted]
        if held and unlike:
            there, here = held.get(unlike[0], "missing"), wanted.get(unlike[0], "missing")
            raise UserError(
                f"the checkpoint of step {step} does not fit this recipe ({unlike[0]} is {there} there and {here} here)",
                "use the recipe it was made with",
            )

    def _put_aside(self, steps: list[int]) -> None:
        if not steps or not self._keep:
            return
        if jax.process_index() == 0:
            for step in steps:
                self._storage.put_aside(_name(step))
        anywhere(False)  # nobody looks before the names are gone


def _name(step: int) -> str:
    return f"checkpoints/{step}"


def _damage(e: Exception) -> str:
    """Why a read failed; raises what is no fault of the bytes. The libraries use many types, bare Exception among them."""
    unread = isinstance(e, OSError) and not isinstance(e, FileNotFoundError | NotADirectoryError | IsADirectoryError)
    if unread or isinstance(e, MemoryError | UserError) or cause_of(e) or _NOT_DAMAGE.search(str(e)):
        raise e
    missing = isinstance(e, OSError) or "NOT_FOUND" in str(e)
    return "a file of it is missing" if missing else "its content cannot be decoded"


def save_weights(storage: RunStorage, params: Tree) -> None:
    """The weights at step 0, whole or not at all. Every process must call it."""
    from_first(lambda: storage.clear("start"))  # of a save that was killed
    trees.write_alone(storage, "start", params)


def load_weights(storage: RunStorage, abstract: Tree) -> Tree:
    """The weights at step 0, as arrays of their own."""
    weights = None
    with together():
        if not storage.gathered or jax.process_index() == 0:
            try:
                weights = trees.read(storage, "start", abstract)
            except Exception as e:
                raise UserError(
                    f"the weights in {storage.root}/start cannot be read ({_damage(e)})",
                    f"bring them back from a copy, or train from step 0: type {storage.run.train_again}",
                ) from e
    return gathered.distribute(weights, abstract) if storage.gathered else weights
