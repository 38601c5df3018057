"""Whole training states on disk: asynchronous, atomic, the newest few kept (orbax)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from podwright.errors import UserError

Tree = Any


class Checkpoints:
    """States by step. `cursor` is the host's part: how far the data and the random numbers have been used."""

    def __init__(self, path: Path, keep: int):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, enable_async_checkpointing=True)
        self._manager = ocp.CheckpointManager(path.resolve(), options=options)

    def latest(self) -> int | None:
        return self._manager.latest_step()

    def save(self, step: int, state: Tree, cursor: dict[str, int]) -> None:
        """Starts the save and returns; the step appears under its name only when it is whole."""
        if step in self._manager.all_steps():
            return
        self._manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), cursor=ocp.args.JsonSave(cursor)))

    def restore(self, step: int, abstract: Tree) -> tuple[Tree, dict[str, int]]:
        """The state under the shardings of `abstract`; the mesh may differ from the one it was saved on."""
        args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), cursor=ocp.args.JsonRestore())
        try:
            found = self._manager.restore(step, args=args)
        except (ValueError, KeyError) as e:
            raise UserError(
                f"the checkpoint of step {step} does not fit this recipe ({str(e).splitlines()[0][:200]})",
                "use the recipe it was made with",
            ) from e
        return found["state"], found["cursor"]

    def close(self) -> None:
        """Waits for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()


def save_weights(path: Path, params: Tree) -> None:
    """Weights alone, whole or not at all."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.resolve(), params)


def load_weights(path: Path, abstract: Tree) -> Tree:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path.resolve(), abstract)
