"""Texts that were collected from public issues before the rules of this package were read again: none may lead to a wrong end or a wrong repetition."""

from typing import Any

import pytest

from podwright.rundir import Ending
from podwright.targets.base import Polled, Process
from podwright.targets.gke import pod_failures, waiting
from podwright.targets.gke.cluster_view import ClusterView
from podwright.targets.gke.kubectl_replies import classify
from podwright.targets.gke.pool_replies import classifier
from podwright.targets.google.replies import Consequence, refusal
from tests.unit.targets.gke.collected_pool_texts import BY_NAME, TEXTS, PoolText
from tests.unit.targets.gke.entry import gke
from tests.unit.targets.gke.test_waiting import NAMES, conditions, event, job, jobset, pod, pulling, queued, unscheduled

REPEAT, FINAL = Consequence.REPEAT, Consequence.FINAL
KUBECTL = [
    (  # github.com/volcano-sh/volcano/issues/2677
        'Error from server (InternalError): error when creating "queue.yaml": Internal error occurred: failed calling webhook '
        '"mutatequeue.volcano.sh": failed to call webhook: Post "https://volcano-admission-service.volcano-system.svc:443/queues/mutate?timeout=10s": '
        "context deadline exceeded",
        REPEAT,
        "WebhookDown",
    ),
    (  # github.com/kubernetes-sigs/kueue/issues/12008
        'Error from server (InternalError): error when creating "00-resource-flavor.yaml": Internal error occurred: failed calling webhook '
        '"mresourceflavor.kb.io": failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate?timeout=10s": dial tcp '
        "10.96.15.9:443: connect: connection refused",
        REPEAT,
        "WebhookDown",
    ),
    (  # github.com/actions/runner-images/issues/6778
        'E0709 10:17:27.723595   34196 memcache.go:265] couldn\'t get current server API group list: Get "https://34.1.2.3/api?timeout=32s": getting '
        "credentials: exec: executable gke-gcloud-auth-plugin not found\n\nIt looks like you are trying to use a client-go credential plugin that is "
        "not installed.\n\nTo learn more about this feature, consult the documentation available at:\n      https://kubernetes.io/docs/reference/",
        FINAL,
        "NoPlugin",
    ),
    (  # github.com/circleci/circleci-docs/issues/966
        "error: google: could not find default credentials. See https://developers.google.com/accounts/docs/application-default-credentials for "
        "more information.",
        FINAL,
        "OldLogin",
    ),
    (  # github.com/Consensys/kubernetes-action/issues/3
        'Unable to connect to the server: error executing access token command "/google/google-cloud-sdk/bin/gcloud config config-helper '
        '--format=json": err=fork/exec /google/google-cloud-sdk/bin/gcloud: no such file or directory output= stderr=',
        FINAL,
        "OldLogin",
    ),
    (  # github.com/jenkinsci/kubernetes-cli-plugin/issues/80
        "Unable to connect to the server: x509: certificate signed by unknown authority",
        FINAL,
        "OldLogin",
    ),
    (  # github.com/kubernetes/kubectl/issues/1338
        'error: The gcp auth plugin has been removed.\nPlease use the "gke-gcloud-auth-plugin" kubectl/client-go credential plugin instead.',
        FINAL,
        "OldLogin",
    ),
    (  # github.com/kubernetes-sigs/kueue/issues/2416
        'Error from server (Forbidden): error when creating "jobset.yaml": admission webhook "mjobset.kb.io" denied the request: queue doesn\'t '
        "exist",
        FINAL,
        "Denied",
    ),
]


@pytest.mark.parametrize(("text", "consequence", "reason"), KUBECTL)
def test_a_text_of_kubectl_is_known(text: str, consequence: Consequence, reason: str) -> None:
    reply = classify(text, gke())
    assert reply.consequence is consequence and reply.reason.startswith(reason), reply


def says(view: ClusterView) -> Polled:
    return waiting.explain(view, 1, float("inf"), NAMES).polled


def creating(message: str) -> ClusterView:
    return ClusterView(jobset(), (job(),), events=(event("FailedCreate", message),))


def image(message: str) -> ClusterView:
    return ClusterView(jobset(), (job(),), (pulling("ErrImagePull", message),))


