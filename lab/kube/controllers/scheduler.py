"""The scheduler: pods get nodes by selectors, taints, google.com/tpu and pod affinity; what does not fit says why. Texts of Kubernetes 1.32."""

from collections import Counter
from collections.abc import Mapping

from lab.kube.controllers import knobs, objects
from lab.kube.controllers.objects import Json
from lab.kube.store import Store

COMPONENT = "default-scheduler"
SELECTOR = "node(s) didn't match Pod's node affinity/selector"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
CLOSED = "node(s) were unschedulable"
HELPLESS = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


class Scheduler:
    def step(self, store: Store, now: float) -> None:
        pods = store.list("pods")
        waiting = [pod for pod in pods if not objects.spec(pod).get("nodeName") and not objects.deleting(pod)]
        if not waiting:
            return
        nodes = store.list("nodes")
        placed = [pod for pod in pods if objects.spec(pod).get("nodeName") and not objects.finished(pod)]
        there = {objects.name(node): node for node in nodes}
        rows = knobs.of(store)["scale_up"]
        used = usage(placed)
        for pod in waiting:
            refusals = {name: refusal(pod, node, placed, there, used) for name, node in there.items()}
            fitting = sorted(name for name, text in refusals.items() if not text)
            if not fitting:
                self.refuse(store, pod, Counter(refusals.values()), now)
                row = knobs.matching(rows, pod)
                if row:
                    store.record_event("pods", pod, "Normal", "NotTriggerScaleUp", row["message"], "cluster-autoscaler")
                continue
            bound = bind(store, pod, fitting[0], now)
            if bound:
                placed.append(bound)
                used += usage([bound])

    def refuse(self, store: Store, pod: Json, refusals: Mapping[str, int], now: float) -> None:
        total = sum(refusals.values())
        text = "no nodes available to schedule pods"
        if total:
            reasons = sorted(f"{number} {reason}" for reason, number in refusals.items())
            helpless = sum(
                n for reason, n in refusals.items() if not reason.startswith("Insufficient") and reason != ANTI_AFFINITY
            )
            hints = sorted(
                f"{number} {hint}" for hint, number in ((HELPLESS, helpless), (NO_VICTIMS, total - helpless)) if number
            )
            text = f"0/{total} nodes are available: {', '.join(reasons)}. "
            text += f"preemption: 0/{total} nodes are available: {', '.join(hints)}."
        if objects.add_condition(store, "pods", pod, now, "PodScheduled", False, "Unschedulable", text):
            store.record_event("pods", pod, "Warning", "FailedScheduling", text, COMPONENT)


def bind(store: Store, pod: Json, node: str, now: float) -> Json | None:
    def function(copy: Json) -> None:
        copy["spec"]["nodeName"] = node
        objects.set_condition(copy, now, "PodScheduled", True, "", "")

    bound = objects.change(store, "pods", pod, function)
    if bound:
        text = f"Successfully assigned {objects.key(pod)} to {node}"
        store.record_event("pods", pod, "Normal", "Scheduled", text, COMPONENT)
    return bound


def usage(placed: list[Json]) -> Counter[tuple[str, str]]:
    """By node and resource."""
    used: Counter[tuple[str, str]] = Counter()
    for pod in placed:
        for resource, amount in objects.requests(pod["spec"]).items():
            used[pod["spec"]["nodeName"], resource] += amount
    return used


def refusal(
    pod: Json, node: Json, placed: list[Json], nodes: Mapping[str, Json], used: Mapping[tuple[str, str], int]
) -> str:
    """Why a node does not take a pod; "" where it does."""
    own, name = pod["spec"], objects.name(node)
    if objects.spec(node).get("unschedulable"):
        return CLOSED
    if taint := untolerated(objects.spec(node).get("taints") or [], own.get("tolerations") or []):
        value = f"{taint['key']}: {taint.get('value', '')}"
        return f"node(s) had untolerated taint {{{value}}}"
    if not selects(own, objects.labels(node)):
        return SELECTOR
    free = objects.status(node).get("allocatable") or {}
    for resource, amount in sorted(objects.requests(own).items()):
        if resource in ("cpu", "memory") and resource not in free:
            continue
        if used.get((name, resource), 0) + amount > objects.quantity(resource, free.get(resource, 0)):
            return f"Insufficient {resource}"
    affinity = own.get("affinity") or {}
    for term in required(affinity, "podAffinity"):
        if not attracted(term, pod, node, placed, nodes):
            return AFFINITY
    for term in required(affinity, "podAntiAffinity"):
        if any(same_domain(term, other, node, nodes) for other in matched(term, placed)):
            return ANTI_AFFINITY
    for other in placed:
        terms = required(other["spec"].get("affinity") or {}, "podAntiAffinity") if "affinity" in other["spec"] else []
        if any(same_domain(term, other, node, nodes) and label_match(term["labelSelector"], pod) for term in terms):
            return ANTI_AFFINITY
    return ""


def selects(pod_spec: Json, labels: Mapping[str, str]) -> bool:
    wanted = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = (affinity or {}).get("nodeSelectorTerms") or []
    return not terms or any(
        all(expression_match(each, labels) for each in term.get("matchExpressions") or []) for term in terms
    )


def untolerated(taints: list[Json], tolerations: list[Json]) -> Json | None:
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def required(affinity: Json, kind: str) -> list[Json]:
    terms: list[Json] = (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or []
    return terms


def matched(term: Json, placed: list[Json]) -> list[Json]:
    return [pod for pod in placed if label_match(term["labelSelector"], pod)]


def attracted(term: Json, pod: Json, node: Json, placed: list[Json], nodes: Mapping[str, Json]) -> bool:
    if term["topologyKey"] not in objects.labels(node):
        return False
    others = matched(term, placed)
    if not others:  # the first of a group may go anywhere
        return label_match(term["labelSelector"], pod)
    return any(same_domain(term, other, node, nodes) for other in others)


def same_domain(term: Json, other: Json, node: Json, nodes: Mapping[str, Json]) -> bool:
    there = nodes.get(other["spec"]["nodeName"])
    value = objects.labels(node).get(term["topologyKey"])
    return value is not None and there is not None and objects.labels(there).get(term["topologyKey"]) == value


def label_match(selector: Json, pod: Json) -> bool:
    labels = objects.labels(pod)
    exact = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return exact and all(expression_match(each, labels) for each in selector.get("matchExpressions") or [])


def expression_match(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
