"""A target of kind gke, for tests."""

from typing import Any

from podwright.targets.settings.gke import GkeSettings

ENTRY: dict[str, Any] = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": ["us-central1-ai1a"],
    "bucket": "gs://my-bucket/runs",
    "image": "us-docker.pkg.dev/my-project/images/maxtext:v1",
}


def gke(**changes: Any) -> GkeSettings:
    return GkeSettings.model_validate(ENTRY | changes)
