"""What runs have left in a cluster whose node pools the target's runs do not create: attempts, and pools of runs from before the target's entry changed."""

from __future__ import annotations

from podwright.errors import UserError
from podwright.targets.gke.attempt_inventory import AttemptInventory
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.machines import Owned, Request


class LeftResources:
    """Attempts are listed also where gcloud, which lists the pools, does not work."""

    def __init__(self, attempts: AttemptInventory, pools: NodePoolProvisioner):
        self._attempts = attempts
        self._pools = pools
        self.unlisted: UserError | None = None

    def list_owned(self) -> list[Owned]:
        try:
            self.unlisted = None
            return self._pools.list_owned()
        except UserError as e:
            self.unlisted = e
            return self._attempts.list_owned()

    def delete(self, request: Request) -> None:
        self._pools.delete(request)
