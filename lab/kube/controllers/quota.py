"""Whether a workload fits a ClusterQueue: flavors by labels and taints, quotas by resource. Pure. Texts are those of Kueue's flavor assigner."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.kube.controllers import objects, scheduler
from lab.kube.controllers.objects import Json

Usage = Mapping[tuple[str, str], int]  # by flavor and resource


@dataclass
class Verdict:
    """`flavors`: {pod set: {resource: flavor}} where all fits; else why not."""

    flavors: dict[str, dict[str, str]] = field(default_factory=dict)
    usage: dict[tuple[str, str], int] = field(default_factory=dict)
    message: str = ""
    reason: str = ""
    """in the words of Kueue 0.19"""

    @property
    def fits(self) -> bool:
        return not self.message


def shown(resource: str, amount: int) -> str:
    """cpu is counted in thousandths."""
    return f"{amount}m" if resource == "cpu" and amount % 1000 else str(amount // 1000 if resource == "cpu" else amount)


def assign(queue: Json, flavors: Mapping[str, Json], used: Usage, pod_sets: list[Json]) -> Verdict:
    """The first flavor that takes each pod set whole."""
    verdict = Verdict()
    for pod_set in pod_sets:
        own = pod_set["template"]["spec"]
        wanted = {resource: amount * pod_set["count"] for resource, amount in objects.requests(own).items()}
        reasons, chosen, kind = choose(queue, flavors, used, verdict.usage, own, wanted)
        if chosen is None:
            text = f"couldn't assign flavors to pod set {pod_set['name']}: {', '.join(reasons)}"
            return Verdict(message=text, reason=kind)
        verdict.flavors[pod_set["name"]] = chosen
        for resource, flavor in chosen.items():
            verdict.usage[flavor, resource] = verdict.usage.get((flavor, resource), 0) + wanted[resource]
    return verdict


def choose(
    queue: Json, flavors: Mapping[str, Json], used: Usage, own_usage: Usage, pod: Json, wanted: Mapping[str, int]
) -> tuple[list[str], dict[str, str] | None, str]:
    """(reasons, flavor by resource, kind of the refusal)."""
    chosen: dict[str, str] = {}
    for resource in wanted:
        if resource in chosen:
            continue
        group = next((g for g in queue["spec"].get("resourceGroups") or [] if resource in g["coveredResources"]), None)
        if group is None:
            return [f"resource {resource} unavailable in ClusterQueue"], None, "Misconfigured"
        covered = {name: amount for name, amount in wanted.items() if name in group["coveredResources"]}
        keys = {key for row in group["flavors"] for key in labels_of(flavors.get(row["name"]))}
        reasons, kinds = [], []
        for row in group["flavors"]:
            texts, kind = misfit(row, flavors.get(row["name"]), keys, used, own_usage, pod, covered)
            if not texts:
                chosen |= dict.fromkeys(covered, row["name"])
                break
            reasons += texts
            kinds.append(kind)
        else:
            order = ("WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")
            return reasons, None, next((each for each in order if each in kinds), "NoMatchingFlavor")
    return [], chosen, ""


def labels_of(flavor: Json | None) -> dict[str, str]:
    labels: dict[str, str] = objects.spec(flavor or {}).get("nodeLabels") or {}
    return labels


def misfit(
    row: Json, flavor: Json | None, keys: set[str], used: Usage, own_usage: Usage, pod: Json, wanted: Mapping[str, int]
) -> tuple[list[str], str]:
    """Why a flavor does not take a pod set, and of which kind that is."""
    name = row["name"]
    if flavor is None:
        return [f"flavor {name} not found"], "NoMatchingFlavor"
    own = objects.spec(flavor)
    tolerations = [*(pod.get("tolerations") or []), *(own.get("tolerations") or [])]
    if taint := scheduler.untolerated(own.get("nodeTaints") or [], tolerations):
        text = f"&Taint{{Key:{taint['key']},Value:{taint.get('value', '')},Effect:{taint['effect']},TimeAdded:<nil>,}}"
        return [f"untolerated taint {text} in flavor {name}"], "NoMatchingFlavor"
    selector = {key: value for key, value in (pod.get("nodeSelector") or {}).items() if key in keys}
    if any(labels_of(flavor).get(key) != value for key, value in selector.items()):
        return [f"flavor {name} doesn't match node affinity"], "NoMatchingFlavor"
    quotas = {each["name"]: objects.quantity(each["name"], each["nominalQuota"]) for each in row["resources"]}
    texts, kind = [], ""
    for resource, amount in wanted.items():
        before, most = own_usage.get((name, resource), 0), quotas.get(resource, 0)
        where = f"for {resource} in flavor {name}"
        if before + amount > most:
            considered = f"previously considered podsets requests ({shown(resource, before)})"
            request = f"current podset request ({shown(resource, amount)}) > maximum capacity ({shown(resource, most)})"
            texts.append(f"insufficient quota {where}, {considered} + {request}")
            kind = "ExceedsMaxQuota"
        elif (lack := used.get((name, resource), 0) + before + amount - most) > 0:
            texts.append(f"insufficient unused quota {where}, {shown(resource, lack)} more needed")
            kind = kind or "WaitingForQuota"
    return texts, kind
