"""The processes of a run and what they agree on: one, or as many as torchrun started, over NCCL or on CPUs over gloo."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import secrets
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from podwright.train import devices, interface

T = TypeVar("T")
_TIMEOUT = datetime.timedelta(minutes=10)  # after which a silent process is given up
_TO_ANSWER = datetime.timedelta(seconds=30)  # that the store of words may take


class StopAsked(Exception):
    """Somebody asked for it while nothing was trained: between two batches of a test, or of files that are decoded. In every process."""


@dataclasses.dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009
    store: dist.Store | None = None
    """where a word can be left for the others without meeting them"""
    near: tuple[int, ...] = ()
    """the processes that see the same disk; () for all"""
    stopping: Callable[[], bool] = lambda: False
    """whether this process was asked to stop"""

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self.near or tuple(range(self.size))

    def require_going_on(self) -> None:
        """StopAsked in every process if one was asked to stop. Every process must call it."""
        if any(self.gathered(self.stopping())):
            raise StopAsked

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes of it, in every process; its error in every process too."""
        if self.size == 1:
            return make()
        outcomes = [_outcome(make) if self.rank == 0 else (None, None)]
        dist.broadcast_object_list(outcomes, device=self.device if self.device.type == "cuda" else None)
        value, fault = outcomes[0]
        if fault is not None:
            raise fault
        return value  # type: ignore[return-value]

    def on_each_disk(self, make: Callable[[], T]) -> T:
        """What the first process at each disk makes of it, in all that see that disk; the error of any in every process."""
        if self.size == 1:
            return make()
        first = self.neighbours[0]
        everyone = self.gathered(_outcome(make) if self.rank == first else (None, None))
        for _, fault in everyone:
            if fault is not None:
                raise fault
        return everyone[first][0]  # type: ignore[return-value]

    def around(self, folder: Path) -> World:
        """Itself, with the processes that see the same `folder` as neighbours: machines need not share a disk."""
        if self.size == 1:
            return self
        name = self.from_first(
            lambda: f".near-{secrets.token_hex(4)}"
        )  # a name that no cache of a shared disk can know
        own = folder / f"{name}-{self.rank}"
        own.touch()
        self.barrier()
        near = tuple(rank for rank in range(self.size) if (folder / f"{name}-{rank}").exists())
        self.barrier()
        own.unlink()
        return dataclasses.replace(self, near=near)

    def gathered(self, value: T) -> list[T]:
        """The value of every process."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def summed(self, value: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def tell(self, key: str, word: str) -> None:
        if self.store:
            with contextlib.suppress(RuntimeError):  # it is gone with the process that has it
                self.store.set(key, word)

    def read_key(self, key: str) -> str | None:
        with contextlib.suppress(RuntimeError):
            if self.store and self.store.check([key]):
                return self.store.get(key).decode()
        return None

    def any(self, flag: bool) -> bool:
        if self.size == 1:
            return flag  # without waiting for the device
        return bool(self.summed(torch.tensor(float(flag), device=self.device)))


def _outcome(make: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return make(), None
    except Exception as e:
        return None, e


def join(environment: MutableMapping[str, str]) -> World:
    """The world that torchrun's variables describe; a world of one without them."""
    local = int(environment.get("LOCAL_RANK", "0"))
    size = int(environment.get("WORLD_SIZE", "1"))
    fix = "install a build of torch for CUDA there, and unset CUDA_VISIBLE_DEVICES"
    seen = torch.cuda.device_count()
    devices.require_gpus(f"PyTorch {torch.__version__}", seen, environment, devices.num_nvidia_gpus(), fix, local)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    store = None
    if size > 1:
        address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        interface.choose(environment, address)
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=_TIMEOUT)
        # a connection of its own: on that of the process group a thread would wait for whoever hangs there
        store = dist.TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=_TO_ANSWER)
    return World(int(environment.get("RANK", "0")), size, device, store)
