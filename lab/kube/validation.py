"""What the API server checks of every object before it stores it: names, labels, sizes."""

import re
from typing import Any

from lab.kube import pod_validation, schema
from lab.kube.discovery import Resource
from lab.kube.errors import invalid

Object = dict[str, Any]
LABEL = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
DATA_BYTES = 1 << 20
ANNOTATION_BYTES = 256 << 10

LABEL_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{LABEL}')"
)
KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
DNS_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
    f"character (e.g. 'my-name',  or '123-abc', regex used for validation is '{DNS_LABEL}')"
)
LABEL_NAMED = {"namespaces", "services"}


def check(row: Resource, body: Object, old: Object | None = None) -> None:
    """Raises 422 with every cause."""
    metadata = body["metadata"]
    name = metadata.get("name", "")
    causes = [] if old else list(name_causes(row, metadata))
    if old is None or metadata.get("labels") != old["metadata"].get("labels"):
        causes += label_causes("metadata.labels", metadata.get("labels") or {})
    annotations = metadata.get("annotations") or {}
    if sum(len(key) + len(str(value)) for key, value in annotations.items()) > ANNOTATION_BYTES:
        causes.append(("metadata.annotations", f"Too long: may not be more than {ANNOTATION_BYTES} bytes"))
    causes += schema.missing(row, body) if old is None else ()
    if row.plural == "pods" and old is None:
        causes += pod_validation.pod_causes(body.get("spec") or {}, "spec")
    if row.plural == "jobs" and old is None:
        causes += pod_validation.job_causes(name, body.get("spec") or {})
    if row.plural in ("configmaps", "secrets"):
        causes += data_causes(row, body, old)
    if causes:
        raise invalid(row.kind, row.group, name, causes)


def name_causes(row: Resource, metadata: Object) -> list[tuple[str, str]]:
    name = metadata.get("name", "")
    if not name:
        return [("metadata.name", "Required value: name or generateName is required")]
    pattern, text, most = SUBDOMAIN, SUBDOMAIN_TEXT, 253
    if row.plural in LABEL_NAMED:
        pattern, text, most = DNS_LABEL, DNS_LABEL_TEXT, 63
    causes = []
    if not re.fullmatch(pattern, name):
        causes.append(("metadata.name", f'Invalid value: "{name}": {text}'))
    if len(name) > most:
        causes.append(("metadata.name", f'Invalid value: "{name}": must be no more than {most} characters'))
    return causes


def label_causes(field: str, labels: dict[str, str]) -> list[tuple[str, str]]:
    causes = []
    for key, value in labels.items():
        prefix, _, name = key.rpartition("/")
        if not re.fullmatch(QUALIFIED, name):
            causes.append((field, f'Invalid value: "{key}": {KEY_TEXT}'))
        if len(name) > 63:
            causes.append((field, f'Invalid value: "{key}": name part must be no more than 63 characters'))
        if prefix and not re.fullmatch(SUBDOMAIN, prefix):
            causes.append((field, f'Invalid value: "{key}": prefix part {SUBDOMAIN_TEXT}'))
        if len(value) > 63:
            causes.append((field, f'Invalid value: "{value}": must be no more than 63 characters'))
        if not re.fullmatch(LABEL, value):
            causes.append((field, f'Invalid value: "{value}": {LABEL_TEXT}'))
    return causes


def data_causes(row: Resource, body: Object, old: Object | None) -> list[tuple[str, str]]:
    causes = []
    data = {**(body.get("data") or {}), **(body.get("binaryData") or {})}
    if sum(len(str(value)) for value in data.values()) > DATA_BYTES:
        causes.append(
            ("data" if row.plural == "secrets" else "[]", f"Too long: may not be more than {DATA_BYTES} bytes")
        )
    for key in data:
        if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
            text = (
                f"Invalid value: \"{key}\": a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            )
            causes.append((f"data[{key}]", text))
    if (
        old
        and old.get("immutable")
        and (old.get("data"), old.get("binaryData")) != (body.get("data"), body.get("binaryData"))
    ):
        causes.append(("data", "Forbidden: field is immutable when `immutable` is set"))
    return causes
