"""Kueue's two API versions: objects are kept as v1beta1, and read and written as either; the differences that matter to runs.

A cluster of today serves both and prefers v1beta2, so `kubectl get workloads` shows that; v1beta1 answers with a warning.
"""

from typing import Any

from lab.kube.discovery import KUEUE, Resource

Object = dict[str, Any]
WARNING = "This version is deprecated. Use v1beta2 instead."
RENAMED = {
    "clusterqueues": [("spec", "cohort", "cohortName")],
    "localqueues": [("status", "flavorUsage", "flavorsUsage")],
    "workloads": [("status", "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")],
}


def shown(row: Resource, body: Object, version: str) -> Object:
    """A kept object as another version shows it."""
    if version == row.version:
        return body
    copy = body | {"apiVersion": f"{row.group}/{version}"}
    for part, ours, theirs in RENAMED.get(row.plural, ()):
        if ours in copy.get(part, {}):
            copy[part] = {theirs if key == ours else key: value for key, value in copy[part].items()}
    spec = copy.get("spec", {})
    if row.plural == "workloads" and spec.get("priorityClassName"):
        source = spec.get("priorityClassSource", "")
        group = source.partition("/")[0]
        reference = {"group": group, "kind": "WorkloadPriorityClass" if group == KUEUE else "PriorityClass"}
        copy["spec"] = {key: value for key, value in spec.items() if not key.startswith("priorityClass")}
        copy["spec"]["priorityClassRef"] = reference | {"name": spec["priorityClassName"]}
    return copy


def kept(row: Resource, body: Object, version: str) -> Object:
    """What a client gave in another version, as it is kept."""
    if version == row.version:
        return body
    copy = body | {"apiVersion": row.api_version}
    for part, ours, theirs in RENAMED.get(row.plural, ()):
        if isinstance(copy.get(part), dict) and theirs in copy[part]:
            copy[part] = {ours if key == theirs else key: value for key, value in copy[part].items()}
    if row.plural == "workloads" and (reference := copy.get("spec", {}).get("priorityClassRef")):
        spec = {key: value for key, value in copy["spec"].items() if key != "priorityClassRef"}
        source = (
            "kueue.x-k8s.io/workloadpriorityclass" if reference["group"] == KUEUE else "scheduling.k8s.io/priorityclass"
        )
        copy["spec"] = spec | {"priorityClassName": reference["name"], "priorityClassSource": source}
    return copy