WEBHOOK_OF_PODS = (  # github.com/kubernetes-sigs/jobset/issues/361
    'Error creating: Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post '
    '"https://jobset-webhook-service.jobset-system.svc:443/mutate--v1-pod?timeout=10s": no endpoints available for service '
    '"jobset-webhook-service"'
)
INVALID_JOB = (  # github.com/kubernetes-sigs/jobset/pull/1211
    'job "snr-w-0" creation failed with error: Job.batch "snr-w-0" is invalid: '
    "spec.template.spec.containers[0].volumeMounts[0].mountPath: Required value"
)
TOO_LARGE = (  # github.com/kubernetes-sigs/kueue/issues/4134
    "couldn't assign flavors to pod set master: insufficient quota for nvidia.com/gpu in flavor single-node-h100, request > maximum "
    "capacity (24 > 16)"
)
NO_NODES = (  # github.com/kserve/kserve/issues/794
    "0/2 nodes are available: 2 Insufficient nvidia.com/gpu, 2 node(s) didn't match node selector."
)
FORBIDDEN_IMAGE = (  # github.com/googlecodelabs/monolith-to-microservices/issues/59
    'rpc error: code = Unknown desc = failed to pull and unpack image "gcr.io/p/monolith:1.0.0": failed to resolve reference '
    '"gcr.io/p/monolith:1.0.0": pulling from host gcr.io failed with status code [manifests 1.0.0]: 403 Forbidden'
)
DENIED_IMAGE = (  # github.com/GoogleCloudPlatform/berglas/issues/128
    "rpc error: code = Unknown desc = Error response from daemon: Get https://us-docker.pkg.dev/v2/berglas/berglas/berglas/manifests/latest: "
    'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource "projects/berglas/locations/us/repositories/'
    'berglas" (or it may not exist)'
)
ABSENT_IMAGE = (  # github.com/kubernetes/kubernetes/issues/17086
    "image pull failed for gcr.io/td-middleware/tdb, this may be because there are no credentials on this request.  details: (Error: image "
    "td-middleware/tdb:latest not found)"
)
WAITING: list[tuple[ClusterView, Ending | None, str]] = [
    (creating(WEBHOOK_OF_PODS), None, "WebhookDown: "),
    (
        ClusterView(jobset(), events=(event("JobCreationFailed", INVALID_JOB),)),
        Ending.BAD_INPUT,
        "mountPath: Required value",
    ),
    (queued(TOO_LARGE), Ending.NO_CAPACITY, "TooLarge: "),
    (unscheduled(NO_NODES), None, "NoNodes: "),
    (image(FORBIDDEN_IMAGE), Ending.BAD_INPUT, "NoPermission: "),
    (image(DENIED_IMAGE), Ending.BAD_INPUT, "NoPermission: "),
    (image(ABSENT_IMAGE), Ending.BAD_INPUT, "NoImage: "),
]


@pytest.mark.parametrize(("view", "ending", "part"), WAITING)
def test_a_text_of_the_cluster_is_known(view: ClusterView, ending: Ending | None, part: str) -> None:
    polled = says(view)
    assert polled.ending is ending and polled.process is (Process.ENDED if ending else Process.RUNNING), polled
    assert part in polled.waiting, polled


def disrupted(reason: str, message: str, code: int) -> dict[str, Any]:
    ended = [
        {
            "name": "c",
            "state": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:01Z"}},
        }
    ]
    return pod(0, "Failed", containerStatuses=ended, **conditions(DisruptionTarget=("True", reason, message)))


@pytest.mark.parametrize(
    "failed",
    [
        # github.com/marin-community/marin/pull/7123: a SIGKILL after the grace, by a preemption
        disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod", 137),
        # github.com/kubernetes/website/pull/46896: the name that documents gave this reason
        disrupted("PreemptionByKubeScheduler", "Kube-scheduler: preempting", 143),
    ],
)
def test_a_disruption_is_a_preemption_whatever_the_exit_code(failed: dict[str, Any]) -> None:
    assert pod_failures.ended((), pod_failures.failures([failed], 1).values(), 1).ending is Ending.PREEMPTED


POOL_ENTRY = {"zones": ["us-central1-a"], "reservations": ["r-1"], "topology": "v6e-16"}


@pytest.mark.parametrize("text", TEXTS, ids=list(BY_NAME))
def test_a_text_of_gke_about_a_node_pool_is_known(text: PoolText) -> None:
    place = "us-central1-a/r-1"
    reply = classifier(gke(**POOL_ENTRY), "pod")(text.text, place)
    assert (reply.consequence, reply.reason[: len(text.sentence)]) == (text.consequence, text.sentence), reply
    assert text.remedy in reply.fix and bool(text.remedy) == bool(reply.fix)
    answer = refusal(reply, place)
    assert (answer.ending if answer else None) == (None if text.consequence is REPEAT else text.ending)
