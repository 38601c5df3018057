"""The simulated commands: each turns a command line into requests of the API, and their answers into what gcloud prints."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from lab.gcloud import compute_verbs, container_verbs, iap, metadata, store
from lab.gcloud.api import ApiError, Json
from lab.gcloud.session import EXPIRED, NO_DEFAULT, NO_LOGIN, Session
from lab.gcloud.store import State
from lab.gcloud.surface import Call, Refusal, parse

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def duration(text: str) -> str:
    """6h, 90s or 1h30m as the API writes durations."""
    parts = re.findall(r"([\d.]+)([smhd]?)", text.lower().removeprefix("p").replace("t", ""))
    return f"{sum(float(number) * UNITS[unit] for number, unit in parts):g}s"


def node_body(session: Session) -> Json:
    flags = session.call.flags
    body: Json = {
        "networkConfig": {"network": flags.get("network", "default"), "enableExternalIps": "internal-ips" not in flags}
    }
    if "subnetwork" in flags:
        body["networkConfig"]["subnetwork"] = flags["subnetwork"]
    if "accelerator-type" in flags:
        body["acceleratorType"] = flags["accelerator-type"].lower()
    body["serviceAccount"] = {}
    if "service-account" in flags:
        body["serviceAccount"]["email"] = flags["service-account"]
    if "scopes" in flags:
        body["serviceAccount"]["scope"] = flags["scopes"].split(",")
    if "labels" in flags:
        body["labels"] = session.pairs("labels")
    if "tags" in flags:
        body["tags"] = flags["tags"].split(",")
    files = {key: Path(path).read_text() for key, path in session.pairs("metadata-from-file").items()}
    body["metadata"] = session.pairs("metadata") | files
    if version := flags.get("runtime-version") or flags.get("version"):
        body["runtimeVersion"] = version
    return body


def create_request(session: Session) -> None:
    flags, parent = session.call.flags, session.parent
    spec: Json = {"parent": parent, "node": node_body(session)}
    if "node-id" in flags:
        spec["nodeId"] = flags["node-id"]
    else:
        several: Json = {"nodeCount": int(flags["node-count"])}
        if "node-prefix" in flags:
            several["nodeIdPrefix"] = flags["node-prefix"]
        spec["multisliceParams"] = several
    if session.call.track == "alpha":
        spec["node"]["autocheckpointEnabled"] = "autocheckpoint-enabled" in flags
    body: Json = {"tpu": {"nodeSpec": [spec]}}
    if "spot" in flags:
        body["spot"] = {}
    if "guaranteed" in flags:
        body["guaranteed"] = {}
    if "reserved" in flags:
        body["reservationName"] = f"{parent}/reservations/-"
    if "valid-until-duration" in flags:
        body["queueingPolicy"] = {"validUntilDuration": duration(flags["valid-until-duration"])}
    if session.call.track == "alpha":
        body["provisioningModel"] = flags.get("provisioning-model", "standard").replace("-", "_").upper()
        if "max-run-duration" in flags:
            body["runDuration"] = {"maxRunDuration": duration(flags["max-run-duration"])}
    name = session.call.name
    started = session.request("POST", f"{parent}/queuedResources", body, queuedResourceId=name)
    session.operation(started, "Create request", "Created")
    result = started if "async" in flags else session.request("GET", f"{parent}/queuedResources/{name}")
    if "format" in flags:
        session.show(result)


def create_node(session: Session) -> None:
    flags, parent = session.call.flags, session.parent
    scheduling = {name: True for name in ("spot", "reserved", "preemptible") if name in flags}
    body = {"acceleratorType": "v2-8", **node_body(session), "schedulingConfig": scheduling}
    body["shieldedInstanceConfig"] = {"enableSecureBoot": "shielded-secure-boot" in flags}
    started = session.request("POST", f"{parent}/nodes", body, nodeId=session.call.name)
    ended = session.operation(started, "Create request", "Created")
    if "format" in flags:
        session.show(ended if "async" in flags else ended["response"])


def delete(session: Session) -> None:
    flags, collection = session.call.flags, collection_of(session.call)
    if "quiet" not in flags:
        noun, name = session.call.spec.noun, session.call.name
        session.say(f"You are about to delete {noun} [{name}]\n\nDo you want to continue (Y/n)?  ")
        raise session.fail(
            "This prompt could not be answered because you are not in an interactive session.  You can re-run the command with the --quiet flag "
            "to accept default answers for all prompts."
        )
    query = {"force": "true"} if "force" in flags else {}
    started = session.request("DELETE", f"{session.parent}/{collection}/{session.call.name}", None, **query)
    ended = session.operation(started, "Delete request", "Deleted")
    if "format" in flags:
        session.show(ended)


def update(session: Session) -> None:
    """gcloud reads the node, changes it and writes it back."""
    flags, path = session.call.flags, f"{session.parent}/nodes/{session.call.name}"
    node = session.request("GET", path)
    mask = []
    for field, flag in (("labels", "labels"), ("metadata", "metadata")):
        before = dict(node.get(field, {}))
        after = {} if f"clear-{flag}" in flags else dict(before)
        after |= session.pairs(f"update-{flag}")
        for key in filter(None, flags.get(f"remove-{flag}", "").split(",")):
            after.pop(key, None)
        if after != before:
            node[field] = after
            mask.append(field)
    if not mask:
        raise session.fail(
            "No fields would change as a result of this update; must specify at least one field to update."
        )
    started = session.request("PATCH", path, node, updateMask=",".join(mask))
    ended = session.operation(started, "Request", "Updated")
    if "format" in flags:
        session.show(ended)


def collection_of(call: Call) -> str:
    kinds = {
        "queued-resources": "queuedResources",
        "versions": "runtimeVersions",
        "accelerator-types": "acceleratorTypes",
    }
    return next((kinds[word] for word in call.command if word in kinds), "nodes")


def describe(session: Session) -> None:
    session.show(session.request("GET", f"{session.parent}/{collection_of(session.call)}/{session.call.name}"))


def list_resources(session: Session) -> None:
    collection = collection_of(session.call)
    session.show_list(session.request("GET", f"{session.parent}/{collection}")[collection])


def list_locations(session: Session) -> None:
    project = session.setting("project", "core/project", "project")
    session.show_list(session.request("GET", f"projects/{project}/locations")["locations"])


def guest_attributes(session: Session) -> None:
    path = f"{session.parent}/nodes/{session.call.name}:getGuestAttributes"
    reply = session.request("POST", path, {"queryPath": session.call.flags.get("query-path", "")})
    rows = [
        {"worker_id": worker, **item}
        for worker, attributes in enumerate(reply["guestAttributes"])
        for item in attributes["queryValue"]["items"]
    ]
    session.show_list(rows)


def list_services(session: Session) -> None:
    project = session.setting("project", "core/project", "project")
    knobs = signed_in(session)["knobs"]
    names = ["compute.googleapis.com", "storage.googleapis.com"]
    names += ["container.googleapis.com", "tpu.googleapis.com"] * knobs["api_enabled"]
    parent = f"projects/{metadata.PROJECT_NUMBER}"
    rows = [
        {"config": {"name": n}, "name": f"{parent}/services/{n}", "parent": parent, "state": "ENABLED"} for n in names
    ]
    permitted(session, "serviceusage.services.list", f"projects/{project}")
    session.show_list(rows)


def signed_in(session: Session) -> State:
    """The state, for commands of other services than the TPU API."""
    if not session.account:
        raise session.fail(NO_LOGIN)
    if session.login_expired:
        raise session.fail(EXPIRED)
    return store.read(session.root)


def permitted(session: Session, permission: str, resource: str) -> None:
    if permission in store.read(session.root)["knobs"]["denied"]:
        raise session.fail(session.describe(ApiError(403, f"Permission '{permission}' denied on '{resource}'")))


def get_value(session: Session) -> None:
    name = session.call.name if "/" in session.call.name else f"core/{session.call.name}"
    value = session.account if name == "core/account" else session.properties.get(name, "")
    if session.call.flags.get("format") == "json":
        session.show(value or [])
    elif value:
        session.out.append(f"{value}\n")
    if not value:
        session.say("(unset)")


def list_config(session: Session) -> None:
    tree: Json = {"core": {"account": session.account}} if session.account else {}
    for name, value in session.properties.items():
        section, _, key = name.partition("/")
        tree.setdefault(section, {})[key] = value
    session.show(tree)


def list_accounts(session: Session) -> None:
    session.show([{"account": session.account, "status": "ACTIVE"}] if session.account else [])


def print_token(session: Session) -> None:
    """Of gcloud's account, or of the application-default credentials."""
    default = "application-default" in session.call.command
    if default and not store.read(session.root)["knobs"]["default_credentials"]:
        raise session.fail(NO_DEFAULT)
    if not default:
        signed_in(session)
    token = f"ya29.{'default' if default else 'user'}"
    if "format" in session.call.flags:
        session.show({"token": token})
    else:
        session.out.append(f"{token}\n")


