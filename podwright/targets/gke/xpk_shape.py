"""What a pod looks like by version of xpk: published figures were measured in that shape, and logs are found by its container names.

Read off dry runs of xpk 0.16.1, 0.17.3, 1.0.0, 1.1.2, 1.2.0, 1.3.0, 1.8.0, 1.11.0, 1.13.1, 1.14.0, 1.15.0 and 1.16.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from podwright.recipe.maxtext import xpk
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.slices import Slice

SPLIT_HOSTS = (1, 1), (1, 14)
"""from the first version to before the second, a tpu7x host has two containers of 2 chips, one for each NUMA node"""
PORTS = (8471, 8080)
"""that containers named before version 1.1"""
UNSUPPORTED = (
    "storage",
    "mtc-enabled",
    "ramdisk-directory",
    "debug-dump-gcs",
    "deploy-stacktrace-sidecar",
    "use-pathways",
    "use-vertex-tensorboard",
    "env-file",
    "base-docker-image",
)
"""options whose effect on a manifest depends on the cluster, or on files of whoever submits: only xpk itself can submit these"""


@dataclass(frozen=True)
class XpkShape:
    containers: int
    """on each host"""
    chips: int
    """of each container"""
    ports: tuple[int, ...]


def shape_of(version: str, options: Mapping[str, str], slice_: Slice) -> XpkShape:
    """Of pods that `version` of xpk ("": the newest known) makes on a slice, with these options of `xpk workload create`."""
    numbers = version_numbers(version or xpk.NEWEST)
    split = SPLIT_HOSTS[0] <= numbers < SPLIT_HOSTS[1]
    if numbers >= (1, 9):
        split = "no-use-parallel-containers" not in options and (split or "use-parallel-containers" in options)
    chips = chips_per_vm(slice_)
    containers = 2 if split and slice_.accelerator.name == "tpu7x" and chips > 1 else 1
    return XpkShape(containers, chips // containers, PORTS if numbers < (1, 1) else ())


def version_numbers(version: str) -> tuple[int, int]:
    """Major and minor; the newest known for what is no release, such as a commit."""
    match = re.match(r"v?(\d+)\.(\d+)", version) or re.match(r"(\d+)\.(\d+)", xpk.NEWEST)
    assert match
    return int(match[1]), int(match[2])


def chips_per_vm(slice_: Slice) -> int:
    """xpk takes machines of 4 chips wherever a slice has as many, a v6e-8 too."""
    return min(4, slice_.num_chips // slice_.num_slices)


def vms_per_slice(slice_: Slice) -> int:
    return slice_.num_chips // slice_.num_slices // chips_per_vm(slice_)


def placement_policy(slice_: Slice) -> str:
    """Name of the workload policy that pods of a slice ask for; "" where it has none: single hosts, and every generation but tpu7x."""
    if slice_.accelerator.name != "tpu7x" or vms_per_slice(slice_) == 1:
        return ""
    return f"tpu7x-{slice_.num_devices // slice_.num_slices}-{slice_.topology}-placement-policy"


def left_to_xpk(recipe: MaxTextRecipe) -> list[str]:
    """Options of the recipe that only xpk itself can carry out, those of a newer xpk among them."""
    return [f"--{name}" for name in recipe.xpk if name in UNSUPPORTED or name not in xpk.OPTIONS]
