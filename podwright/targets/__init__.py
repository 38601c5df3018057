"""WHERE a run happens: the table of targets, each imported only when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from podwright import slices
from podwright.errors import UserError, nearest
from podwright.slices import Slice
from podwright.targets.base import Remark, Target

if TYPE_CHECKING:
    from podwright.targets.settings import Settings
    from podwright.targets.slurm import Slurm
    from podwright.targets.ssh import Ssh


_SHARES = ("grpo", "pretrain")  # kinds of recipe whose processes need one folder


def place(name: str) -> Slice | None:
    """The devices that a plan for target or slice `name` is made for; None where only the machines themselves know them."""
    if name == "local":
        return None
    if own := _settings(name):
        return own.devices()
    try:
        return slices.parse(name)
    except UserError:
        from podwright.targets import settings

        if guess := nearest(name, settings.names()):
            raise UserError(
                f"there is no target {name!r}", f"did you mean {guess}? `podwright target list` shows all"
            ) from None
        raise


def devices_named(name: str) -> str:
    """The name itself, or of a target of the user's own that of its devices."""
    own = _settings(name)
    where = own.devices() if own else None
    return where.name if where else name


def devices(name: str) -> Slice | None:
    """The devices that jax will see on target `name`; None where only the machines themselves know them."""
    where = place(name)
    if where and (where.accelerator.pod or where.accelerator.node) and not _settings(name):
        raise UserError(
            f"{where.name} is a slice, not a target: plans take it, runs do not yet", "type --on local or --on cpu-8"
        )
    return where


def find(name: str) -> Target:
    where = devices(name)
    from podwright.shell import Shell

    if own := _settings(name):
        return _own(name, own)
    from podwright.targets.local import Local

    return Local(Shell(), cpu_devices=where.num_devices if where else None)


def check(name: str, kind: str = "") -> list[Remark]:
    """What stands in the way of runs (of a `kind` of recipe) on target `name` as it is now; it may ask other machines."""
    own = _settings(name)
    if own is None:
        return []
    found = _own(name, own).check()
    if kind in _SHARES and own.kind == "ssh" and len(own.hosts) > 1 and not own.runs:
        what = f"the hosts of {name} share no folder, and of a {kind} run every process writes its part of a checkpoint"
        found.append(
            Remark(
                "error",
                what,
                "set runs of the target to a folder that the hosts and this machine share, or take one host",
            )
        )
    return found


def runs(name: str) -> Path | None:
    """Where target `name` wants the directories of runs; None where any place will do."""
    own = _settings(name)
    return Path(own.runs) if own and own.runs else None


def queues(name: str) -> bool:
    """Whether target `name` itself sees to it that runs do not get into each other's way."""
    own = _settings(name)
    return own is not None and own.kind == "slurm"


def brings(name: str) -> bool:
    """Whether target `name` is given the files that a recipe names from here."""
    own = _settings(name)
    return own is not None and own.kind == "ssh" and not own.runs


def gpus_per_node(name: str) -> int:
    """That target `name` is to have; 0 where it says nothing of it."""
    own = _settings(name)
    return own.gpus_per_node if own else 0


def _own(name: str, own: Settings) -> Slurm | Ssh:
    from podwright.shell import Shell

    if own.kind == "ssh":
        from podwright.targets.ssh import Ssh

        return Ssh(Shell(), name, own)
    from podwright.targets.slurm import Slurm

    return Slurm(Shell(), name, own)


def _settings(name: str) -> Settings | None:
    if name == "local":
        return None
    from podwright.targets import settings

    return settings.find(name)
