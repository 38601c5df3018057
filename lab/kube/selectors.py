"""Label and field selectors, as `kubectl -l` and `--field-selector` write them, made into functions of an object."""

import re
from collections.abc import Callable
from typing import Any

from lab.kube.errors import bad_request

Object = dict[str, Any]
Match = Callable[[Object], bool]

FIELDS = {
    "pods": (
        "spec.nodeName",
        "status.phase",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.podIP",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
        "source",
        "reportingComponent",
    ),
    "nodes": ("spec.unschedulable",),
    "jobs": ("status.successful",),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
}
ALWAYS = ("metadata.name", "metadata.namespace")


def compiled(resource: str, labels: str, fields: str) -> Match | None:
    """Both selectors together; None where neither selects."""
    tests = [*label_tests(labels), *field_tests(resource, fields)]
    return (lambda body: all(test(body) for test in tests)) if tests else None


def label_tests(text: str) -> list[Match]:
    """A label selector: `a=b, c!=d, e in (f, g), h notin (i), j, !k`."""
    return [label_test(part.strip()) for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def label_test(text: str) -> Match:
    if many := re.fullmatch(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)", text):
        key, operator, listed = many.groups()
        values = {value.strip() for value in listed.split(",")}
        return (lambda body: labels_of(body).get(key) in values) if operator == "in" else no_value_in(key, values)
    if pair := re.fullmatch(r"([^\s=!]+)\s*(==|=|!=)\s*(\S*)", text):
        key, operator, value = pair.groups()
        return no_value_in(key, {value}) if operator == "!=" else lambda body: labels_of(body).get(key) == value
    if exists := re.fullmatch(r"(!?)\s*([^\s=!(),]+)", text):
        absent, key = exists.groups()
        return lambda body: (key in labels_of(body)) != bool(absent)
    raise bad_request(f"unable to parse requirement: found '{text}', expected: in, notin, =, ==, !=, gt, lt")


def no_value_in(key: str, values: set[str]) -> Match:
    return lambda body: labels_of(body).get(key) not in values


def labels_of(body: Object) -> dict[str, str]:
    return body["metadata"].get("labels") or {}


def field_tests(resource: str, text: str) -> list[Match]:
    """A field selector; the API server knows few fields, others by resource."""
    return [field_test(resource, part.strip()) for part in text.split(",") if part.strip()]


def field_test(resource: str, text: str) -> Match:
    pair = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", text)
    if not pair:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    field, operator, value = pair.groups()
    if field not in (*ALWAYS, *FIELDS.get(resource, ())):
        raise bad_request(f"field label not supported: {field}")
    path = field.split(".")
    return lambda body: (value_at(body, path) == value) != (operator == "!=")


def value_at(body: Object, path: list[str]) -> str:
    value: Any = body
    for key in path:
        value = value.get(key, "") if isinstance(value, dict) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
