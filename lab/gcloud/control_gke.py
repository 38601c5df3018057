"""Knobs and records of GKE: what `control.Gcloud` has besides those of Cloud TPU."""

import fnmatch
import secrets
import time
from pathlib import Path
from typing import Any

from lab.gcloud import pools, store
from lab.gcloud.pool_texts import REFUSALS

Row = dict[str, Any]


class GkeKnobs:
    """Of the state under `root`."""

    root: Path

    def cluster(
        self,
        name: str,
        location: str,
        project: str = "p",
        version: str = "1.33.5-gke.1308000",
        zones: tuple[str, ...] = (),
        status: str = "RUNNING",
        cpu_nodes: int = 1,
        **fields: Any,
    ) -> None:
        """A cluster with a pool `default-pool` of machines without TPU. `location`: a region or a zone; `zones`: those of its nodes;
        `fields` of the API's Cluster take the place of those that it has otherwise. A second call changes it."""
        zonal = location.count("-") == 2
        full_name = f"projects/{project}/locations/{location}/clusters/{name}"
        with store.opened(self.root) as state:
            is_new = full_name not in state["clusters"]
            places = list(zones) or ([location] if zonal else [f"{location}-{letter}" for letter in "abc"])
            row = {"name": full_name, "version": version, "zones": places, "status": status, "body": fields}
            state["clusters"][full_name] = row
        if is_new and cpu_nodes:
            self.foreign_pool(name, "default-pool", cpu_nodes, "e2-standard-4", places[0], project=project)

    def foreign_pool(
        self,
        cluster: str,
        name: str,
        vms: int,
        machine_type: str = "tpu7x-standard-4t",
        zone: str = "",
        topology: str = "",
        labels: dict[str, str] | None = None,
        node_labels: dict[str, str] | None = None,
        metadata: dict[str, str] | None = None,
        reservation: str = "",
        status: str = "RUNNING",
        policy: str = "",
        spot: bool = False,
        project: str = "p",
    ) -> None:
        """A pool that somebody else created, with its nodes; an ERROR pool has none. It is in no ledger."""
        config: Row = {"machineType": machine_type, "spot": spot} | ({"resourceLabels": labels} if labels else {})
        config |= {"labels": node_labels} if node_labels else {}
        config |= {"metadata": metadata} if metadata else {}
        if reservation:
            config["reservationAffinity"] = {
                "consumeReservationType": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [reservation],
            }
        with store.opened(self.root) as state:
            owner = next(c for c in state["clusters"].values() if fits(c["name"], cluster, project))
            zone = zone or owner["zones"][0]
            body: Row = {"name": name, "config": config, "initialNodeCount": vms, "locations": [zone]}
            body |= {"version": owner["version"], "management": {"autoRepair": True, "autoUpgrade": True}}
            placement = {"policyName": policy, "tpuTopology": "" if policy else topology}
            if chosen := {key: value for key, value in placement.items() if value}:
                body["placementPolicy"] = chosen
            pool = pools.new_pool(state, f"{owner['name']}/nodePools/{name}", body, zone, topology, foreign=True)
            error = None
            if status == "ERROR":
                error = pools.details(state, pool, REFUSALS["stockout"])
            elif status in ("RUNNING", "RUNNING_WITH_ERROR", "RECONCILING"):
                pools.start_nodes(state, pool, time.time() - 60)
            pools.become(state, pool, status, error)
            pool["history"] = [[0.0, pools.view(state, pool)]]

    def reservation(
        self,
        name: str,
        zone: str,
        vms: int,
        in_use: int = 0,
        status: str = "READY",
        machine_type: str = "tpu7x-standard-4t",
        usable: int | None = None,
        checked: bool = True,
        maintenance: str = "",
        project: str = "p",
    ) -> None:
        """A reservation of `vms` machines, of which others have `in_use`. `usable`: so many start now, although it has more: a larger pool
        is created without nodes and gets them when this is raised. `checked`: a pool larger than what is left is refused at the call with
        429, else it is created without nodes. `maintenance`: its host maintenance interval, such as PERIODIC, which no pool here has: they do
        not fit. A second call changes it."""
        row = {"name": name, "zone": zone, "vms": vms, "in_use": in_use, "status": status, "usable": usable}
        row |= {"machine_type": machine_type, "checked": checked, "maintenance": maintenance, "project": project}
        row |= {"id": str(secrets.randbelow(1 << 62)), "created": "2026-01-01T00:00:00.000-08:00"}
        with store.opened(self.root) as state:
            same = ("name", "zone", "project")
            kept = [r for r in state["reservations"] if any(r[key] != row[key] for key in same)]
            state["reservations"] = [*kept, row]

    def busy(self, cluster: str, seconds: float, kind: str = "UPGRADE_MASTER") -> None:
        """An operation of somebody else runs in a cluster for `seconds`; its pools can be read, and neither created nor deleted."""
        with store.opened(self.root) as state:
            for name in [name for name in state["clusters"] if fnmatch.fnmatch(name.split("/")[-1], cluster)]:
                pools.begin(state, name, name, kind, time.time() + seconds)

    def idle(self, cluster: str) -> None:
        """The operations of somebody else in a cluster are done."""
        with store.opened(self.root) as state:
            for record in state["gke_operations"].values():
                if record["until"] is not None and fnmatch.fnmatch(record["cluster"].split("/")[-1], cluster):
                    record["until"] = time.time()

    def pool_outcome(
        self,
        kind: str,
        pool: str = "*",
        message: str = "",
        fill_after_s: float | None = None,
        count: int = 1,
        nodes: int | None = None,
    ) -> None:
        """What becomes of the next `count` pools of a name, whatever the capacity: "" for success, else a key of `pool_texts.REFUSALS`, such
        as "stockout", "later", "quota", "reservation-short". `message` takes the place of its text; `fill_after_s`: when the nodes of a
        pool that stays come after all; `nodes`: so many come, and no more."""
        assert not kind or kind in REFUSALS, f"{kind!r} is none of {sorted(REFUSALS)}"
        fill_at = None if fill_after_s is None else time.time() + fill_after_s
        row = {"kind": kind, "pool": pool, "message": message, "fill_at": fill_at, "count": count, "nodes": nodes}
        with store.opened(self.root) as state:
            state["knobs"]["pool_outcomes"].append(row)

    def lose_node(self, pool: str, index: int | None = 0, notice_s: float = 0.0, back_s: float | None = None) -> None:
        """The node of that number in a pool (None: all) is taken away, as spot nodes are: its VM and its node object are gone `notice_s`
        from now, of which its pods are warned. A new one comes `back_s` seconds later; None: never."""
        with store.opened(self.root) as state:
            for record in self._pools(state, pool):
                nodes = pools.living(record)
                for node in nodes if index is None else nodes[index : index + 1]:
                    node |= {"lost_at": time.time() + notice_s, "notice_s": notice_s, "back_s": back_s}

    def abort(self, pool: str, seconds: float = 0.0) -> None:
        """Somebody cancels the operation that creates a pool: it is ABORTING for `seconds`, then it has failed."""
        with store.opened(self.root) as state:
            for record in self._pools(state, pool):
                state["gke_operations"][record["operation"]]["aborted_at"] = time.time() + seconds

    def scale(self, pool: str) -> None:
        """Nodes for a pool that scales from zero, as if a pod had asked for them."""
        with store.opened(self.root) as state:
            for record in self._pools(state, pool):
                if record["autoscaled"] and not record["nodes"]:
                    record["used_at"] = time.time()
                    pools.start_nodes(state, record, time.time())

    def pools(self, pool: str = "*") -> list[Row]:
        """Every pool that exists: {"name", "cluster", "zone", "status", "nodes" (VMs that it has), "labels", "foreign", "topology",
        "reservation", "policy"}."""
        state = store.read(self.root)
        return [
            {
                "name": record["name"].split("/")[-1],
                "cluster": record["cluster"].split("/")[-1],
                "status": record["state"],
                "nodes": len([node for node in record["nodes"] if node["on"]]),
                "labels": record["body"]["config"].get("resourceLabels", {}),
            }
            | {key: record[key] for key in ("zone", "foreign", "topology", "reservation", "policy")}
            for record in self._pools(state, pool)
        ]

    def policies(self) -> list[Row]:
        """Every workload policy that exists: {"name", "region", "topology"}."""
        return [
            {
                "name": name.split("/")[-1],
                "region": name.split("/")[3],
                "topology": record["body"]["workloadPolicy"].get("acceleratorTopology", ""),
            }
            for name, record in store.read(self.root)["policies"].items()
            if record["state"] != "GONE"
        ]

    def gke_operations(self) -> list[Row]:
        """Every operation of GKE: {"name", "kind", "target", "status", "done", "error"}."""
        rows = store.read(self.root)["gke_operations"].values()
        return [
            {
                "name": row["name"].split("/")[-1],
                "kind": row["kind"],
                "target": row["target"].split("/")[-1],
                "status": pools.status(row),
                "done": pools.done(row),
                "error": (row["error"] or {}).get("message", ""),
            }
            for row in rows
        ]

    def _pools(self, state: store.State, pool: str) -> list[Row]:
        records = [record for record in state["pools"].values() if record["state"] != "GONE"]
        return [record for record in records if fnmatch.fnmatch(record["name"].split("/")[-1], pool)]


def fits(full_name: str, cluster: str, project: str) -> bool:
    return full_name.split("/")[1] == project and full_name.split("/")[-1] == cluster
