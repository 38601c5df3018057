"""Everything that a simulated cloud and its cluster have, to be compared before and after a run."""

import json
from typing import Any

from lab.gcloud.control import Gcloud
from lab.kube.control import Kube
from lab.kube.discovery import RESOURCES

VERDICTS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")  # are answers, and not kept
HISTORY = ("events",)
CLOUD = {
    "pools": ("container", "node-pools", "list", "--cluster=my-cluster", "--location=us-central1"),
    "policies": ("compute", "resource-policies", "list"),
    "reservations": ("compute", "reservations", "list"),
}


def inventory(gcloud: Gcloud, kube: Kube) -> dict[str, Any]:
    """The cloud's own lists, and each object of the cluster with all its fields, its resourceVersion among them."""
    listed = {name: _rows(gcloud, words) for name, words in CLOUD.items()}
    objects = {
        f"{kind}/{each['metadata'].get('namespace', '')}/{each['metadata']['name']}": each
        for kind in RESOURCES
        if kind not in VERDICTS + HISTORY
        for each in kube.objects(kind)
    }
    return listed | {"objects": objects}


def _rows(gcloud: Gcloud, words: tuple[str, ...]) -> list[Any]:
    done = gcloud.call(*words, "--project=my-project", "--format=json")
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(done.stdout), key=lambda row: str(row["name"]))
