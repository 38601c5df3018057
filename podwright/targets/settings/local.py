"""The settings of this machine as a target."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from podwright import slices
from podwright.slices import Slice
from podwright.targets.base import Traits


class LocalSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Literal["local"] = "local"
    cpu_devices: int = Field(0, ge=0, description="as many CPU devices; 0: whatever accelerator there is")
    runs: Literal[""] = ""
    gpus_per_node: Literal[0] = 0

    def devices(self) -> Slice | None:
        """What jax will see; None where only the machine knows."""
        return slices.parse(f"cpu-{self.cpu_devices}") if self.cpu_devices else None

    def traits(self) -> Traits:
        return Traits(this_machine=True)
