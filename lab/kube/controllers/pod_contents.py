"""What a pod's containers get: volumes as folders of this machine, variables, and the command. Nothing of it is kept after the pod."""

import base64
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.kube.controllers import objects
from lab.kube.controllers.objects import Json
from lab.kube.store import Store

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SERVICE = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class NotThere(Exception):
    """A ConfigMap or Secret, or a key of it, that a pod needs."""


def missing_volume(store: Store, pod: Json) -> str:
    """The kubelet's text for the first volume that cannot be made yet; "" where all can."""
    for volume in pod["spec"].get("volumes") or []:
        for kind, resource, field in (("configMap", "configmaps", "name"), ("secret", "secrets", "secretName")):
            source = volume.get(kind)
            if (
                source
                and not source.get("optional")
                and not store.find(resource, source[field], objects.namespace(pod))
            ):
                text = f'{kind.lower()} "{source[field]}" not found'
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {text}'
    return ""


def make_volumes(store: Store, pod: Json, folder: Path) -> dict[str, Path]:
    """Folders by name of the volume."""
    made = {}
    for volume in pod["spec"].get("volumes") or []:
        place = folder / "volumes" / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        if source := volume.get("configMap"):
            there = store.find("configmaps", source["name"], objects.namespace(pod)) or {}
            write_items(place, source, contents(there))
        elif source := volume.get("secret"):
            there = store.find("secrets", source["secretName"], objects.namespace(pod)) or {}
            write_items(place, source, contents(there))
        elif source := volume.get("hostPath"):
            place = Path(source["path"])
        made[volume["name"]] = place
    return made


def contents(body: Json) -> dict[str, bytes]:
    """Of a ConfigMap or a Secret, by key."""
    if body.get("kind") == "Secret":
        plain = {key: text.encode() for key, text in (body.get("stringData") or {}).items()}
        return {key: base64.b64decode(text) for key, text in (body.get("data") or {}).items()} | plain
    encoded = {key: base64.b64decode(text) for key, text in (body.get("binaryData") or {}).items()}
    return {key: text.encode() for key, text in (body.get("data") or {}).items()} | encoded


def write_items(place: Path, source: Json, values: Mapping[str, bytes]) -> None:
    items = source.get("items") or [{"key": key, "path": key} for key in values]
    for item in items:
        path = place / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(values[item["key"]])
        path.chmod(item.get("mode") or source.get("defaultMode") or 0o644)


def mounts(container: Json, volumes: Mapping[str, Path]) -> list[list[object]]:
    rows: list[list[object]] = []
    for mount in container.get("volumeMounts") or []:
        source = volumes[mount["name"]] / mount.get("subPath", "")
        if not source.exists():
            source.mkdir(parents=True)
        rows.append([str(source), mount["mountPath"], bool(mount.get("readOnly"))])
    return rows


def environment(store: Store, pod: Json, container: Json, folder: Path, settings: Json) -> dict[str, str]:
    """NotThere, with the kubelet's text, for a reference that leads nowhere."""
    python = str(Path(sys.executable).parent)
    values = {
        "PATH": ":".join([*settings["path"], python, PATH]),
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "HOSTNAME": pod["spec"].get("hostname") or objects.name(pod),
        **SERVICE,
        **{key: os.environ[key] for key in ("LANG", "LC_ALL") if key in os.environ},
    }
    for source in container.get("envFrom") or []:
        values |= {f"{source.get('prefix', '')}{key}": text for key, text in referenced(store, pod, source).items()}
    for each in container.get("env") or []:
        if "valueFrom" not in each:
            values[each["name"]] = expanded(str(each.get("value") or ""), values)
        elif (text := taken(store, pod, each["valueFrom"])) is not None:
            values[each["name"]] = text
    return values | settings["environment"]


def referenced(store: Store, pod: Json, source: Json) -> dict[str, str]:
    kind, resource = ("configMapRef", "configmaps") if "configMapRef" in source else ("secretRef", "secrets")
    reference = source[kind]
    there = store.find(resource, reference["name"], objects.namespace(pod))
    if there is None:
        if reference.get("optional"):
            return {}
        raise NotThere(f'{kind.removesuffix("Ref").lower()} "{reference["name"]}" not found')
    return {key: value.decode() for key, value in contents(there).items()}


def taken(store: Store, pod: Json, source: Json) -> str | None:
    """None: an optional reference that leads nowhere."""
    if field := source.get("fieldRef"):
        return field_of(pod, field["fieldPath"])
    if "resourceFieldRef" in source:
        return "0"
    kind, resource = ("configMapKeyRef", "configmaps") if "configMapKeyRef" in source else ("secretKeyRef", "secrets")
    reference = source[kind]
    there = store.find(resource, reference["name"], objects.namespace(pod))
    noun = {"configmaps": "ConfigMap", "secrets": "Secret"}[resource]
    values = contents(there) if there else {}
    if reference["key"] in values:
        return values[reference["key"]].decode()
    if reference.get("optional"):
        return None
    if there is None:
        raise NotThere(f'{noun.lower()} "{reference["name"]}" not found')
    raise NotThere(f"couldn't find key {reference['key']} in {noun} {objects.namespace(pod)}/{reference['name']}")


def field_of(pod: Json, path: str) -> str:
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return "127.0.0.1"
    value: object = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def expanded(text: str, values: Mapping[str, str]) -> str:
    """$(NAME) of what is known; $$(NAME) stays."""

    def replace(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        return values.get(match[1], match[0])

    return re.sub(r"\$?\$\(([A-Za-z_][\w.-]*)\)", replace, text)


def command(container: Json, values: Mapping[str, str]) -> list[str]:
    """[] for a container that relies on its image's entry point, which is not there."""
    words = [*(container.get("command") or []), *(container.get("args") or [])] if container.get("command") else []
    return [expanded(str(word), values) for word in words]


def hosts_file(store: Store, pod: Json) -> str:
    """Names of all pods of its JobSet, at this machine."""
    subdomain = pod["spec"].get("subdomain", "")
    lines = ["127.0.0.1 localhost", f"127.0.0.1 {pod['spec'].get('hostname') or objects.name(pod)}"]
    for job in store.list("jobs", objects.namespace(pod)) if subdomain else []:
        if (job["spec"]["template"]["spec"] or {}).get("subdomain") == subdomain:
            names = [f"{objects.name(job)}-{index}" for index in range(job["spec"].get("completions", 1))]
            lines += [f"127.0.0.1 {name}.{subdomain} {name}" for name in names]
    return "\n".join(lines) + "\n"
