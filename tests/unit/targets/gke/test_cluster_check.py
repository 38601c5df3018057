"""What `target check` says of a cluster, by the real kubectl on the simulated API server."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.kube import samples
from lab.kube.control import Kube
from podwright import slices, targets
from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.run import drive, journal
from podwright.rundir import RunDir, write_json
from podwright.shell import Shell
from podwright.targets.base import Remark
from podwright.targets.gke import cluster_check, jobset
from podwright.targets.gke.kubectl import Kubectl
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import ENTRY, gke

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
SLICE = "tpu7x-2x2x2"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kube]:
    with Kube(tmp_path, project="my-project", cluster="my-cluster") as kube:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name, value in kube.environment.items():
            monkeypatch.setenv(name, value)
        for each in samples.priority_classes():
            kube.create(each)
        yield kube


def check(**settings: Any) -> list[Remark]:
    own = gke(topology=SLICE, zones=["us-central1-ai1a"], **settings)
    return cluster_check.check(own, Kubectl(Shell(), own), "pod")


def levels(remarks: list[Remark], *levels_: str) -> str:
    return "\n".join(f"{r.what}; {r.fix}" for r in remarks if r.level in (levels_ or ("error", "warning")))


def node(number: int, **labels: str) -> dict[str, Any]:
    body = samples.node(f"n-{number}", "np", "2x2x2")
    own = jobset.node_selector(slices.parse(SLICE)) | {"topology.kubernetes.io/zone": "us-central1-ai1a"}
    body["metadata"]["labels"] |= own | labels
    chips = {"allocatable": {"google.com/tpu": "4"}, "capacity": {"google.com/tpu": "4"}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return body | {"status": chips | ready}


@pytest.mark.long
def test_each_thing_that_a_cluster_lacks_is_said_with_what_to_type(kube: Kube) -> None:
    said = levels(check())
    assert "namespace default has no queue multislice-queue" in said and "kubectl get localqueues" in said
    assert "has no node of tpu7x-2x2x2 now" in said and "node_pool.sh" in said and "provisioning" in said

    flavor, cluster_queue, local_queue = samples.queues(4, topology="2x2x2")
    kube.create(local_queue)
    assert "belongs to ClusterQueue cluster-queue, which does not exist" in levels(check())
    kube.create(cluster_queue)
    assert "no flavor of ClusterQueue cluster-queue (v6e) is for nodes of tpu7x-2x2x2" in levels(check())
    kube.create(flavor)
    assert "has at most 4 chips of flavor v6e, and tpu7x-2x2x2 needs 8" in levels(check())
    kube.patch("resourceflavors", "v6e", {"spec": {"nodeLabels": {"cloud.google.com/gke-tpu-topology": "4x4"}}}, "")
    said = levels(check())
    assert "no flavor of ClusterQueue cluster-queue (v6e) is for nodes of tpu7x-2x2x2" in said
    assert "gke-tpu-topology=2x2x2" in said and "kubectl edit clusterqueue cluster-queue" in said
    kube.patch("resourceflavors", "v6e", {"spec": {"nodeLabels": {"cloud.google.com/gke-tpu-topology": "2x2x2"}}}, "")
    group: Any = {"coveredResources": ["google.com/tpu"], "flavors": [{"name": "v6e", "resources": [{"name": "google.com/tpu", "nominalQuota": 8}]}]}  # fmt: skip
    kube.patch("clusterqueues", "cluster-queue", {"spec": {"resourceGroups": [group]}}, "")

    kube.create(node(0, **{"cloud.google.com/placement-policy-name": "another"}))
    assert "placement-policy-name=tpu7x-16-2x2x2-placement-policy)" in levels(check())
    kube.delete("nodes", "n-0", "")
    kube.create(node(0, **{"topology.kubernetes.io/zone": "us-central1-b"}))
    said = levels(check())
    assert "1 of 2 nodes that a run needs are ready" in said
    assert "nodes of tpu7x-2x2x2 are in us-central1-b, which is not among zones of the target" in said
    kube.delete("nodes", "n-0", "")
    for number in range(2):
        kube.create(node(number))
    remarks = check()
    assert not levels(remarks), remarks
    group["flavors"][0]["resources"][0]["nominalQuota"] = "2k"  # as the cluster writes 2000
    kube.patch("clusterqueues", "cluster-queue", {"spec": {"resourceGroups": [group]}}, "")
    infos = levels(check(), "info")
    assert "has flavor v6e for tpu7x-2x2x2, with 2000 chips" in infos.replace(",000", "000") and "2 of 2 nodes" in infos
    assert "no PriorityClass vip" in levels(check(priority="vip"))
    system = levels(check(priority="system-high"))
    assert "set priority of the target to one of: kubectl get" in system
    kube.delete("priorityclasses", "medium", "")
    recipe = load("qwen3-tiny-arithmetic-grpo")
    used = check(**{"priority": gke(topology=SLICE, zones=["us-central1-ai1a"]).as_used_by(recipe).priority})
    assert "no PriorityClass medium: no pod would be created; set priority" in levels(used, "error")
    assert "no pod would be created whose recipe names no other; set priority of the target" in levels(check(), "warning")  # fmt: skip
    assert "runs create node pools" in levels(check(provisioning="spot"), "info")


@pytest.mark.parametrize("changed", [False, True])
def test_a_resume_looks_for_the_priority_of_the_recipe_like_the_start(
    kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump({"pod": ENTRY | {"provisioning": "spot"}}))
    monkeypatch.setattr("podwright.targets.require_programs", lambda _: None)
    run = RunDir(tmp_path / "runs" / "r")
    write_json(run.recipe, example(topology=SLICE, xpk={"priority": "vip"}).model_dump(mode="json"))
    last = targets.current("pod", None, SLICE)
    last["settings"]["patience"] = "5h" if changed else "6h"
    begun = time.time() - (0 if changed else 3 * 86_400)
    state = journal.RunState(target="pod", slice=SLICE, handle=last, submitted=begun, attempt=1)
    with pytest.raises(UserError, match="the cluster has no PriorityClass vip: no pod would be created") as e:
        drive._require_target(run, state, "maxtext")
    assert "set priority of the target to one of" in e.value.fix and "\n" not in str(e.value)


def test_a_cluster_that_takes_no_runs_is_one_line(kube: Kube, monkeypatch: pytest.MonkeyPatch) -> None:
    (missing,) = check(cluster="another")
    assert missing.level == "error" and "get-credentials another" in missing.fix
    kube.fault("forbidden", verb="list", resource="jobsets")
    (refused,) = check()
    assert refused.level == "error" and "may not list jobsets in the namespace" in refused.what
    kube.clear_faults()
    kube.fault("forbidden", verb="get", resource="pods/log")
    (refused,) = check()
    assert refused.level == "error" and "you may not get pods --subresource=log in namespace default" in refused.what
    kube.clear_faults()
    kube.set(absent_groups=["jobset.x-k8s.io"])
    (absent,) = check()
    assert absent.level == "error" and "JobSet" in absent.what
    kube.set(absent_groups=["kueue.x-k8s.io"])
    assert "has no Kueue: a JobSet starts when nodes are free" in levels(check(), "info")
    kube.unreachable(30)
    (away,) = check()
    assert away.level == "inconclusive" and "does not reach the API server" in away.what


@pytest.mark.brief(1)
@pytest.mark.parametrize(
    ("verb", "resource", "level", "what"),
    [
        ("create", "jobsets", "error", "you may not create jobsets.jobset.x-k8s.io in namespace default"),
        ("delete", "jobsets", "error", "you may not delete jobsets.jobset.x-k8s.io in namespace default"),
        ("create", "configmaps", "warning", "you may not create configmaps in namespace default"),
        ("create", "secrets", "warning", "you may not create secrets in namespace default"),
    ],
)
def test_a_right_that_is_missing_is_said_with_the_role_that_has_it(
    kube: Kube, verb: str, resource: str, level: str, what: str
) -> None:
    """Before anything is created, since a run looks at the same. ConfigMaps and Secrets are of recipes that bring their code."""
    kube.fault("forbidden", verb=verb, resource=resource)
    said = levels(check(provisioning="spot"), level)
    assert what in said and "roles/container.developer" in said
    assert ("recipes of grpo and pretrain need it" in said) == (level == "warning")
    assert what not in levels(check(provisioning="spot", bucket="")) or level == "error"


def test_a_check_creates_nothing_and_looks_at_no_queue_where_runs_bring_their_own(kube: Kube) -> None:
    for each in samples.queues(8, topology="2x2x2"):
        kube.create(each)
    check()
    assert {"localqueues", "clusterqueues", "nodes"} <= {call["resource"] for call in kube.requests()}
    before = len(kube.requests())
    check(provisioning="spot")
    seen = [call["resource"] for call in kube.requests()[before:] if "podwright-run" not in call["query"]]
    assert not {"localqueues", "clusterqueues", "resourceflavors", "nodes"} & set(seen)
    assert {call["verb"] for call in kube.requests() if "review" not in call["resource"]} <= {"get", "list"}


def test_rights_that_a_run_does_not_need_do_not_keep_it_from_starting(kube: Kube) -> None:
    for resource in ("localqueues", "nodes", "priorityclasses", "configmaps"):
        for verb in ("get", "list"):
            kube.fault("forbidden", verb=verb, resource=resource)
    remarks = check(priority="high")
    assert not levels(remarks), remarks
    unseen = [r for r in remarks if r.level == "inconclusive"]
    assert len(unseen) == 3 and all("a run starts without that" in r.what for r in unseen), remarks
    assert all("gcloud projects add-iam-policy-binding my-project --member=user:" in r.fix for r in unseen)
    kube.clear_faults()
    for each in samples.queues(8, topology="2x2x2"):
        kube.create(each)
    kube.fault("forbidden", resource="resourceflavors")
    assert "may not list resourceflavors at the cluster scope" in levels(check(), "inconclusive")


def test_a_namespace_is_looked_at_before_a_run_fails_in_it(kube: Kube) -> None:
    kube.set(absent_groups=["kueue.x-k8s.io"])
    said = levels(check(namespace="team-a", provisioning="spot"))
    assert said == (
        "cluster my-cluster has no namespace team-a; type kubectl create namespace team-a "
        "--context=gke_my-project_us-central1_my-cluster, or correct namespace of the target"
    )
    kube.fault("forbidden", resource="namespaces")
    remarks = check(namespace="team-a", provisioning="spot")
    (unseen,) = [r for r in remarks if r.level == "inconclusive"]
    assert "namespace team-a: NoPermission: " in unseen.what and not levels(remarks), remarks
    kube.clear_faults()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    kube.create(namespace, "")
    assert "cluster my-cluster has namespace team-a" in levels(check(namespace="team-a", provisioning="spot"), "info")
    kube.patch_status("namespaces", "team-a", {"phase": "Terminating"}, "")
    assert "namespace team-a is being deleted" in levels(check(namespace="team-a", provisioning="spot"))


def test_a_queue_that_takes_nothing_from_the_namespace_is_refused(kube: Kube) -> None:
    flavor, cluster_queue, local_queue = samples.queues(8, topology="2x2x2")
    closed = cluster_queue | {"metadata": {"name": "a-closed"}}
    closed["spec"] = {**cluster_queue["spec"], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}  # fmt: skip
    for each in (flavor, closed):
        kube.create(each, "")
    kube.create(
        {**local_queue, "metadata": {"name": "mine", "namespace": "default"}, "spec": {"clusterQueue": "a-closed"}}
    )
    said = levels(check(queue="mine"))
    assert "queue mine belongs to ClusterQueue a-closed, which takes nothing from namespace default" in said
