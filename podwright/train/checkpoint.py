"""Whole training states by step: asynchronous, atomic, the newest few kept (orbax); and which of them can still be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from podwright.errors import UserError
from podwright.rundir import RunDir
from podwright.train import gathered, saved_states, trees
from podwright.train.mesh import anywhere, from_first, share_a_disk, together
from podwright.train.run_storage import AttemptStart, RunStorage, remember
from podwright.train.saved_states import Newest

Tree = Any
KEPT = 2  # the newest, and one more in case that one is damaged


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

    def restore(self, abstract: Tree, part: bool = False) -> Newest[Tree]:
        """The newest state that can be read, under the shardings of `abstract`; the mesh may differ from the one it was saved on.

        `part`: `abstract` names only what is wanted of the state. Damaged newer states are put aside as STEP.damaged, so that
        training can save under their names again.
        """
        steps = from_first(lambda: self._storage.steps()[::-1])
        newest = saved_states.newest(
            self._storage, steps, _name, lambda step: self._read(step, abstract, part), anywhere
        )
        assert newest, "asked for where there are none"
        self._put_aside(newest.damaged)
        state, cursor = newest.state
        if self._storage.gathered:
            cursor = from_first(lambda: cursor)
            state = gathered.distribute(state, abstract)
        return newest._replace(state=state, cursor=cursor)

    def close(self) -> None:
        """Waits for what is being written."""
        if self._writer:
            self._writer.close()

    def _reads_here(self) -> bool:
        return not self._storage.gathered or jax.process_index() == 0

    def _read(self, step: int, abstract: Tree, part: bool) -> tuple[Tree, dict[str, int]]:
        """State and cursor. Each process reads its own shards and waits for no other."""
        with together():
            self._refuse_misfit(step, abstract, part)
        if not self._reads_here():
            return None, {}
        state = trees.read(self._storage, f"{_name(step)}/state", abstract, part)
        return state, trees.read_json(self._storage, f"{_name(step)}/cursor")

    def _refuse_misfit(self, step: int, abstract: Tree, part: bool) -> None:
        """UserError if the checkpoint is of another recipe by its own account; one that gives none is damaged."""
        if not self._reads_here():
            return
        try:
            held = trees.held_shapes(self._storage, f"{_name(step)}/state")
        except Exception as e:
            saved_states.damage(e, None)  # which is found again by whoever reads on
            return
        wanted = trees.shapes(abstract)
        unlike = [name for name in wanted if held.get(name) != wanted[name]]
        unlike += [] if part else [name for name in held if name not in wanted]
        if held and unlike:
            there = held.get(unlike[0], "missing")
            here = wanted.get(unlike[0], "missing")
            raise UserError(
                f"the checkpoint of step {step} does not fit this recipe ({unlike[0]} is {there} there and {here} here)",
                "use the recipe it was made with",
                "weights-do-not-fit",
            )

    def _put_aside(self, steps: Sequence[int]) -> None:
        if not steps or not self._keep:
            return
        if jax.process_index() == 0:
            for step in steps:
                self._storage.put_aside(_name(step))
        anywhere(False)  # nobody looks before the names are gone


def _name(step: int) -> str:
    return f"checkpoints/{step}"


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
                    f"the weights in {storage.root}/start cannot be read ({saved_states.damage(e, storage.path('start'))})",
                    f"bring them back from a copy, or train from step 0: type {storage.run.train_again}",
                    "unreadable-weights",
                ) from e
    return gathered.distribute(weights, abstract) if storage.gathered else weights


def attach(run: RunDir, start: AttemptStart) -> RunStorage:
    """The storage of an attempt: the first process claims it, and all find out whether they share its disk. Every process must call it.

    UserError in all of them when another attempt has the storage.
    """
    first, url = jax.process_index() == 0, start.url
    with together():
        remember(run, url)
        storage = RunStorage(run, url)
        if first and jax.process_count() > 1 and not storage.in_bucket:
            storage.make()
    shares = storage.in_bucket or share_a_disk(Path(storage.root))
    if url and not shares:
        raise UserError(
            f"storage {url} is not one folder for all hosts",
            "mount it on all of them, or type gs://BUCKET/PREFIX",
            "storage-not-shared",
        )
    storage.gathered = not shares
    with together():
        if first:
            storage.claim(start.number, start.allocation, start.takeover)
        start.storage = storage
    return storage
