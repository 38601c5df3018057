"""How a model lies on the processes of a run: a copy on each (DDP), or a part of every weight (FSDP2); how whole tensors come and go.

Outside these functions a checkpoint holds whole tensors, so that it is the same file either way.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from podwright.train.multimodal.processes.world import World


def spread(model: nn.Module, layers: nn.ModuleList, world: World, *, fsdp: bool) -> nn.Module:
    """What is called in place of `model`. With `fsdp`, weights are gathered one of `layers` at a time, the others for the whole step."""
    if world.size == 1 or not fsdp:
        model.to(world.device)
    if world.size == 1:
        return model
    if not fsdp:
        device_ids = [world.device.index] if world.device.type == "cuda" else None
        with warnings.catch_warnings():  # of a newer argument, which most versions of PyTorch do not have
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(model, device_ids=device_ids, broadcast_buffers=False)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)  # moves it to its device, so that no device ever holds all
    fully_shard(model, mesh=mesh)
    return model


@contextlib.contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Whole weights on every device: answers differ in length, so processes cannot meet at every layer of every token."""
    parts = [m for m in model.modules() if isinstance(m, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.reshard()
            part.set_reshard_after_forward(part is not model, recurse=False)


def full_tensor(value: Any) -> Any:
    """On the host, the whole of a tensor of which every process has a part; all of them have to ask. Anything else is itself."""
    return value.full_tensor().cpu() if isinstance(value, DTensor) else value


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """This process's part of the whole `value`, where it has a part of `parameter` alone."""
    if not isinstance(parameter, DTensor):
        return value
    moved = value.to(parameter.device, parameter.dtype)
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements, src_data_rank=None)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    state = optimizer.state_dict()
    gathered = {}
    for number, entry in state["state"].items():
        gathered[number] = {name: full_tensor(value) for name, value in entry.items()}
    return state | {"state": gathered}


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    split: dict[int, dict[str, Any]] = {}
    for number, entry in state["state"].items():
        parameter, split[number] = parameters[number], {}
        for name, value in entry.items():  # moments have the shape of the parameter, counts of steps have not
            split[number][name] = like(parameter, value) if value.shape == parameter.shape else value
    optimizer.load_state_dict(state | {"state": split})
