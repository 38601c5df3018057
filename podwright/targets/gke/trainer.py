"""The JobSet of a recipe that podwright itself trains: a public Python image, and the code as a ConfigMap, so that no image is built. Pure."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from importlib import resources
from typing import Any

from podwright.errors import UserError
from podwright.recipe.kinds import Recipe
from podwright.slices import Slice
from podwright.targets.gke import jobset, xpk_shape
from podwright.targets.gke.jobset import Manifest
from podwright.targets.hosts.package import pack_code
from podwright.targets.settings.gke import GkeSettings

LARGEST_BYTES = 1 << 20
"""of a ConfigMap, as the API server counts: the JSON of its data"""
CODE_LABEL = "podwright-code"
SECRET = "podwright-env"
"""of Kubernetes, with variables such as HF_TOKEN; a run starts without it too"""
PORT = 8476
"""of the first host, where the processes of jax meet; not 8471, which libtpu takes"""
_MODULES = ("__init__.py", "errors.py", "accelerators.py", "slices.py", "rundir.py")
_FOLDERS = ("storage", "recipe", "recipes", "train", "models", "kernels", "data")
_PARTS = ("code/recipes", *(f"code/podwright/{part}" for part in (*_MODULES, *(f"{each}/" for each in _FOLDERS))))
_MOUNT = "/podwright"
_CONTAINER = "trainer"


def archive() -> bytes:
    """The half of the package that trains, and what both halves share; the same bytes for the same contents."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if not member.name.startswith(_PARTS):
            return None
        member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        pack_code(tar, plain)
    return gzip.compress(buffer.getvalue(), mtime=0)


def requirements() -> str:
    return (resources.files("podwright.targets.gke") / "requirements.txt").read_text()


def config_map(recipe: Recipe, start: str, own: GkeSettings) -> Manifest:
    """Code, recipe, packages and `start`, the script that each pod runs. A hash of the contents is in its name, so that a run keeps the
    code that it started with. UserError where it is too large."""
    code = base64.b64encode(archive()).decode()
    recipe_text = json.dumps(recipe.model_dump(mode="json"), indent=1) + "\n"
    texts = {"recipe.json": recipe_text, "requirements.txt": requirements(), "start.sh": start}
    data = {"binaryData": {"code.tar.gz": code}, "data": texts}
    contents = json.dumps(data, sort_keys=True)
    if len(contents) > LARGEST_BYTES:
        what = f"code and recipe are {len(contents):,} bytes as a ConfigMap, which holds {LARGEST_BYTES:,}"
        raise UserError(what, "install podwright without files of your own in its package")
    digest = hashlib.sha256(contents.encode()).hexdigest()[:12]
    metadata = {"name": f"podwright-{digest}", "namespace": own.namespace, "labels": {CODE_LABEL: digest}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata, **data}


def trainer_jobset(own: GkeSettings, slice_: Slice, name: str, code: str) -> Manifest:
    """The JobSet `name`, whose pods mount the ConfigMap `code` and run start.sh of it, one process on each host."""
    vms = xpk_shape.vms_per_slice(slice_)
    environment: list[dict[str, Any]] = []
    if own.bucket:
        environment.append({"name": "PODWRIGHT_STORAGE", "value": f"{own.bucket}/{name}"})
    container = {
        "name": _CONTAINER,
        "image": own.python_image,
        "env": environment,
        "envFrom": [{"secretRef": {"name": SECRET, "optional": True}}],
        "securityContext": {"privileged": True},
        "command": ["bash", f"{_MOUNT}/start.sh"],
        "resources": {"limits": {"google.com/tpu": xpk_shape.chips_per_vm(slice_)}},
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "shm"}, {"mountPath": _MOUNT, "name": "code"}],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": jobset.node_selector(slice_),
        "priorityClassName": own.priority or jobset.PRIORITY,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 180,  # a step and a checkpoint fit in it
        "containers": [container],
        "tolerations": [{"operator": "Exists", "key": "google.com/tpu"}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "code", "configMap": {"name": code, "defaultMode": 0o755}},
        ],
    }
    labels = {CODE_LABEL: code.removeprefix("podwright-")}
    job = {
        "parallelism": vms,
        "completions": vms,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {
        "apiVersion": jobset.API_VERSION,
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": own.namespace,
            "labels": {jobset.QUEUE_LABEL: own.queue} | labels,
            "annotations": dict(jobset.EXCLUSIVE),
        },
        "spec": {
            "ttlSecondsAfterFinished": 43200,
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [{"name": "slice-job", "replicas": 1, "template": {"spec": job}}],
        },
    }
