"""Whole training states on disk: asynchronous, atomic, the newest few kept (orbax); and which of them can still be read."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from podwright.errors import UserError
from podwright.train.mesh import anywhere, from_first, together

Tree = Any
KEPT = 2  # the newest, and one more in case that one is damaged
# Signs of a fault that is not the checkpoint's: falling back to an older one would throw good steps away.
_NOT_DAMAGE = ("RESOURCE_EXHAUSTED", "PERMISSION_DENIED")


class Restored(NamedTuple):
    step: int
    state: Tree
    cursor: dict[str, int]
    """the host's part: how far the data and the random numbers have been used"""
    damaged: tuple[int, ...]
    """newer steps that could not be read"""


class Checkpoints:
    """States by step in `path`; `keep` of them, or None to read only."""

    def __init__(self, path: Path, keep: int | None):
        self._path = path.resolve()
        self._reads_only = keep is None
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=not self._reads_only, read_only=self._reads_only, enable_async_checkpointing=True
        )
        self._manager = ocp.CheckpointManager(self._path, options=options)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        """Waits for what is being written, unless another process that has a part in it may be gone."""
        if kind is None or issubclass(kind, UserError) or jax.process_count() == 1:
            self.close()

    def latest(self) -> int | None:
        return from_first(self._manager.latest_step)

    def save(self, step: int, state: Tree, cursor: dict[str, int]) -> None:
        """Starts the save and returns; the step appears under its name only when it is whole."""
        if from_first(lambda: step in self._manager.all_steps()):
            return
        self._manager.save(
            step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), cursor=ocp.args.JsonSave(cursor))
        )

    def restore(self, abstract: Tree, part: bool = False) -> Restored:
        """The newest state that can be read, under the shardings of `abstract`; the mesh may differ from the one it was saved on.

        `part`: `abstract` names only what is wanted of the state. Damaged newer states are put aside as STEP.damaged, so that
        training can save under their names again.
        """
        damaged: list[int] = []
        told = ""
        for step in from_first(lambda: sorted(self._manager.all_steps(), reverse=True)):
            with together():
                self._refuse_misfit(step, abstract, part)
            found, fault = self._read(step, abstract, part)
            if not anywhere(found is None):
                self._put_aside(damaged)
                return Restored(step, found["state"], found["cursor"], tuple(damaged))
            told = told or fault
            damaged.append(step)
            _clear_away()
        raise UserError(
            f"no checkpoint in {self._path} can be read: {', '.join(map(str, damaged))} are damaged ({told})",
            f"bring one back from a copy, or type `rm -r {self._path}` and resume the run: it then begins at step 0",
        )

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()

    def _read(self, step: int, abstract: Tree, part: bool) -> tuple[Any, str]:
        """What the checkpoint holds, or None and why not. Each process reads its own shards and waits for no other."""
        path = self._path / str(step)
        try:
            return {
                "state": _read_tree(path / "state", abstract, part),
                "cursor": ocp.JsonCheckpointHandler().restore(path / "cursor"),
            }, ""
        except Exception as e:
            return None, _damage(e)

    def _refuse_misfit(self, step: int, abstract: Tree, part: bool) -> None:
        """UserError if the checkpoint is of another recipe by its own account; one that gives none is damaged."""
        try:
            with ocp.StandardCheckpointer() as checkpointer:
                held = _shapes(checkpointer.metadata(self._path / str(step) / "state").item_metadata.tree)
        except Exception:
            return
        wanted = _shapes(abstract)
        unlike = [name for name in wanted if held.get(name) != wanted[name]]
        unlike += [] if part else [name for name in held if name not in wanted]
        if held and unlike:
            there, here = held.get(unlike[0], "missing"), wanted.get(unlike[0], "missing")
            raise UserError(
                f"the checkpoint of step {step} does not fit this recipe ({unlike[0]} is {there} there and {here} here)",
                "use the recipe it was made with",
            )

    def _put_aside(self, steps: list[int]) -> None:
        if not steps or self._reads_only:
            return
        if jax.process_index() == 0:
            for step in steps:
                aside = self._path / f"{step}.damaged"
                shutil.rmtree(aside, ignore_errors=True)
                (self._path / str(step)).rename(aside)
        anywhere(False)  # nobody looks before the names are gone
        self._manager.reload()


def _damage(e: Exception) -> str:
    """What a read failed with, in a line; raises what is no fault of the files. The libraries use many types, bare Exception among them."""
    if isinstance(e, MemoryError | PermissionError) or any(sign in str(e) for sign in _NOT_DAMAGE):
        raise e
    return f"{type(e).__name__}: {(str(e).splitlines() or [''])[0][:120]}"


def _clear_away() -> None:
    """Ends the reads that a failed one left behind, which would each complain in the log, at a moment nobody chose."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = before


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): tuple(leaf.shape) for path, leaf in leaves}


def save_weights(path: Path, params: Tree) -> None:
    """Weights alone, whole or not at all."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.resolve(), params)


def load_weights(path: Path, abstract: Tree) -> Tree:
    with together():
        try:
            return _read_tree(path.resolve(), abstract)
        except Exception as e:
            raise UserError(
                f"the weights in {path} cannot be read ({_damage(e)})",
                "bring them back from a copy, or run the recipe again under another name",
            ) from e


def _read_tree(path: Path, abstract: Tree, part: bool = False) -> Tree:
    """By the handler itself: a checkpointer ends in a barrier, where the other processes would wait for one that could not read."""
    wanted = ocp.checkpoint_utils.construct_restore_args(abstract)
    return ocp.PyTreeCheckpointHandler().restore(
        path, args=ocp.args.PyTreeRestore(item=abstract, restore_args=wanted, partial_restore=part)
    )
