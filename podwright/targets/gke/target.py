"""A cluster of GKE as a target: it can be described and rendered for; runs are not submitted to it yet."""

from __future__ import annotations

from typing import NoReturn

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.base import Handle, Job, Polled, Released, Remark, Rendered, Stopped, identity
from podwright.targets.gke.pools import NodePoolProvisioner
from podwright.targets.machines import Hosts
from podwright.targets.settings.gke import GkeSettings


class Gke:
    def __init__(self, shell: Shell, name: str, settings: GkeSettings):
        self.identity = identity(name, settings)
        self.traits = settings.traits()
        self._settings = settings
        self.provisioner = NodePoolProvisioner(shell, settings) if settings.places else None

    def _refuse(self) -> NoReturn:
        """UserError, whatever was to be done with a run."""
        name = self.identity["target"]
        raise UserError(
            "a run on GKE is not implemented yet", f"type podwright render RECIPE --on {name} -o DIR, which writes what to submit"
        )  # fmt: skip

    def render(self, job: Job, hosts: Hosts | None = None) -> Rendered:
        self._refuse()

    def submit(self, rendered: Rendered) -> Handle:
        self._refuse()

    def poll(self, handle: Handle) -> Polled:
        self._refuse()

    def logs(self, handle: Handle, since: int, process: int = 0) -> tuple[str, int]:
        self._refuse()

    def stop(self, handle: Handle, *, force: bool = False) -> Stopped:
        self._refuse()

    def release(self, handle: Handle) -> Released:
        self._refuse()

    def check(self) -> list[Remark]:
        """Nothing of the cluster is asked: what was not looked at is said."""
        own = self._settings
        parts = [f"cluster {own.cluster}", f"queue {own.queue}", "its node pools", *_named("bucket", own.bucket), *_named("image", own.image)]  # fmt: skip
        what = f"{', '.join(parts)}: not looked at"
        fix = f"type podwright render RECIPE --on {self.identity['target']} -o DIR; setup_training_env.sh there checks them"
        return [Remark("inconclusive", what, fix)]

    def check_access(self) -> list[Remark]:
        """Nothing: `check` has said that the cloud is not asked."""
        return []

    def probe_hosts(self, arguments: list[str]) -> list[Record]:
        self._refuse()


def _named(key: str, value: str) -> list[str]:
    return [f"{key} {value}"] if value else []
