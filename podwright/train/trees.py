"""Trees of arrays as orbax writes and reads them, in a run's directory or in a bucket; what has to hold before one counts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import path as ocp_path

from podwright.train import gathered, patient_gcs
from podwright.train.run_storage import RunStorage

Tree = Any


class TreeWriter:
    """Writes in the background. A tree counts when `before` has passed in the first process; `after` follows there."""

    def __init__(self, storage: RunStorage, after: Callable[[], None] = lambda: None):
        self._storage = storage
        self._checkpointer: ocp.AsyncCheckpointer | None = None
        if storage.gathered and jax.process_index() != 0:
            return
        options = _options(storage)
        handler = ocp.CompositeCheckpointHandler(
            composite_options=ocp.CompositeOptions(multiprocessing_options=options),
            state=ocp.StandardCheckpointHandler(multiprocessing_options=options),
            cursor=ocp.JsonCheckpointHandler(multiprocessing_options=options),
        )
        self._checkpointer = _checkpointer(storage, handler, after)

    def write(self, name: str, state: Tree, cursor: dict[str, int]) -> None:
        """Returns when the arrays may change. Every process must call it."""
        if self._storage.gathered:
            state = gathered.collect(state)
        if self._checkpointer:
            items = {"state": ocp.args.StandardSave(state), "cursor": ocp.args.JsonSave(cursor)}
            self._checkpointer.save(path(self._storage, name), args=ocp.args.Composite(**items))

    def wait(self) -> None:
        """Until what is being written counts; raises what went wrong with it."""
        if self._checkpointer:
            self._checkpointer.wait_until_finished()

    def close(self) -> None:
        if self._checkpointer:
            self._checkpointer.close()


def _options(storage: RunStorage) -> Any:
    """Of a gathered storage the first process writes alone."""
    alone = storage.gathered and jax.process_count() > 1
    return ocp.options.MultiprocessingOptions(active_processes={0} if alone else None)


def _checkpointer(storage: RunStorage, handler: Any, after: Callable[[], None]) -> ocp.AsyncCheckpointer:
    return ocp.AsyncCheckpointer(
        handler, multiprocessing_options=_options(storage), temporary_path_class=_commit_class(storage, after)
    )


def _commit_class(storage: RunStorage, after: Callable[[], None]) -> type[Any]:
    """How orbax commits: in a bucket a marker is written last, in a directory a name is given last."""
    kind: Any = ocp_path.atomicity.CommitFileTemporaryPath
    if not storage.in_bucket:
        kind = ocp_path.atomicity.AtomicRenameTemporaryPath

    class CheckedPath(kind):
        async def finalize(self) -> None:
            await asyncio.to_thread(storage.publish)
            await super().finalize()
            await asyncio.to_thread(after)

    return CheckedPath


def path(storage: RunStorage, name: str) -> epath.Path:
    if storage.in_bucket:
        patient_gcs.install()
    return epath.Path(f"{storage.root}/{name}")


class _DrainingLoop(asyncio.SelectorEventLoop):
    """Closes when all its tasks have ended. Orbax closes a loop at the first read that fails; TensorStore then calls back into the
    closed loop for each of the others, and every call prints a traceback."""

    def close(self) -> None:
        if not self.is_closed():
            pending = asyncio.all_tasks(self)
            if pending:
                self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        super().close()


class _DrainingPolicy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _DrainingLoop()


@contextlib.contextmanager
def _draining() -> Iterator[None]:
    """Loops that orbax makes in the body end only with their last read."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_DrainingPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)


def read(storage: RunStorage, name: str, abstract: Tree, part: bool = False) -> Tree:
    """A tree under the shardings of `abstract`; of a gathered storage whole arrays, in the first process only.

    By the handler itself: a checkpointer ends in a barrier, where the other processes would wait for one that could not read.
    """
    if storage.gathered:
        wanted = jax.tree.map(lambda x: ocp.RestoreArgs(restore_type=np.ndarray, dtype=x.dtype), abstract)
    else:
        wanted = ocp.checkpoint_utils.construct_restore_args(abstract)
    arguments = ocp.args.PyTreeRestore(item=abstract, restore_args=wanted, partial_restore=part)
    with _draining():
        return ocp.PyTreeCheckpointHandler().restore(path(storage, name), args=arguments)


def read_json(storage: RunStorage, name: str) -> Any:
    return ocp.JsonCheckpointHandler().restore(path(storage, name))


def shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(key, simple=True, separator="."): tuple(leaf.shape) for key, leaf in leaves}


def held_shapes(storage: RunStorage, name: str) -> dict[str, tuple[int, ...]]:
    """Of a tree by its own account."""
    with _draining(), ocp.StandardCheckpointer() as checkpointer:
        return shapes(checkpointer.metadata(path(storage, name)).item_metadata.tree)


def write_alone(storage: RunStorage, name: str, tree: Tree) -> None:
    """A tree without a cursor, whole or not at all. Every process must call it."""
    if storage.gathered:
        tree = gathered.collect(tree)
        if tree is None:
            return
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=_options(storage))
    checkpointer = _checkpointer(storage, handler, lambda: None)
    checkpointer.save(path(storage, name), args=ocp.args.StandardSave(tree))
    checkpointer.close()
