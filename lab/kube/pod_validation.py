"""What the API server refuses of pods and jobs beyond their form: mounts without a volume, TPU requests that differ from limits, restart policies, names."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
Causes = Iterator[tuple[str, str]]
DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{DNS_LABEL}')"
)


def job_causes(name: str, spec: Object) -> Causes:
    template = spec.get("template", {}).get("spec", {})
    place = "spec.template.spec.restartPolicy"
    policy = template.get("restartPolicy", "Always")
    if policy not in ("OnFailure", "Never"):
        yield place, f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
    elif spec.get("podFailurePolicy") and policy != "Never":
        yield place, f'Invalid value: "{policy}": only "Never" is supported when podFailurePolicy is specified'
    for field in ("activeDeadlineSeconds", "backoffLimit", "completions", "parallelism", "ttlSecondsAfterFinished"):
        if spec.get(field, 0) < 0:
            yield f"spec.{field}", f"Invalid value: {spec[field]}: must be greater than or equal to 0"
    if spec.get("completionMode") == "Indexed":
        if "completions" not in spec:
            yield "spec.completions", "Required value: when completion mode is Indexed"
        last = f"{name}-{max(spec.get('completions', 1) - 1, 0)}"
        if len(last) > 63:
            text = f"will not able to create pod with invalid DNS label: {last}"
            yield "metadata.name", f'Invalid value: "{name}": {text}'
    yield from rules_causes(spec.get("podFailurePolicy") or {}, template)
    yield from pod_causes(template, "spec.template.spec")


def rules_causes(policy: Object, template: Object) -> Causes:
    containers = {c.get("name") for c in (*template.get("containers", ()), *(template.get("initContainers") or ()))}
    for number, rule in enumerate(policy.get("rules", ())):
        place = f"spec.podFailurePolicy.rules[{number}]"
        if rule["action"] not in ("FailIndex", "FailJob", "Ignore", "Count"):
            supported = '"Count", "FailIndex", "FailJob", "Ignore"'
            yield f"{place}.action", f'Unsupported value: "{rule["action"]}": supported values: {supported}'
        codes = rule.get("onExitCodes")
        if (codes is None) == (not rule.get("onPodConditions")):
            yield place, 'Invalid value: "": specifying one of OnExitCodes and OnPodConditions is required'
        if codes and codes.get("containerName") not in (None, *containers):
            name = codes["containerName"]
            yield (
                f"{place}.onExitCodes.containerName",
                f'Invalid value: "{name}": must be one of the container or initContainer names in the pod template',
            )
        if codes and codes["operator"] == "In" and 0 in codes["values"]:
            yield (
                f"{place}.onExitCodes.values[{codes['values'].index(0)}]",
                "Invalid value: 0: must not be 0 for the In operator",
            )
        if codes and codes["values"] != sorted(set(codes["values"])):
            yield f"{place}.onExitCodes.values", "Invalid value: must be ordered and without duplicates"


def pod_causes(spec: Object, place: str) -> Causes:
    volumes = [volume.get("name", "") for volume in spec.get("volumes") or ()]
    yield from name_causes(volumes, f"{place}.volumes")
    for group in ("containers", "initContainers"):
        containers = spec.get(group) or ()
        if group == "containers" and containers == []:
            yield f"{place}.containers", "Required value"
        yield from name_causes([c.get("name", "") for c in containers], f"{place}.{group}")
        for number, container in enumerate(containers):
            yield from container_causes(container, f"{place}.{group}[{number}]", set(volumes), spec)
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            text = f"Invalid value: \"{toleration['value']}\": value must be empty when `operator` is 'Exists'"
            yield f"{place}.tolerations[{number}].operator", text
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield f"{place}.terminationGracePeriodSeconds", "Invalid value: must be greater than or equal to 0"


def name_causes(names: list[str], place: str) -> Causes:
    counts = Counter(names)
    for number, name in enumerate(names):
        if not re.fullmatch(DNS_LABEL, name) or len(name) > 63:
            yield f"{place}[{number}].name", f'Invalid value: "{name}": {NAME_TEXT}'
        if counts[name] > 1 and names.index(name) != number:
            yield f"{place}[{number}].name", f'Duplicate value: "{name}"'


def container_causes(container: Object, place: str, volumes: set[str], spec: Object) -> Causes:
    if not container.get("image"):
        yield f"{place}.image", "Required value"
    mounts = container.get("volumeMounts") or ()
    paths = [mount["mountPath"] for mount in mounts]
    for number, mount in enumerate(mounts):
        if mount["name"] not in volumes:
            yield f"{place}.volumeMounts[{number}].name", f'Not found: "{mount["name"]}"'
        if paths.index(mount["mountPath"]) != number:
            yield f"{place}.volumeMounts[{number}].mountPath", f'Invalid value: "{mount["mountPath"]}": must be unique'
    for number, variable in enumerate(container.get("env") or ()):
        if variable.get("value") and variable.get("valueFrom"):
            yield (
                f"{place}.env[{number}].valueFrom",
                'Invalid value: "": may not be specified when `value` is not empty',
            )
    for number, port in enumerate(container.get("ports") or ()):
        if spec.get("hostNetwork") and port.get("hostPort") not in (None, port["containerPort"]):
            text = f"Invalid value: {port['hostPort']}: must match `containerPort` when `hostNetwork` is true"
            yield f"{place}.ports[{number}].hostPort", text
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in requests.items():
        if "/" not in name:
            continue
        if name not in limits:
            yield f"{place}.resources.limits", "Required value: Limit must be set for non overcommitable resources"
        elif str(limits[name]) != str(amount):
            yield (
                f"{place}.resources.requests",
                f'Invalid value: "{amount}": must be equal to {name} limit of {limits[name]}',
            )
