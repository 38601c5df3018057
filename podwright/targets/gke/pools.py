"""Creates the node pools of a run with all that belongs to them, looks at them and deletes them: one pool for each slice, a workload policy
where the machines need one, and the queues of Kueue in which the run waits for them. No reply is believed but those of lists: a call
whose reply is lost or unclear may have done its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from podwright.rundir import Ending, Record
from podwright.shell import Shell, targets_file
from podwright.targets import alive
from podwright.targets.base import RUN_LABEL, PlannedCall, run_tag
from podwright.targets.gke import attempt_inventory, pool_calls, pool_inventory, pool_states, xpk_shape
from podwright.targets.gke.attempt import ATTEMPT_LABEL
from podwright.targets.gke.attempt_inventory import AttemptInventory
from podwright.targets.gke.cluster_view import by_kind, is_unscheduled
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.gke.pool_states import PoolSize, PoolView
from podwright.targets.gke.queues import RunQueues
from podwright.targets.google.gcloud import Argv, Gcloud
from podwright.targets.google.labels import BY_LABEL, EXPIRES_LABEL, creator, expires, request_name
from podwright.targets.google.replies import Consequence, Reply, refusal, require_deletable
from podwright.targets.machines import (
    GONE,
    Allocation,
    ChargedChips,
    Owned,
    Request,
    deleting,
    first_place,
    partial,
    refused,
    unknown,
    waiting,
)
from podwright.targets.settings.gke import GkeSettings


class NodePoolProvisioner:
    """Of a target whose runs create node pools. `Request.name` is also the name of the LocalQueue and of the workload policy."""

    def __init__(self, shell: Shell, settings: GkeSettings, target: str = "NAME"):
        self._settings = settings
        self._classify = classifier(settings, target)
        self._gcloud = Gcloud(shell, self._classify)
        self._kubectl = Kubectl(shell, settings)
        self._attempts = AttemptInventory(self._kubectl, settings)
        self._queues = RunQueues(self._kubectl, settings.namespace)
        self._deleted: set[str] = set()
        """names of requests whose deletion was asked for here: what their creation came to no longer counts"""
        self._failures: dict[str, str] = {}
        """by the name of a request, what the last call that was to create it came to, where that is not understood"""

    def describe_request(self, run_dir: Path, created: float | None, number: int, avoid: Sequence[str]) -> Request:
        """UserError where neither the target nor the recipe names a slice."""
        own = self._settings
        slice_ = own.require_devices()
        tag = run_tag(run_dir, created)
        name = request_name(run_dir.name, tag, number)
        place = first_place(own.places, avoid)
        details = {
            "project": own.project,
            "cluster": own.cluster,
            "location": own.location,
            "pools": pool_calls.pool_names(name, slice_),
            "policy": name if xpk_shape.placement_policy(slice_) else "",
            "slice": slice_.name,
            "reservation": pool_calls.reservation_of(place),
            "run_dir": str(run_dir),
        }
        request = Request(
            name=name,
            zone=place,
            labels={RUN_LABEL: tag, BY_LABEL: creator(), EXPIRES_LABEL: expires(created, own.life_s)},
            chip=slice_.accelerator.name,
            num_chips=slice_.num_chips,
            price=own.price,
            details=details,
        )
        return replace(request, argv=self.creations(request)[-1])

    def creations(self, request: Request, cluster: Record | None = None) -> list[Argv]:
        """The calls of gcloud that create it, in order; what waits for the pools, such as queues of Kueue, comes before them.

        `cluster`: as gcloud describes it; None in a dry run."""
        own = self._settings
        slice_ = own.require_devices()
        policy = [pool_calls.create_policy(request, own, slice_)] if request.details["policy"] else []
        pools = [pool_calls.create_pool(request, pool, own, slice_, cluster) for pool in request.details["pools"]]
        return policy + pools

    def creating(self, request: Request) -> list[PlannedCall]:
        """For a dry run, in order."""
        return [*self._queues.creating(request), *(PlannedCall(argv) for argv in self.creations(request))]

    def deleting(self, request: Request) -> list[PlannedCall]:
        """For a dry run, in order."""
        names = request.details["pools"]
        policy = self._own_policy(request)
        return [
            *(PlannedCall(pool_calls.delete_pool(self._settings, name)) for name in names),
            PlannedCall(self._kubectl.argv(attempt_inventory.deletion(request))),
            *self._queues.deleting(request),
            *([PlannedCall(pool_calls.delete_policy(self._settings, policy))] if policy else []),
        ]

    def create(self, request: Request) -> Allocation:
        if alive.is_held(_creating(request.name)):
            return _REQUESTING
        with alive.held(_creating(request.name)) as lock:  # gcloud holds it too, and may outlive this process
            there, failure = self._pools()
            if failure:
                return self._answer(failure, request, uncreated=True)
            named = [name for name in request.details["pools"] if name in there]
            foreign = next((name for name in named if not pool_states.is_ours(there[name], request)), "")
            if foreign:
                what = f"NameTaken: node pool {foreign} of cluster {self._settings.cluster} is not of this run; start the run under another name"
                return replace(refused("", what, Ending.BAD_INPUT), uncreated=True)
            cluster, failure = self._gcloud.record(pool_calls.describe_cluster(self._settings), request.zone)
            if failure:
                return self._answer(failure, request, uncreated=not named)
            if failure := self._unreadable(request):
                return self._answer(failure, request, uncreated=not named)
            failure, any_there = self._queues.create(request)
            if failure:
                return self._answer(failure, request, uncreated=not (named or any_there))
            return self._create_missing(request, there, cluster, lock)

    def _unreadable(self, request: Request) -> Reply | None:
        """Why something could not be read without which nobody can tell later what has become of the request; None if all can."""
        reads = [lambda: self._operations()[1], lambda: self._nodes_and_pods(request)[2]]
        reads += [lambda: self._policies()[1]] if request.details["policy"] else []
        return next(filter(None, (read() for read in reads)), None)

    def _create_missing(self, request: Request, there: dict[str, Record], cluster: Record, lock: int) -> Allocation:
        missing = [name for name in request.details["pools"] if name not in there]
        policy = request.details["policy"]
        for argv in self.creations(request, cluster):
            if policy not in argv and not set(missing) & set(argv):
                continue
            failure = self._gcloud.do(argv, request.zone, keep_open=[lock])
            if failure and failure.consequence is not Consequence.EXISTS:
                return self._answer(failure, request, uncreated=False)
        self._failures.pop(request.name, None)
        return waiting("Requested: the cloud has taken the request")

    def _answer(self, failure: Reply, request: Request, *, uncreated: bool) -> Allocation:
        """`uncreated`: whether nothing was created before."""
        answer = refusal(failure, request.zone, uncreated=uncreated)
        if answer is None:
            self._failures[request.name] = failure.reason
            return unknown(failure.reason)
        return answer

    def describe(self, request: Request, ready_since: float | None = None) -> Allocation:
        """Never GONE while a gcloud that an earlier launcher has started may still create a pool of it."""
        being_created = alive.is_held(_creating(request.name))  # before the cloud is asked: it may end between the two
        answer = self._describe(request, ready_since)
        if answer is GONE and being_created:
            return _REQUESTING
        if answer is GONE:
            alive.forget(_creating(request.name))
        return answer

    def _describe(self, request: Request, ready_since: float | None) -> Allocation:
        there, failure = self._pools()
        no_cluster = failure is not None and failure.reason.startswith("NoCluster")
        if failure and not no_cluster:
            return unknown(failure.advice)
        ours = {}
        for name in request.details["pools"]:
            if name in there and pool_states.is_ours(there[name], request):
                ours[name] = there[name]
        settled = (
            ready_since is not None and len(ours) == len(request.details["pools"]) and request.name not in self._deleted
        )
        operations, failure = ([], None) if settled or no_cluster else self._operations()
        if failure and request.name not in self._deleted:
            return unknown(failure.advice)
        if not ours:
            return self._without_pools(request, operations, no_cluster, ready_since is not None)
        nodes, pods, failure = self._nodes_and_pods(request)
        if failure and any(pool_states.may_have_nodes(pool) for pool in ours.values()):
            return replace(unknown(failure.advice), exists=True)
        known = None if failure else nodes
        pods_wait = any(is_unscheduled(pod) for pod in pods)
        view = PoolView(request, self._size(), self._classify, ours, operations, known, ready_since, pods_wait)
        if request.name in self._deleted:
            wait = pool_states.busy(operations)
            if wait:
                pending = pool_states.is_pending(operations, request.details["pools"])
                return replace(deleting(wait) if pending else waiting(wait), charged=view.charged())
        return view.allocation()

    def _without_pools(
        self, request: Request, operations: Sequence[Record], no_cluster: bool, were_ready: bool
    ) -> Allocation:
        if request.name not in self._deleted:
            created = [pool_states.creation_of(operations, pool) for pool in request.details["pools"]]
            if text := next(filter(None, map(pool_states.failure_of, created)), ""):
                reply = self._classify(text, request.zone)
                return refusal(reply, request.zone) or refused(request.zone, f"Failed: {reply.reason}")
            if wait := pool_states.busy(operations):
                if pool_states.is_pending(operations, request.details["pools"]):
                    return waiting(wait)
                if not were_ready:
                    return partial(wait)
        left, failure = self._rest(request, no_cluster)
        if failure:
            return unknown(failure.advice)
        if not left:
            return GONE
        if request.name in self._deleted:
            return replace(waiting(f"{left[0]} still exists"), charged=ChargedChips(0))
        if were_ready:
            return replace(pool_states.pool_lost(request.details["pools"][0]), charged=ChargedChips(0))
        why = f" ({reason})" if (reason := self._failures.get(request.name)) else ""
        return replace(partial(f"Incomplete: {left[0]} exists, and no node pool{why}"), charged=ChargedChips(0))

    def _rest(self, request: Request, no_cluster: bool) -> tuple[list[str], Reply | None]:
        """What exists of it besides pools, and why that is not known."""
        left: list[str] = []
        if not no_cluster:
            queues = self._queues.of(request)
            if isinstance(queues, Reply):
                return [], queues
            left, failure = self._attempts.jobsets_of(request)
            if failure:
                return [], failure
            left += [f"{each['kind']} {request.name}" for each in queues.objects]
        if policy := self._own_policy(request):
            rows, failure = self._policies()
            if failure:
                return [], failure
            left += [f"workload policy {policy}" for row in rows if row["name"] == policy]
        return left, None

    def delete(self, request: Request) -> None:
        """Pools first, since they cost, then what stood for them, then the policy, which pools use until they are gone. Barred where a
        person has to act first; the cloud may know nothing of it yet, or no longer, which is no failure."""
        if ATTEMPT_LABEL in request.labels:  # which list_owned has listed
            self._attempts.delete(request)
            return
        self._deleted.add(request.name)
        alive.forget(_creating(request.name))
        there, failure = self._pools()
        no_cluster = failure is not None and failure.reason.startswith("NoCluster")
        if failure and not no_cluster:
            require_deletable(failure, request)
            return
        ours = [n for n in request.details["pools"] if n in there and pool_states.is_ours(there[n], request)]
        failures = [
            self._gcloud.do(pool_calls.delete_pool(self._settings, name), request.zone)
            for name in ours
            if there[name].get("status") != "STOPPING"
        ]
        if not no_cluster:
            self._kubectl.do(attempt_inventory.deletion(request))  # of attempts that nobody has released
            failures.append(self._queues.delete(request))
        if self._own_policy(request) and not ours:
            failures.append(self._delete_policy(request))
        for each in failures:
            require_deletable(each, request)

    def _own_policy(self, request: Request) -> str:
        """The workload policy that goes with the pools; "" for that of xpk, which runs of earlier versions used and other workloads ask for."""
        policy = str(request.details["policy"])
        return policy if policy == request.name else ""

    def _delete_policy(self, request: Request) -> Reply | None:
        rows, failure = self._policies()
        if failure or request.details["policy"] not in {row["name"] for row in rows}:
            return failure
        return self._gcloud.do(pool_calls.delete_policy(self._settings, request.details["policy"]), request.zone)

    def list_owned(self) -> list[Owned]:
        listed = pool_inventory.listed(self._gcloud, self._kubectl, self._settings)
        return attempt_inventory.with_attempts(listed, self._attempts)

    def _size(self) -> PoolSize:
        slice_ = self._settings.require_devices()
        by_pods = self._settings.capacity == "flex-start"
        return PoolSize(xpk_shape.vms_per_slice(slice_), xpk_shape.chips_per_vm(slice_), by_pods)

    def _pools(self) -> tuple[dict[str, Record], Reply | None]:
        """All of the cluster by name, and why there is no list."""
        rows, failure = self._rows(pool_calls.list_pools(self._settings))
        return {str(row["name"]): row for row in rows}, failure

    def _nodes_and_pods(self, request: Request) -> tuple[list[Record], list[Record], Reply | None]:
        """Of the run; pods only where nodes come for them."""
        kinds = "nodes,pods" if self._settings.capacity == "flex-start" else "nodes"
        items, failure = self._kubectl.items(["get", kinds, f"--selector={RUN_LABEL}={request.labels[RUN_LABEL]}"])
        return list(by_kind(items, "Node")), list(by_kind(items, "Pod")), failure

    def _operations(self) -> tuple[list[Record], Reply | None]:
        rows, failure = self._rows(pool_calls.list_operations(self._settings))
        return pool_states.of_cluster(rows, self._settings.cluster), failure

    def _policies(self) -> tuple[list[Record], Reply | None]:
        return self._rows(pool_calls.list_policies(self._settings))

    def _rows(self, argv: Argv) -> tuple[list[Record], Reply | None]:
        return self._gcloud.listed(argv, self._settings.zones[0])


_REQUESTING = waiting("Requesting: gcloud, which creates it, has not ended yet")


def _creating(name: str) -> Path:
    """Locked while gcloud is at work on the request called `name`."""
    folder = targets_file().parent / "gke"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / f"creating-{name}"
