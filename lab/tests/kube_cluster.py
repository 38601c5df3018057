"""Objects to put into a simulated cluster, and what the kubectl of this machine can do."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest


def client_minor() -> int:
    """20 for kubectl 1.20, the oldest that was tried; 0 where there is none."""
    if shutil.which("kubectl") is None:
        return 0
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    return int(re.sub(r"\D", "", json.loads(done.stdout)["clientVersion"]["minor"]))


MINOR = client_minor()
needs_kubectl = pytest.mark.skipif(MINOR == 0, reason="kubectl is not installed")
# exec over websockets, validation by the server, --subresource
needs_new_kubectl = pytest.mark.skipif(MINOR < 31, reason=f"kubectl is 1.{MINOR}, older than 1.31")


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
