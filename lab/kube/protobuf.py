"""The few kinds that kubectl sends as protobuf (`create secret`, `create priorityclass`, `auth can-i`), made into JSON objects.

Field numbers: the `generated.proto` files of the Kubernetes API.
"""

import base64
from collections.abc import Iterator
from typing import Any

from lab.kube.errors import ApiError

Object = dict[str, Any]
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
OPENAPI_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
# A Document of OpenAPI 2 with its version, an info of title and version, no paths and no definitions, for kubectl before 1.28: it then validates nothing.
EMPTY_OPENAPI = b"\x0a\x032.0\x12\x06\x0a\x01k\x12\x011\x42\x00\x4a\x00"

TEXT, NUMBER, FLAG, MAP, BYTES_MAP = "text", "number", "flag", "map", "bytes map"
META = {1: ("name", TEXT), 2: ("generateName", TEXT), 3: ("namespace", TEXT), 11: ("labels", MAP)}
META |= {12: ("annotations", MAP)}
RESOURCE = {1: ("namespace", TEXT), 2: ("verb", TEXT), 3: ("group", TEXT), 4: ("version", TEXT), 5: ("resource", TEXT)}
RESOURCE |= {6: ("subresource", TEXT), 7: ("name", TEXT)}
PATH = {1: ("path", TEXT), 2: ("verb", TEXT)}
REVIEW = {1: ("resourceAttributes", RESOURCE), 2: ("nonResourceAttributes", PATH)}
KINDS: dict[str, dict[int, tuple[str, Any]]] = {
    "Secret": {2: ("data", BYTES_MAP), 3: ("type", TEXT), 4: ("stringData", MAP), 5: ("immutable", FLAG)},
    "ConfigMap": {2: ("data", MAP), 3: ("binaryData", BYTES_MAP), 4: ("immutable", FLAG)},
    "Namespace": {},
    "PriorityClass": {
        2: ("value", NUMBER),
        3: ("globalDefault", FLAG),
        4: ("description", TEXT),
        5: ("preemptionPolicy", TEXT),
    },
    "SelfSubjectAccessReview": {2: ("spec", REVIEW)},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", TEXT)})},
}


def decoded(text: bytes) -> Object:
    """The object in the envelope `Unknown`: its apiVersion and kind, and its bytes."""
    envelope = list(fields(text.removeprefix(MAGIC)))
    named = {number: value.decode() for field, value in envelope if field == 1 for number, value in fields(value)}
    version, kind = named.get(1, ""), named.get(2, "")
    if not text.startswith(MAGIC) or kind not in KINDS:
        raise ApiError(415, "UnsupportedMediaType", f"lab: no protobuf of {version} {kind} here")
    raw = next((value for field, value in envelope if field == 2), b"")
    return {"apiVersion": version, "kind": kind} | message(raw, {1: ("metadata", META)} | KINDS[kind])


def message(text: bytes, shape: dict[int, tuple[str, Any]]) -> Object:
    body: Object = {}
    for number, value in fields(text):
        if number not in shape:
            continue
        name, kind = shape[number]
        if kind in (MAP, BYTES_MAP):
            pair = dict(fields(value))
            content = pair.get(2, b"")
            body.setdefault(name, {})[pair[1].decode()] = (
                content.decode() if kind == MAP else base64.b64encode(content).decode()
            )
        elif isinstance(kind, dict):
            body[name] = message(value, kind)
        elif kind == NUMBER:
            body[name] = value
        elif value not in (b"", 0):
            body[name] = bool(value) if kind == FLAG else value.decode()
    return body


def fields(text: bytes) -> Iterator[tuple[int, Any]]:
    """(number, bytes or integer) of a message, by the wire types that these kinds use."""
    position = 0
    while position < len(text):
        key, position = varint(text, position)
        value, position = varint(text, position)
        if key & 7 == 2:
            yield key >> 3, text[position : position + value]
            position += value
        else:
            assert key & 7 == 0, "only varint and length-delimited fields"
            yield key >> 3, value


def varint(text: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = text[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
