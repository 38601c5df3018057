"""WHERE a run happens: the table of targets, each imported only when it is asked for."""

from __future__ import annotations

import re

from podwright.errors import UserError
from podwright.targets.base import Target

KNOWN = ("local", "cpu-N")


def num_devices(name: str) -> int | None:
    """How many devices jax will see on target `name`; None where only the machine itself knows."""
    cpu = re.fullmatch(r"cpu-([1-9]\d*)", name)
    if cpu:
        return int(cpu[1])
    if name != "local":
        raise UserError(f"there is no target {name!r}", "type --on local, or --on cpu-8 for 8 CPU devices on this machine")
    return None


def find(name: str) -> Target:
    devices = num_devices(name)
    from podwright.shell import Shell
    from podwright.targets.local import Local

    return Local(Shell(), cpu_devices=devices)
