"""The JobSet of a recipe that podwright itself trains: a public Python image, and the code as a ConfigMap, so that no image is built. Pure."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from importlib import resources

from podwright.errors import UserError
from podwright.recipe.maxtext import secret_values
from podwright.rundir import RunDir
from podwright.slices import Slice
from podwright.storage import inputs
from podwright.targets import scripts
from podwright.targets.base import Job
from podwright.targets.gke import jobset, xpk_shape
from podwright.targets.gke.jobset import Manifest
from podwright.targets.hosts.package import pack_code
from podwright.targets.settings.gke import GkeSettings

LARGEST_BYTES = 1 << 20
"""of a ConfigMap, as the API server counts: the JSON of its data"""
CODE_LABEL = "podwright-code"
SECRET = secret_values.SECRET
"""of Kubernetes, with variables such as HF_TOKEN; a run starts without it too"""
PORT = 8476
"""of the first host, where the processes of jax meet; not 8471, which libtpu takes"""
_SHARED = (
    *(
        "__init__.py",
        "errors.py",
        "extras.py",
        "accelerators.py",
        "accelerators.yaml",
        "attention_kernels.py",
        "cgroup.py",
        "counted_steps.py",
        "growing_file.py",
        "rundir.py",
    ),
    *("slices.py", "failures/", "storage/", "recipe/", "recipes/", "train/", "models/", "kernels/", "data/"),
)
_PARTS = ("code/recipes", *(f"code/podwright/{part}" for part in _SHARED))
_MOUNT = "/podwright"
CONTAINER = "trainer"


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


def start_script(job: Job, slice_: Slice, port: int | str) -> str:
    """start.sh of the pods: under which numbers their processes meet, at `port` of the first host, and what each is started with."""
    values = {
        "hosts": xpk_shape.vms_per_slice(slice_),
        "slices": slice_.num_slices,
        "port": port,
        "attempt": job.attempt,
        "environment": scripts.exports(job.environment),
    }
    return scripts.filled("gke/start.sh", values, trim=True)


def run_files(job: Job) -> dict[str, str]:
    """What a trainer reads of the directory of the run, by name, for pods that do not have it."""
    run = RunDir(job.run_dir)
    records = {"recipe.json": job.recipe} | ({"storage.json": {"url": job.storage}} if job.storage else {})
    if uploaded := inputs.planned(run, job.recipe, job.cwd):
        records[inputs.LIST] = uploaded
    texts = {name: json.dumps(record, indent=1) + "\n" for name, record in records.items()}
    return texts | ({run.profiled.name: run.profiled.read_text()} if run.profiled.is_file() else {})


def secret(name: str, own: GkeSettings, labels: Mapping[str, str], variables: Mapping[str, str]) -> Manifest:
    """The Secret `name` with the values of `variables`. It is written to no file, and shown to nobody."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in variables.items()}
    metadata = {"name": name, "namespace": own.namespace, "labels": dict(labels)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": metadata,
        "data": data,
    }


def config_map(files: Mapping[str, str], start: str, own: GkeSettings, name: str = "") -> Manifest:
    """Code, packages, `files` of the directory of the run, by name, and `start`, the script that each pod runs. UserError where it is too large.

    Named `name`, or by a hash of its contents, so that runs with the same contents share it.
    """
    code = base64.b64encode(archive()).decode()
    data = {
        "binaryData": {"code.tar.gz": code},
        "data": {**files, "requirements.txt": requirements(), "start.sh": start},
    }
    contents = json.dumps(data, sort_keys=True)
    if len(contents) > LARGEST_BYTES:
        what = f"code and recipe are {len(contents):,} bytes as a ConfigMap, which holds {LARGEST_BYTES:,}"
        raise UserError(what, "install podwright without files of your own in its package", "config-map-too-large")
    digest = hashlib.sha256(contents.encode()).hexdigest()[:12]
    metadata = {"name": name or f"podwright-{digest}", "namespace": own.namespace, "labels": {CODE_LABEL: digest}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata, **data}


def arguments(job: Job) -> list[str]:
    """Of start.sh: the directory of the run below its working directory, and the command that trains there."""
    run = f"runs/{job.run_dir.name}"
    return [run, *job.argv("python", run)]


def trainer_jobset(
    job: Job, own: GkeSettings, slice_: Slice, name: str, code: Manifest, secrets: Sequence[str] = (SECRET,)
) -> Manifest:
    """The JobSet `name`, whose pods mount the ConfigMap `code` and train by its start.sh, one process on each host.

    `secrets`: names of Secrets whose variables the processes get, where they exist; the last one counts.
    """
    vms = xpk_shape.vms_per_slice(slice_)
    container = {
        "name": CONTAINER,
        "image": own.python_image,
        "envFrom": jobset.from_secrets(secrets),
        "securityContext": {"privileged": True},
        "command": ["bash", f"{_MOUNT}/start.sh", *arguments(job)],
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
            {"name": "code", "configMap": {"name": code["metadata"]["name"], "defaultMode": 0o755}},
        ],
    }
    labels = {CODE_LABEL: code["metadata"]["labels"][CODE_LABEL]}
    of_slice = {
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
            "replicatedJobs": [{"name": "slice-job", "replicas": slice_.num_slices, "template": {"spec": of_slice}}],
        },
    }
