"""What each text of kubectl lets one conclude. The first group was printed by kubectl 1.32.4 itself."""

import pytest

from podwright.shell import Shell
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.gke.kubectl_replies import classify
from podwright.targets.google.replies import Consequence
from podwright.targets.settings.gke import GkeSettings

OWN = GkeSettings.model_validate(
    {"kind": "gke", "project": "my-project", "cluster": "my-cluster", "zones": ["us-central1-a"]}
)
LOGIN = "gcloud container clusters get-credentials my-cluster --location=us-central1 --project=my-project"
PRINTED = [
    (
        "Error in configuration: context was not found for specified context: nope",
        Consequence.FINAL,
        "NoContext",
        LOGIN,
    ),
    (
        'E1123 07:02:09.955117   32460 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list: Get '
        '\\"http://127.0.0.1:1/api?timeout=32s\\": dial tcp 127.0.0.1:1: connect: connection refused"\n'
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?",
        Consequence.UNKNOWN,
        "Unreachable",
        "",
    ),
    (
        "F1123 07:04:08.138411    6684 cred.go:145] print credential failed with error: Failed to retrieve access token:: failure while "
        "executing gcloud, with args [config config-helper --format=json]: exit status 1 (err: ERROR: (gcloud.config.config-helper) You do "
        "not currently have an active account selected.\nPlease run:\n\n  $ gcloud auth login\n)\n"
        "Unable to connect to the server: getting credentials: exec: executable gke-gcloud-auth-plugin failed with exit code 1",
        Consequence.FINAL,
        "NoLogin",
        "gcloud auth login",
    ),
    (
        "ERROR: (gcloud.config.config-helper) There was a problem refreshing your current auth tokens: Reauthentication failed. cannot "
        "prompt during non-interactive execution.\nUnable to connect to the server: getting credentials: exec: executable "
        "gke-gcloud-auth-plugin failed with exit code 1",
        Consequence.FINAL,
        "NoLogin",
        "gcloud auth login",
    ),
    ("Error: unknown flag: --foo\nSee 'kubectl get --help' for usage.", Consequence.FINAL, "OldKubectl", "kubectl"),
]
DOCUMENTED = [
    (
        "Unable to connect to the server: getting credentials: exec: executable gke-gcloud-auth-plugin not found\n\nIt looks like you are "
        "trying to use a client-go credential plugin that is not installed.",
        Consequence.FINAL,
        "NoPlugin",
        "gcloud components install gke-gcloud-auth-plugin",
    ),
    (
        "error: You must be logged in to the server (the server has asked for the client to provide credentials)",
        Consequence.FINAL,
        "NoLogin",
        "gcloud auth login",
    ),
    (
        'Error from server (Forbidden): jobsets.jobset.x-k8s.io is forbidden: User "a@b.c" cannot create resource "jobsets" in API group '
        '"jobset.x-k8s.io" in the namespace "default": requires one of ["container.thirdPartyObjects.create"] permission(s).',
        Consequence.FINAL,
        'NoPermission: a@b.c may not create jobsets in the namespace "default"',
        "type gcloud projects add-iam-policy-binding my-project --member=user:a@b.c --role=roles/container.developer",
    ),
    (
        'Error from server (Forbidden): nodes is forbidden: User "r@p.iam.gserviceaccount.com" cannot list resource "nodes" in API group "" '
        'at the cluster scope: requires one of ["container.nodes.list"] permission(s).',
        Consequence.FINAL,
        "NoPermission: r@p.iam.gserviceaccount.com may not list nodes at the cluster scope",
        "--member=serviceAccount:r@p.iam.gserviceaccount.com --role=roles/container.developer",
    ),
    (
        'Error from server (Forbidden): events is forbidden: User "system:anonymous" cannot list resource "events" in API group "" in the '
        'namespace "default"',
        Consequence.FINAL,
        'NoPermission: User "system:anonymous" cannot list resource "events"',
        "roles/container.developer",
    ),
    (
        "Error from server (TooManyRequests): the server has received too many requests and has asked us to try again later",
        Consequence.REPEAT,
        "RequestRate",
        "",
    ),
    (
        'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling webhook "mjobset.kb.io": '
        'failed to call webhook: Post "https://jobset-webhook-service.jobset-system.svc:443/mutate?timeout=10s": no endpoints available '
        'for service "jobset-webhook-service"',
        Consequence.REPEAT,
        "WebhookDown: mjobset.kb.io",
        "",
    ),
    (
        'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling webhook "vjobset.kb.io": failed '
        'to call webhook: Post "https://jobset-webhook-service.jobset-system.svc:443/validate?timeout=10s": tls: failed to verify certificate: '
        "x509: certificate signed by unknown authority",
        Consequence.REPEAT,
        "WebhookDown: vjobset.kb.io",
        "",
    ),
    (
        'Error from server (AlreadyExists): error when creating "STDIN": jobsets.jobset.x-k8s.io "pw-r" already exists',
        Consequence.EXISTS,
        "Exists",
        "",
    ),
    (
        'Error from server (AlreadyExists): object is being deleted: jobsets.jobset.x-k8s.io "pw-r" already exists',
        Consequence.REPEAT,
        "Deleting",
        "",
    ),
    (
        'Error from server (NotFound): jobsets.jobset.x-k8s.io "pw-r" not found',
        Consequence.ABSENT,
        "Absent",
        "",
    ),
    (
        'Error from server (NotFound): error when creating "STDIN": namespaces "nope" not found',
        Consequence.FINAL,
        "NoNamespace",
        "kubectl create namespace nope",
    ),
    ('error: the server doesn\'t have a resource type "workloads"', Consequence.ABSENT, "NoKind", ""),
    (
        'error: resource mapping not found for name: "pw" namespace: "" from "STDIN": no matches for kind "JobSet" in version '
        '"jobset.x-k8s.io/v1alpha2"\nensure CRDs are installed first',
        Consequence.FINAL,
        "NoJobSet",
        "jobset.sigs.k8s.io",
    ),
    (
        'Error from server (NotFound): Unable to find "jobset.x-k8s.io/v1alpha2, Resource=jobsets" that match label selector "a=b", field '
        'selector "": the server could not find the requested resource',
        Consequence.FINAL,
        "NoJobSet",
        "jobset.sigs.k8s.io",
    ),
    (
        'Error from server (NotFound): Unable to list "kueue.x-k8s.io/v1beta1, Resource=workloads": the server could not find the requested '
        "resource (get workloads.kueue.x-k8s.io)",
        Consequence.ABSENT,
        "NoKind: cluster my-cluster has no objects of kind workloads",
        "",
    ),
    ("Unable to connect to the server: net/http: TLS handshake timeout", Consequence.UNKNOWN, "Unreachable", ""),
    ("Error from server: etcdserver: request timed out", Consequence.REPEAT, "ServerBusy", ""),
    (
        "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
        Consequence.REPEAT,
        "ServerBusy",
        "",
    ),
    (
        'Error from server (Forbidden): error when creating "STDIN": pods "p" is forbidden: exceeded quota: gpu, requested: '
        "requests.google.com/tpu=4, used: requests.google.com/tpu=8, limited: requests.google.com/tpu=8",
        Consequence.FINAL,
        "Quota: namespace default has no more of ResourceQuota gpu",
        "describe resourcequota gpu",
    ),
    (
        'The JobSet "pw" is invalid: spec.replicatedJobs[0].name: Invalid value: "x": too long',
        Consequence.FINAL,
        'Invalid: The JobSet "pw" is invalid',
        "",
    ),
    (
        'Error from server (BadRequest): error when creating "STDIN": the server rejected our request for an unknown reason',
        Consequence.FINAL,
        "Invalid: Error from server (BadRequest)",
        "report it with this line",
    ),
    (
        'Error: invalid argument "sideways" for "--cascade" flag: invalid cascade value',
        Consequence.FINAL,
        "OldKubectl",
        "gcloud components install kubectl",
    ),
    (
        'error: admission webhook "vjobset.kb.io" denied the request: job name will be longer than 63 characters',
        Consequence.FINAL,
        "Denied: vjobset.kb.io of the cluster refuses it: job name will be longer",
        "",
    ),
    (
        "ERROR: (gcloud.config.config-helper) There was a problem refreshing your current auth tokens: HTTPSConnectionPool(host="
        "'oauth2.googleapis.com', port=443): Max retries exceeded\nUnable to connect to the server: getting credentials: exec: executable "
        "gke-gcloud-auth-plugin failed with exit code 1",
        Consequence.UNKNOWN,
        "NoToken",
        "",
    ),
    ("kubectl has not answered for 90 s", Consequence.UNKNOWN, "Unreachable", ""),
    ("something new", Consequence.UNKNOWN, "Unclear: kubectl says 'something new'", ""),
]


