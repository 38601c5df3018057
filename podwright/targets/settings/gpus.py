"""The devices of hosts whose GPUs the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from pydantic import Field

from podwright import slices
from podwright.accelerators import gpu, gpus_like, nearest_gpus
from podwright.errors import UserError
from podwright.slices import Slice


@runtime_checkable
class GpuSettings(Protocol):
    @property
    def accelerator(self) -> str: ...

    @property
    def gpus_per_node(self) -> int: ...

    @property
    def tasks_per_node(self) -> int: ...

    @property
    def num_tasks(self) -> int: ...

    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


S = TypeVar("S", bound=GpuSettings)
TASKS: int = Field(
    1,
    ge=1,
    description="processes on each host; with GPUs 1, or one for each of them, which Phase 1 and 2 have in any case",
)


def with_tasks(own: S, one_gpu_each: bool) -> S:
    """With a process for each GPU of a host, for a kind of recipe each of whose processes uses one."""
    return own.model_copy(update={"tasks_per_node": own.gpus_per_node}) if one_gpu_each and own.gpus_per_node else own


def require_tasks(own: GpuSettings) -> None:
    """ValueError for a number of processes on a node that do not share its GPUs evenly."""
    if own.gpus_per_node and own.tasks_per_node not in (1, own.gpus_per_node):
        raise ValueError(f"tasks_per_node={own.tasks_per_node}: write 1, or one for each GPU ({own.gpus_per_node})")


def devices(own: GpuSettings, nodes: int) -> Slice | None:
    """What jax will see; None where the kind of the GPUs is not named. ValueError for one that is not known."""
    if own.accelerator and gpu(own.accelerator) is None:
        guesses = " or ".join(gpus_like(own.accelerator) or nearest_gpus(own.accelerator))
        fix = f"did you mean {guesses}?" if guesses else "write one such as H100-80GB"
        raise ValueError(f"accelerator={own.accelerator}: no such GPU is known; {fix}")
    if own.accelerator and not own.gpus_per_node:
        raise ValueError(f"accelerator={own.accelerator}, and gpus_per_node is 0; set gpus_per_node")
    if not own.gpus_per_node:
        return slices.parse(f"cpu-{own.num_tasks}")
    if not own.accelerator:
        return None
    try:
        return slices.of_hosts(nodes, own.gpus_per_node, own.accelerator)
    except UserError as e:
        raise ValueError(f"gpus_per_node={own.gpus_per_node}: {e.what}; change gpus_per_node") from None