def show_version(session: Session) -> None:
    session.show({"Google Cloud SDK": "528.0.0", "alpha": "2025.06.20", "beta": "2025.06.20", "core": "2025.06.20"})


def lint(session: Session) -> None:
    line = session.call.flags["command-string"]
    row = {"command_string": line, "success": True, "error_message": None}
    try:
        parse(shlex.split(line)[1:])
    except Refusal as refused:
        row |= {"success": False, "error_message": refused.text.partition(") ")[2]}
    session.out.append(json.dumps([row], indent=2) + "\n")  # its own format, without being asked


def describe_bucket(session: Session) -> None:
    url = session.call.name.rstrip("/")
    bucket = signed_in(session)["knobs"]["buckets"].get(url.removeprefix("gs://"))
    if bucket is None:
        raise session.fail(f"{url} not found: 404.")
    if "storage.buckets.get" in store.read(session.root)["knobs"]["denied"]:
        raise session.fail(
            f"[{session.account}] does not have permission to access b instance [{url.removeprefix('gs://')}] (or it may not exist): "
            f"{session.account} does not have storage.buckets.get access to the Google Cloud Storage bucket. "
            "Permission 'storage.buckets.get' denied on resource (or it may not exist)."
        )
    name = url.removeprefix("gs://")
    session.show({"name": name, "storage_url": f"{url}/", "location": "US", "location_type": "multi-region"} | bucket)


