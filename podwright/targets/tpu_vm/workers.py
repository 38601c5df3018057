"""The workers of a slice that the cloud calls ready: whether each answers, with the host key that the cloud names, and in which order."""

from __future__ import annotations

import time

from podwright.rundir import Ending, Record
from podwright.shell import Shell
from podwright.targets.google.gcloud import Gcloud
from podwright.targets.hosts.transport import Host, Trouble, of_each, require_all
from podwright.targets.machines import Allocation, HostAddress, Hosts, lost, ready, waiting
from podwright.targets.settings.tpu_vm import TpuVmSettings
from podwright.targets.tpu_vm import calls, cloud_states, ssh_key, worker
from podwright.targets.tpu_vm.calls import Place
from podwright.targets.tpu_vm.worker import Worker

BOOT_LIMIT_S = 1200.0
"""from a slice that the cloud calls ready until all its workers must have answered"""
_NUMBER = (
    "curl -sf -m 10 -H 'Metadata-Flavor: Google' "
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number"
)


class Workers:
    def __init__(self, shell: Shell, gcloud: Gcloud, settings: TpuVmSettings):
        self._shell = shell
        self._gcloud = gcloud
        self._settings = settings
        self._hosts: dict[str, Hosts] = {}
        self._asked_since: dict[str, float] = {}

    def have_answered(self, node: str) -> bool:
        return node in self._hosts

    def forget(self, node: str) -> None:
        self._hosts.pop(node, None)
        self._asked_since.pop(node, None)
        ssh_key.forget(node)

    def ready(self, record: Record, place: Place, since: float | None, is_new: bool) -> Allocation:
        """Ready once all workers of a node have answered: a host that is counted before is not wholly there.

        `is_new`: whether nothing has run on the node, or this process has seen it away. Of any other a run may be at work on workers that
        only this machine does not reach."""
        if place.name in self._hosts:
            return ready(self._hosts[place.name], since)
        asked_s = time.monotonic() - self._asked_since.setdefault(place.name, time.monotonic())
        try:
            hosts = self._ask(self._listed(record, place))
        except Trouble as e:
            if is_new and asked_s > BOOT_LIMIT_S:
                return lost(
                    Ending.NODE_LOST,
                    f"NotStarted: {e.what}, {BOOT_LIMIT_S / 60:.0f} min after the cloud called it ready",
                )
            return waiting(f"Starting: {self._with_key(record, place, e)}")
        self._hosts[place.name] = hosts
        return ready(hosts, since)

    def _with_key(self, record: Record, place: Place, trouble: Trouble) -> str:
        """Adds this machine's key to a node that was requested with that of another machine; returns what is waited for. The guests take a key
        from the metadata a minute or two later."""
        keys = record.get("metadata", {}).get("ssh-keys", "")
        key = f"{ssh_key.USER}:{ssh_key.public_key(self._shell)}"
        if key in keys or "Permission denied (" not in trouble.stderr:
            return trouble.what
        failure = self._gcloud.do(calls.set_keys(place, f"{keys}\n{key}"), place.zone)
        if failure:
            return f"{trouble.what}, and it cannot be added ({failure.reason}); {trouble.fix}"
        return f"{place.name} was given the key of this machine, which its workers take in a minute or two"

    def _ask(self, workers: list[Worker]) -> Hosts:
        """In the order of the numbers that they have among themselves, which is that of jax's processes."""
        hosts = [Host(self._shell, each) for each in workers]
        answers = require_all(of_each(hosts, lambda _, host: host.call(_NUMBER)))
        numbers = [int(answer) if answer.strip().isdigit() else -1 for answer in answers]
        if sorted(numbers) != list(range(len(workers))):
            raise Trouble(f"the workers call themselves {numbers}", "wait", Ending.NO_CAPACITY)
        ordered = sorted(zip(numbers, workers, strict=True), key=lambda pair: pair[0])
        return tuple(HostAddress(each.name, each.address, each.connect) for _, each in ordered)

    def _listed(self, record: Record, place: Place) -> list[Worker]:
        """In the cloud's order, with their host keys written down. Trouble while the cloud does not name these yet."""
        points = cloud_states.addresses(record)
        if len(points) != self._settings.devices().num_hosts:
            wanted = self._settings.devices().num_hosts
            raise Trouble(f"the cloud lists {len(points)} of {wanted} workers", "wait", Ending.NO_CAPACITY)
        attributes = self._attributes(place)
        keys = {
            k: [f"{key} {value}" for key, value in own.get("hostkeys", {}).items()] for k, own in attributes.items()
        }
        if without := [k for k in range(len(points)) if not keys.get(k)]:
            raise Trouble(f"worker {without[0]} has no host key yet", "wait", Ending.NO_CAPACITY)
        ssh_key.write_known_hosts(place.name, keys)
        workers = []
        for k, (internal, external) in enumerate(points):
            instance = next((own["hostname"] for own in attributes[k].values() if "hostname" in own), "")
            connect = worker.through_iap(place.zone, instance) if self._settings.internal_ips else external or internal
            workers.append(Worker(worker.name(place.name, k), internal, connect, place.project))
        return workers

    def _attributes(self, place: Place) -> dict[int, dict[str, dict[str, str]]]:
        """What the workers of a node have published: by worker, by namespace, by key. {} where it cannot be had now."""
        rows, _ = self._gcloud.listed(calls.guest_attributes(place), place.zone)
        workers: dict[int, dict[str, dict[str, str]]] = {}
        for row in rows:
            namespaces = workers.setdefault(int(row["worker_id"]), {})
            namespaces.setdefault(row["namespace"], {})[row["key"]] = row["value"]
        return workers
