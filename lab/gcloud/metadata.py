"""What the metadata server of a worker says, from the node's record and the knobs for guests."""

import fnmatch
import json
import time
from typing import Any

from lab.gcloud import catalog
from lab.gcloud.store import State

Json = dict[str, Any]
PROJECT_NUMBER = "123456789012"


def rules(state: State, node: Json, worker: int, what: str) -> list[Json]:
    """The knobs of a kind that hold for a worker now; `after_boot_s` counts from when all hosts
    of the node answer."""
    now, name = time.time(), node["name"].split("/")[-1]
    return [
        rule
        for rule in state["knobs"]["guests"]
        if rule["what"] == what
        and fnmatch.fnmatch(name, rule["node"])
        and rule["worker"] in (None, worker)
        and (rule["until"] is None or now < rule["until"])
        and (rule["after_boot_s"] is None or now < (node["on_at"] or now) + rule["after_boot_s"])
    ]


def of_worker(state: State, node: Json, worker: int, addresses: list[str]) -> dict[str, str]:
    """{path below computeMetadata/v1: value}; `addresses` are the internal ones, in the order of agent-worker-number."""
    body, name, zone = node["body"], f"t1v-n-{node['hex']}-w-{worker}", node["zone"]
    project = node["name"].split("/")[1]
    taken = node["preempt"] is not None and time.time() >= node["preempt"]["at"]
    account = {"email": body["serviceAccount"]["email"]}
    token = {"access_token": node["token"], "expires_in": 3599, "token_type": "Bearer"}
    attributes = dict(body.get("metadata", {})) | {
        "agent-worker-number": str(worker),
        "worker-network-endpoints": ",".join(f"unknown:unknown:{address}" for address in addresses),
        "accelerator-type": node["type"],
        "instance-id": node["name"].split("/")[-1],
        "tpu-env": environment(node, worker),
        "lab-image": body.get("runtimeVersion", ""),
        "lab-device": "free",
    }
    for key in ("lab-image", "lab-device"):
        for rule in rules(state, node, worker, key):
            attributes[key] = rule["value"]
    values = {f"instance/attributes/{key}": value for key, value in attributes.items()}
    late = rules(state, node, worker, "late_key")
    return values | {
        "agent/ssh-keys": "" if late else attributes.get("ssh-keys", ""),
        "instance/preempted": "TRUE" if taken else "FALSE",
        "instance/maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE" if taken or node.get("maintenance") else "NONE",
        "instance/service-accounts/default/token": json.dumps(token),
        "instance/service-accounts/default/email": account["email"],
        "instance/zone": f"projects/{PROJECT_NUMBER}/zones/{zone}",
        "instance/name": name,
        "instance/hostname": f"{name}.{zone}.c.{project}.internal",
        "instance/id": body["id"],
        "project/project-id": project,
        "project/numeric-project-id": PROJECT_NUMBER,
    }


def environment(node: Json, worker: int) -> str:
    """The lines of `tpu-env`: KEY: 'value'."""
    lines = {
        "ACCELERATOR_TYPE": node["type"],
        "CHIPS_PER_HOST": str(node["chips"] // node["num_hosts"]),
        "GENERATION": catalog.generation(node["type"]),
        "NODE_ID": node["name"].split("/")[-1],
        "WORKER_ID": str(worker),
        "ZONE": node["zone"],
    }
    return "\n".join(f"{key}: '{value}'" for key, value in lines.items())
