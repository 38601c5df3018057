"""The executable: parses, applies the fault that is planned for this call, runs the command, logs the call."""

import fnmatch
import os
import random
import secrets
import signal
import sys
import time
from pathlib import Path

from lab.gcloud import store, surface_gke
from lab.gcloud.api import ApiError, Json
from lab.gcloud.session import Session, waited
from lab.gcloud.surface import Call, Refusal, parse
from lab.gcloud.verbs import RUN

LAUNCHER = "LAB_LAUNCHER"
"""set in the environment of processes that a fault may kill"""
GENERAL = {"limit", "sort-by", "page-size"}
UNSIMULATED = {
    "type",
    "topology",
    "data-disk",
    "boot-disk",
    "network-config",
    "min-duration",
}
UNSIMULATED |= {
    "valid-until-time",
    "valid-after-time",
    "valid-after-duration",
    "best-effort",
    "workload-type",
    "reservation",
}
UNSIMULATED |= {
    "attach-disk",
    "detach-disk",
    "worker",
    "add-tags",
    "clear-tags",
    "remove-tags",
    "local-host-port",
    "raw",
}


def main(root: Path, argv: list[str]) -> int:
    number, started = secrets.token_hex(4), time.time()
    store.log_call(root, {"id": number, "time": started, "argv": argv})
    status, out, err = 1, "", ""
    try:
        status, out, err = answer(root, argv)
    finally:
        store.log_call(root, {"id": number, "rc": status, "seconds": time.time() - started})
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status


def answer(root: Path, argv: list[str]) -> tuple[int, str, str]:
    """(exit status, stdout, stderr)."""
    try:
        call = parse(argv)
    except Refusal as refused:
        return refused.status, "", refused.text
    session = Session(root, call)
    fault = planned(root, call)
    orphaned = fault.get("kind") == "orphaned"
    if orphaned and fault["before"]:
        kill_launcher(root)
    time.sleep(fault.get("delay_s", 0.0))
    try:
        if fault.get("text"):
            raise session.fail(fault["text"])
        unsimulated(call)
        if fault.get("before") and "status" in fault:
            session.refused = refusal(fault, call)
            if call.command not in surface_gke.COMMANDS:
                raise session.fail(session.describe(session.refused))
        if fault.get("kind") == "timeout" and "timeout" in call.spec.flags:
            call.flags["timeout"], fault = "0", {}
        RUN[call.verb](session)
        if "status" in fault and not fault["before"]:
            raise session.fail(session.describe(refusal(fault, call)))
        status = 0
    except Refusal as refused:
        status = refused.status
        session.err.append(refused.text)
    out, err = "".join(session.out), "".join(session.err)
    if orphaned and not fault["before"]:
        kill_launcher(root)
    match fault.get("kind"):
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "cut":
            return 1, out[: fault["keep"]], err[: fault["keep"]]
        case "timeout":
            operation = f"projects/{call.flags.get('project', 'p')}/locations/{call.flags.get('zone', '-')}/operations/operation-{secrets.token_hex(8)}"
            first = err.partition("\n")[0]
            return (
                1,
                "",
                f"{first}\nWaiting for operation [{operation}] to complete...\n.....failed.\nERROR: ({call.dotted}) {waited(operation)}\n",
            )
    return status, out, err


def kill_launcher(root: Path) -> None:
    """Kill the process that has started this call, if it is one of those that `Gcloud.environment` is for."""
    if os.environ.get(LAUNCHER):
        store.log_call(root, {"id": secrets.token_hex(4), "time": time.time(), "argv": [], "killed": os.getppid()})
        os.kill(os.getppid(), signal.SIGKILL)


def refusal(fault: Json, call: Call) -> ApiError:
    error = ApiError(fault["status"], fault["message"] or MESSAGES.get(fault["status"], "") or exceeded(call.command))
    error.raw = fault.get("kind") == "http"
    return error


MESSAGES = {
    403: "The caller does not have permission",
    500: "Internal error. Please try again",
    503: "The service is currently unavailable.",
}


def exceeded(command: tuple[str, ...]) -> str:
    """A 429 in the words of the service that a command is for."""
    metric, limit = "Create node requests", "Maximum number of CreateNode requests per minute"
    service, name = "tpu.googleapis.com", "qps/create"
    if command[0] == "container":  # [?] the names of both metrics
        metric, limit = "Cluster and operation reads", "Cluster and operation reads per minute"
        service, name = "container.googleapis.com", "cluster_reads"
    elif command in surface_gke.COMMANDS:
        metric, limit = "Read requests", "Read requests per minute per region"
        service, name = "compute.googleapis.com", "read_requests_per_region"
    return (
        f"Quota exceeded for quota metric '{metric}' and limit '{limit}' of service '{service}' for consumer "
        f"'project_number:123456789012' ({service}/{name})."
    )


def unsimulated(call: Call) -> None:
    """Flags that gcloud has and that would do nothing here end the call instead."""
    elsewhere = set(call.spec.unsimulated) if call.command in surface_gke.COMMANDS else UNSIMULATED
    if names := sorted((elsewhere | GENERAL) & set(call.flags)):
        raise Refusal(f"lab: --{names[0]} is not simulated\n", 70)


def planned(root: Path, call: Call) -> Json:
    """The first fault that holds for this call; one for the next n calls is used up by it."""
    with store.opened(root) as state:
        faults = state["knobs"]["faults"]
        for fault in faults:
            if not fnmatch.fnmatch(call.verb, fault["verb"]) or random.random() >= fault["probability"]:
                continue
            if fault["calls"] is not None:
                fault["calls"] -= 1
                if fault["calls"] <= 0:
                    faults.remove(fault)
            return dict(fault)
    return {}
