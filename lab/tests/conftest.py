"""A simulated cluster for the tests of a module, emptied between them."""

from collections.abc import Iterator

import pytest

from lab.kube.control import Kube


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with Kube(tmp_path_factory.mktemp("kube")) as kube:
        yield kube


@pytest.fixture
def kube(cluster: Kube) -> Iterator[Kube]:
    """Without objects and faults of the test before."""
    yield cluster
    cluster.clear_faults()
    for resource in ("jobsets", "jobs", "pods", "configmaps", "secrets"):
        for body in cluster.objects(resource, "default"):
            cluster.delete(resource, body["metadata"]["name"], grace_s=0)
