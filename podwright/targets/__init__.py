"""WHERE a run happens: the table of targets, each imported only when it is asked for."""

from __future__ import annotations

from podwright import slices
from podwright.errors import UserError
from podwright.slices import Slice
from podwright.targets.base import Target


def devices(name: str) -> Slice | None:
    """The devices that jax will see on target `name`; None where only the machine itself knows them."""
    if name == "local":
        return None
    where = slices.parse(name)
    if where.accelerator.pod or where.accelerator.node:
        raise UserError(f"{where.name} is a slice, not a target: plans take it, runs do not yet", "type --on local or --on cpu-8")
    return where


def find(name: str) -> Target:
    where = devices(name)
    from podwright.shell import Shell
    from podwright.targets.local import Local

    return Local(Shell(), cpu_devices=where.num_devices if where else None)
