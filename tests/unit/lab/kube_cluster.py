"""Objects to put into a simulated cluster."""

import json
from typing import Any


def jobset(name: str, **labels: str) -> str:
    metadata = {"name": name, "labels": labels}
    return json.dumps({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": {}})


def pod(name: str, **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "i"}]} | more.pop("spec", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name} | more.pop("metadata", {}),
        "spec": spec,
    } | more
