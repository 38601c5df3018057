"""The simulated `gcloud compute` commands for reservations, workload policies and machine types."""

from collections.abc import Callable

from lab.gcloud.api import ApiError, Json
from lab.gcloud.session import Session


def policy_path(session: Session) -> str:
    region = session.call.flags.get("region") or session.properties.get("compute/region")
    if not region:
        raise session.fail(f"Underspecified resource [{session.call.name}]. Specify the [--region] flag.")
    return f"/compute/v1/projects/{session.project}/regions/{region}/resourcePolicies"


def create_policy(session: Session) -> None:
    flags, name, path = session.call.flags, session.call.name, policy_path(session)
    policy: Json = {"type": flags["type"].upper()}
    if "accelerator-topology" in flags:
        policy["acceleratorTopology"] = flags["accelerator-topology"]
        if policy["type"] != "HIGH_THROUGHPUT":
            text = "Accelerator topology is only supported for high throughput workload policies."
            raise session.fail(f"Invalid value for [--accelerator-topology]: {text}")
    body: Json = {"name": name, "region": path.split("/")[6], "workloadPolicy": policy}
    if "description" in flags:
        body["description"] = flags["description"]
    started = session.send("POST", path, body)
    session.say(f"Created [{started['targetLink']}].")
    if "format" in flags:
        session.show(session.send("GET", f"{path}/{name}"))


def describe_policy(session: Session) -> None:
    session.show(session.send("GET", f"{policy_path(session)}/{session.call.name}"))


def delete_policy(session: Session) -> None:
    started = session.send("DELETE", f"{policy_path(session)}/{session.call.name}")
    session.say(f"Deleted [{started['targetLink']}].")
    if "format" in session.call.flags:
        session.show([])


def listed(session: Session, collection: str, places: str) -> list[Json]:
    """Of the places of --zones or --regions, else of all. gcloud shows a refusal as a warning and goes on with what it has."""
    here, items, failures = session.project, list[Json](), list[str]()
    chosen = [place for place in session.call.flags.get(places, "").split(",") if place]
    for path in [f"{places}/{place}" for place in chosen] or ["aggregated"]:
        try:
            answer = session.attempt("GET", f"/compute/v1/projects/{here}/{path}/{collection}")["items"]
        except ApiError as error:
            failures.append(error.message)
            continue
        items += (
            answer if isinstance(answer, list) else [item for scope in answer.values() for item in scope[collection]]
        )
    if failures:
        session.say("WARNING: Some requests did not succeed.")
        for message in failures:
            session.say(f" - {message}\n")
    return items


def list_policies(session: Session) -> None:
    items = listed(session, "resourcePolicies", "regions")
    if not items and "regions" in session.call.flags:
        session.warn_of_filter({"region"})
    session.show_list(items)


def list_reservations(session: Session) -> None:
    items = listed(session, "reservations", "zones")
    if not items and "zones" in session.call.flags:
        session.warn_of_filter({"zone"})
    session.show_list(items)


def describe_reservation(session: Session) -> None:
    zone = session.setting("zone", "compute/zone", "zone")
    session.show(
        session.send("GET", f"/compute/v1/projects/{session.project}/zones/{zone}/reservations/{session.call.name}")
    )


def describe_machine_type(session: Session) -> None:
    zone = session.call.flags.get("zone") or session.properties.get("compute/zone")
    if not zone:
        raise session.fail(f"Underspecified resource [{session.call.name}]. Specify the [--zone] flag.")
    session.show(
        session.send("GET", f"/compute/v1/projects/{session.project}/zones/{zone}/machineTypes/{session.call.name}")
    )


RUN: dict[str, Callable[[Session], None]] = {
    "compute resource-policies create workload-policy": create_policy,
    "compute resource-policies describe": describe_policy,
    "compute resource-policies delete": delete_policy,
    "compute resource-policies list": list_policies,
    "compute reservations describe": describe_reservation,
    "compute reservations list": list_reservations,
    "compute machine-types describe": describe_machine_type,
}
