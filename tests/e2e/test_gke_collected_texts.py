"""Texts that were collected apart from the rules that know them, each in a run on the simulated cloud and cluster: what becomes of the run,
which sentence says why, and what is to be typed."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.gcloud.control import Gcloud
from lab.kube import controllers, samples
from lab.kube.control import Kube
from podwright.targets.google.replies import Consequence
from tests.e2e.conftest import wait_for
from tests.e2e.test_gke import HOSTS, Cluster
from tests.e2e.test_gke_pools import A, B, PoolBench, both, lab, queue_objects  # noqa: F401
from tests.unit.targets.gke.collected_pool_texts import BY_NAME, CALL, PoolText
from tests.unit.targets.gke.test_collected_texts import (
    ABSENT_IMAGE,
    DENIED_IMAGE,
    FORBIDDEN_IMAGE,
    INVALID_JOB,
    KUBECTL,
    NO_NODES,
    TOO_LARGE,
    WEBHOOK_OF_PODS,
)

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
QUICK = ("addresses",)


def said_by_gke(gcloud: Gcloud, text: PoolText, calls: int) -> None:
    """The next `calls` times that a pool is to be created."""
    if text.arrives == CALL:
        gcloud.fault("container node-pools create", text=text.text, calls=calls)
    else:
        gcloud.pool_outcome("reservation-capacity", message=text.text, count=calls)  # without a code of its own


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in BY_NAME]
)
def test_a_run_goes_by_what_gke_says_of_its_pool_and_leaves_none(
    both: SimpleNamespace,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """A busy cluster is asked again; a place is left for the next one, where the pool comes; anything else ends the run. No pool stays."""
    text = BY_NAME[name]
    passes = text.consequence is Consequence.REPEAT
    said_by_gke(both.gcloud, text, 2 if passes else 1)
    bench = PoolBench(tmp_path, monkeypatch)
    is_final = text.consequence is Consequence.FINAL
    refusal, allocation = ("deleting", "gone"), ("ready", "deleting", "gone")
    over = refusal if is_final else allocation if passes else (*refusal, *allocation)
    bench.follow(lambda it: it.happened(*over, "abandoned"))
    requested = list(dict.fromkeys(event["request"]["zone"] for event in bench.events("allocation requested")))
    refused = [event["reason"] for event in bench.events("allocation refused")]
    if passes:
        assert any(text.sentence in reason for reason in bench.reasons), bench.reasons
        assert refused == [] and requested == [A] and {event["allocation"] for event in bench.events()} == {1}
    else:
        assert len(refused) == 1 and refused[0].startswith(text.sentence) and text.remedy in refused[0]
        assert requested == ([A] if is_final else [A, B])
    if is_final:
        (ended,) = bench.events("abandoned")
        assert ended["ending"] == text.ending and text.sentence in ended["detail"], ended
    assert both.gcloud.resources() == [] and queue_objects(both) == []
    assert len(both.gcloud.ledger()) == (0 if is_final else 4), "nodes of one pool"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube:
        bench = Cluster(tmp_path, kube)
        bench.fill()
        bench.replay(200)
        yield bench
        bench.close()


def ending(cluster: Cluster) -> str:
    """Of the only attempt, with its cause and its remedy."""
    (record,) = cluster.events("ended")
    return f"{record['ending']}: {record['detail']}; {record['fix']}"


def finished(cluster: Cluster, process: Any) -> None:
    """What waited has gone on by itself, with the JobSet that there was."""
    out = cluster.ends(process)
    assert [record["ending"] for record in cluster.events("ended")] == ["FINISHED"], out
    created = [
        r for r in cluster.kube.requests() if (r["verb"], r["resource"], r["status"]) == ("create", "jobsets", 201)
    ]
    assert len(created) == 1 and cluster.left() == []


def said_by_the_server(text: str) -> str:
    """What a text of kubectl repeats of the server."""
    return text.partition('": ')[2]


def happening(cluster: Cluster, resource: str, reason: str, message: str) -> None:
    """An event of the only object of a resource, once it is there."""
    wait_for(lambda: len(cluster.kube.objects(resource)) == 1)
    (body,) = cluster.kube.objects(resource)
    own = {key: body["metadata"][key] for key in ("name", "namespace", "uid")}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{own['name']}.1", "namespace": "default"}}
    event |= {"involvedObject": own | {"kind": body["kind"], "apiVersion": body["apiVersion"]}, "type": "Warning"}
    cluster.kube.create(event | {"reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(KUBECTL[0][0], "mutatequeue.volcano.sh", marks=pytest.mark.long),
        pytest.param(KUBECTL[1][0], "mresourceflavor.kb.io", marks=pytest.mark.long),
    ],
)
def test_a_webhook_that_does_not_answer_is_waited_for(cluster: Cluster, text: str, kind: str) -> None:
    refusal = {"status": 500, "reason": "InternalError", "text": said_by_the_server(text)}
    cluster.kube.fault("http", verb="create", resource="jobsets", calls=2, **refusal)
    started = cluster.start_toy()
    cluster.waits(f"WebhookDown: {kind}, which checks what is created, does not answer")
    finished(cluster, started)


@pytest.mark.long
def test_a_webhook_that_refuses_ends_the_run_with_what_it_says(cluster: Cluster) -> None:
    refusal = {"status": 403, "reason": "Forbidden", "text": said_by_the_server(KUBECTL[7][0])}
    cluster.kube.fault("http", verb="create", resource="jobsets", **refusal)
    code, out, err = cluster.run_toy()
    assert code == 1 and cluster.left() == [], out + err
    assert ending(cluster) == (
        "BAD_INPUT: the attempt could not be submitted: Denied: mjobset.kb.io of the cluster refuses it: queue doesn't exist; "
        "change what it names, or ask an administrator of the cluster"
    )
    tries = [r for r in cluster.kube.requests() if (r["verb"], r["resource"]) == ("create", "jobsets")]
    assert len(tries) == 1, "no repetition helps"


@pytest.mark.long
def test_a_webhook_of_pods_that_does_not_answer_is_waited_for(cluster: Cluster) -> None:
    cluster.kube.set(controllers_down=["job"])
    started = cluster.start_toy()
    happening(cluster, "jobs", "FailedCreate", WEBHOOK_OF_PODS)
    cluster.waits("WebhookDown: mpod.kb.io")
    cluster.kube.set(controllers_down=[])
    finished(cluster, started)


@pytest.mark.long
def test_a_job_that_the_cluster_does_not_take_ends_the_run(cluster: Cluster) -> None:
    cluster.kube.set(controllers_down=["jobset"])
    started = cluster.start_toy()
    happening(cluster, "jobsets", "JobCreationFailed", INVALID_JOB)
    wait_for(lambda: bool(cluster.events("ended")))
    cluster.kube.set(controllers_down=[])
    cluster.ends(started)
    assert ending(cluster) == (
        "BAD_INPUT: the cluster refuses the jobs of the JobSet: spec.template.spec.containers[0].volumeMounts[0].mountPath: Required value; "
        "report it with this line: the manifest is of podwright"
    )
    assert cluster.left() == []


@pytest.mark.long
def test_a_quota_that_is_never_enough_ends_the_run_in_the_words_of_older_versions_too(cluster: Cluster) -> None:
    cluster.kube.create(samples.workload("other", 8))
    started = cluster.start_toy()
    cluster.waits("Quota: ")
    cluster.kube.set(controllers_down=["kueue"])
    (own,) = [each for each in cluster.kube.objects("workloads") if each["metadata"]["name"] != "other"]
    quota = next(each for each in own["status"]["conditions"] if each["type"] == "QuotaReserved")
    cluster.kube.patch_status("workloads", own["metadata"]["name"], {"conditions": [quota | {"message": TOO_LARGE}]})
    wait_for(lambda: bool(cluster.events("ended")))
    cluster.kube.set(controllers_down=[])
    cluster.ends(started)
    said = ending(cluster)
    assert said.startswith("NO_CAPACITY: the queue never has more than 16, and the slice needs 24; "), said
    assert "nominalQuota of the ClusterQueue" in said and [each for each in cluster.left() if "other" not in each] == []


@pytest.mark.long
def test_pods_without_a_node_of_the_slice_wait_for_one(tmp_path: Path) -> None:
    with Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube:
        cluster = Cluster(tmp_path, kube)
        cluster.fill(hosts=0)
        cluster.replay(200)
        kube.set(controllers_down=["scheduler"])
        started = cluster.start_toy()
        wait_for(lambda: bool(kube.objects("pods")))
        status = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODES}
        for pod in kube.objects("pods"):
            kube.patch_status("pods", pod["metadata"]["name"], {"conditions": [status]})
        cluster.waits("NoNodes: no free node of the cluster is of the slice (gke-tpu-accelerator=tpu7x")
        assert not cluster.events("ended")
        kube.set(controllers_down=[])
        cluster.nodes()
        finished(cluster, started)
        cluster.close()


IMAGE = "us-docker.pkg.dev/my-project/images/maxtext:v1"
READER = "give the service account of the nodes the role roles/artifactregistry.reader on it, then resume the run"


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(FORBIDDEN_IMAGE, f"the nodes may not pull {IMAGE}; {READER}", marks=pytest.mark.long),
        pytest.param(DENIED_IMAGE, f"the nodes may not pull {IMAGE}; {READER}", marks=pytest.mark.long),
        (
            ABSENT_IMAGE,
            f"there is no image {IMAGE}; build it (podwright render writes the script), or correct image of the target, then resume the run",
        ),
    ],
    ids=["forbidden", "denied", "absent"],
)
def test_an_image_that_is_never_pulled_ends_the_run(cluster: Cluster, text: str, said: str) -> None:
    cluster.kube.set(images=[{"image": "*", "reason": "ErrImagePull", "message": text}])
    code, out, err = cluster.run_toy()
    assert code == 1 and ending(cluster) == f"BAD_INPUT: {said}", out + err
    assert cluster.left() == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("reason", "message", "code"),
    [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", 137),
        ("PreemptionByKubeScheduler", "Kube-scheduler: preempting", 143),
    ],
)
def test_a_pod_that_makes_room_for_another_one_is_a_preemption(
    cluster: Cluster, reason: str, message: str, code: int
) -> None:
    cluster.replay(5)
    started = cluster.start_toy()
    wait_for(lambda: len(cluster.running()) == HOSTS)
    cluster.kube.set(controllers_down=["kubelet"])
    pod = cluster.running()[0]
    (status,) = pod["status"]["containerStatuses"]
    ended = {"exitCode": code, "reason": "Error", "finishedAt": status["state"]["running"]["startedAt"]}
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    changed = {
        "phase": "Failed",
        "conditions": [*pod["status"]["conditions"], disruption],
        "containerStatuses": [status | {"state": {"running": None, "terminated": ended}}],
    }
    cluster.kube.patch_status("pods", pod["metadata"]["name"], changed)
    wait_for(lambda: bool(cluster.events("ended")))
    cluster.replay(200)
    cluster.kube.set(controllers_down=[])
    out = cluster.ends(started)
    assert [record["ending"] for record in cluster.events("ended")] == ["PREEMPTED", "FINISHED"], out
    assert message in cluster.events("ended")[0]["detail"] or reason in cluster.events("ended")[0]["detail"]
    assert cluster.left() == []


@dataclass(frozen=True)
class Login:
    """A kubeconfig with which kubectl says one of the collected texts."""

    text: str
    change: Callable[[dict[str, Any]], None]
    said: str


def without_certificate(config: dict[str, Any]) -> None:
    for each in config["clusters"]:
        del each["cluster"]["certificate-authority"]


def of_another_time(config: dict[str, Any]) -> None:
    for each in config["users"]:
        each["user"] = {"auth-provider": {"name": "gcp"}}


def without_plugin(config: dict[str, Any]) -> None:
    for each in config["users"]:
        each["user"]["exec"]["command"] = "gke-gcloud-auth-plugin"


LOGIN = "gcloud container clusters get-credentials my-cluster --location=us-central1 --project=my-project"
LOGINS = {
    "certificate": Login("x509: certificate signed by unknown authority", without_certificate, LOGIN),
    "provider": Login("The gcp auth plugin has been removed.", of_another_time, LOGIN),
    "plugin": Login(
        "executable gke-gcloud-auth-plugin not found",
        without_plugin,
        "gcloud components install gke-gcloud-auth-plugin",
    ),
}


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("certificate", "provider")), "plugin"]
)
def test_a_login_that_kubectl_cannot_use_is_one_line_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The text is that of the kubectl of this machine."""
    login, plugin = LOGINS[name], tmp_path / "plugin"
    assert any(login.text in text for text, _, _ in KUBECTL)
    credential = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential | {'status': {'token': 'lab'}})}'\n")
    plugin.chmod(0o755)
    (tmp_path / "bin").mkdir()
    for program in ("kubectl", "openssl", "sh"):
        found = shutil.which(program)
        assert found
        (tmp_path / "bin" / program).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # without the plugin that this machine may have
    with Kube(tmp_path, project="my-project", cluster="my-cluster", login=str(plugin)) as kube:
        assert kube.call("get", "pods").returncode == 0
        config = json.loads((kube.folder / "config").read_text())
        login.change(config)
        (kube.folder / "config").write_text(json.dumps(config))
        assert login.text in kube.call("get", "pods").stderr
        cluster = Cluster(tmp_path, kube)
        code, out, err = cluster.run_toy()
        assert code == 1 and "Traceback" not in err, out + err
        assert ending(cluster).startswith("BAD_INPUT: ") and login.said in ending(cluster)
        assert not [r for r in kube.requests() if r["verb"] == "create" and "review" not in r["resource"]]