def describe_project(session: Session) -> None:
    signed_in(session)
    permitted(session, "resourcemanager.projects.get", f"projects/{session.call.name}")
    session.show({"projectId": session.call.name, "projectNumber": metadata.PROJECT_NUMBER, "lifecycleState": "ACTIVE"})


def get_policy(session: Session) -> None:
    signed_in(session)
    permitted(session, "resourcemanager.projects.getIamPolicy", f"projects/{session.call.name}")
    binding = {"role": "roles/tpu.admin", "members": [f"user:{session.account}"]}
    session.show({"bindings": [binding], "etag": "BwXlab=", "version": 1})


RUN: dict[str, Callable[[Session], None]] = {
    "queued-resources create": create_request,
    "queued-resources describe": describe,
    "queued-resources delete": delete,
    "queued-resources list": list_resources,
    "tpu-vm create": create_node,
    "tpu-vm describe": describe,
    "tpu-vm delete": delete,
    "tpu-vm update": update,
    "tpu-vm list": list_resources,
    "tpu-vm get-guest-attributes": guest_attributes,
    "tpu-vm versions list": list_resources,
    "tpu-vm versions describe": describe,
    "tpu-vm accelerator-types list": list_resources,
    "tpu-vm accelerator-types describe": describe,
    "locations list": list_locations,
    "compute start-iap-tunnel": iap.tunnel,
    "services list": list_services,
    "config get-value": get_value,
    "config get": get_value,
    "config list": list_config,
    "auth list": list_accounts,
    "auth print-access-token": print_token,
    "auth application-default print-access-token": print_token,
    "version": show_version,
    "meta lint-gcloud-commands": lint,
    "storage buckets describe": describe_bucket,
    "projects describe": describe_project,
    "projects get-iam-policy": get_policy,
}
RUN |= container_verbs.RUN | compute_verbs.RUN