@pytest.mark.parametrize(("text", "consequence", "reason", "fix"), PRINTED + DOCUMENTED)
def test_a_text_of_kubectl_has_a_consequence_and_a_fix(
    text: str, consequence: Consequence, reason: str, fix: str
) -> None:
    reply = classify(text, OWN)
    assert reply.consequence is consequence and reply.reason.startswith(reason) and fix in reply.fix, reply
    assert "{" not in reply.reason + reply.fix


class Recorded(Shell):
    """Answers every call with `answer`, and keeps what it was given."""

    def __init__(self, *answer: object):
        super().__init__()
        self.answer = answer
        self.calls: list[tuple[tuple[str, ...], str]] = []

    def ask(self, argv, *_, given="", **__):  # type: ignore[no-untyped-def]
        self.calls.append((tuple(argv), given))
        return self.answer


def test_every_call_names_context_and_namespace_and_gives_secrets_on_stdin_alone() -> None:
    shell = Recorded(0, "", "")
    assert Kubectl(shell, OWN).do(["create", "--filename=-"], "SECRET") is None
    [(argv, given)] = shell.calls
    assert argv[:3] == ("kubectl", "--context=gke_my-project_us-central1_my-cluster", "--namespace=default")
    assert given == "SECRET" and not any("SECRET" in word for word in argv)


def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    value, failure = Kubectl(Recorded(0, '{"items": [', ""), OWN).json(["get", "pods"])
    assert value == {} and failure and failure.consequence is Consequence.UNKNOWN
