"""The simulated API server, held against what the real kubectl makes of it."""

import base64
import json
import subprocess
import threading
import time
from pathlib import Path

import pytest

from lab.kube.control import Kube
from lab.tests.kube_cluster import jobset, needs_kubectl, needs_new_kubectl, pod

pytestmark = needs_kubectl


def names(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [item["metadata"]["name"] for item in json.loads(done.stdout)["items"]]


def test_an_object_is_created_once(kube: Kube) -> None:
    assert kube.call("create", "-f", "-", text=jobset("a")).stdout == "jobset.jobset.x-k8s.io/a created\n"
    second = kube.call("create", "-f", "-", text=jobset("a"))
    text = (
        'Error from server (AlreadyExists): error when creating "STDIN": jobsets.jobset.x-k8s.io "a" already exists\n'
    )
    assert (second.returncode, second.stderr) == (1, text)
    assert [r["status"] for r in kube.requests() if r["verb"] == "create"][-2:] == [201, 409]


def test_several_resources_are_read_by_label_in_one_command(kube: Kube) -> None:
    kube.call("create", "-f", "-", text=jobset("a", run="x"))
    kube.create(pod("a-0", metadata={"labels": {"run": "x"}}))
    kube.create(pod("b-0", metadata={"labels": {"run": "y"}}))
    assert names(kube.call("get", "jobset,workload,pods", "-l", "run=x", "-o", "json")) == ["a", "a-0"]
    assert names(kube.call("get", "pods", "-l", "run in (x,y),run!=x", "-o", "json")) == ["b-0"]
    assert names(kube.call("get", "pods", "-l", "!run", "-o", "json")) == []


def test_field_selectors_are_those_of_the_resource(kube: Kube) -> None:
    kube.create(pod("a", spec={"nodeName": "n1"}, status={"phase": "Running"}))
    kube.create(pod("b", status={"phase": "Failed"}))
    assert names(kube.call("get", "pods", "--field-selector", "spec.nodeName=n1", "-o", "json")) == ["a"]
    assert names(kube.call("get", "pods", "--field-selector", "status.phase!=Running", "-o", "json")) == ["b"]
    refused = kube.call("get", "pods", "--field-selector", "spec.image=i")
    assert "field label not supported: spec.image" in refused.stderr


def test_a_missing_object_is_not_found(kube: Kube) -> None:
    done = kube.call("get", "jobset", "nothing")
    assert (done.returncode, done.stderr) == (
        1,
        'Error from server (NotFound): jobsets.jobset.x-k8s.io "nothing" not found\n',
    )
    done = kube.call("create", "-n", "no-such", "-f", "-", text=jobset("a"))
    assert 'namespaces "no-such" not found' in done.stderr


def test_a_group_that_is_not_installed_is_no_resource_type(tmp_path: Path) -> None:
    with Kube(tmp_path) as kube:
        kube.set(absent_groups=["kueue.x-k8s.io"])
        done = kube.call("get", "workloads")
        assert (done.returncode, done.stderr) == (1, 'error: the server doesn\'t have a resource type "workloads"\n')
        assert [c["metadata"]["name"] for c in kube.objects("customresourcedefinitions")] == ["jobsets.jobset.x-k8s.io"]


def test_long_lists_come_in_pages(kube: Kube) -> None:
    for number in range(7):
        kube.create(pod(f"p{number}"))
    assert len(names(kube.call("get", "pods", "--chunk-size", "3", "-o", "json"))) == 7
    assert [r["query"].count("continue") for r in kube.requests() if r["verb"] == "list"][-3:] == [0, 1, 1]


def test_what_an_object_owns_goes_with_it(kube: Kube) -> None:
    owner = json.loads(kube.call("create", "-f", "-", "-o", "json", text=jobset("a")).stdout)["metadata"]
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": owner["uid"]}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "ownerReferences": [reference]}}
    kube.create(settings)
    assert kube.call("delete", "jobset", "a").returncode == 0
    assert kube.objects("configmaps", "default") == []
    kube.create(settings)  # after its owner is gone: collected soon
    deadline = time.monotonic() + 10
    while kube.objects("configmaps", "default"):
        assert time.monotonic() < deadline


def test_a_foreground_deletion_ends_after_what_is_owned(kube: Kube) -> None:
    owner = json.loads(kube.call("create", "-f", "-", "-o", "json", text=jobset("a")).stdout)["metadata"]
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": owner["uid"]}
    kube.create(pod("a-0", metadata={"ownerReferences": [reference]}, spec={"nodeName": "n"}))
    kube.call("delete", "jobset", "a", "--cascade=foreground", "--wait=false")
    (left,) = kube.objects("jobsets")
    assert left["metadata"]["finalizers"] == ["foregroundDeletion"]
    kube.delete("pods", "a-0", grace_s=0)
    assert kube.objects("jobsets") == []


def test_orphans_stay(kube: Kube) -> None:
    owner = json.loads(kube.call("create", "-f", "-", "-o", "json", text=jobset("a")).stdout)["metadata"]
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": owner["uid"]}
    kube.create(pod("a-0", metadata={"ownerReferences": [reference]}))
    kube.call("delete", "jobset", "a", "--cascade=orphan")
    (left,) = kube.objects("pods", "default")
    assert "ownerReferences" not in left["metadata"]


def test_a_running_pod_stays_until_its_kubelet_deletes_it(kube: Kube) -> None:
    kube.create(pod("a", spec={"nodeName": "n", "terminationGracePeriodSeconds": 180}, status={"phase": "Running"}))
    kube.call("delete", "pod", "a", "--wait=false")
    assert kube.get("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == 180
    kube.delete("pods", "a", grace_s=0)
    assert kube.objects("pods", "default") == []


def test_kubectl_waits_until_an_object_is_gone(kube: Kube) -> None:
    kube.create(pod("a", spec={"nodeName": "n"}, status={"phase": "Running"}))
    timer = threading.Timer(1.0, lambda: kube.delete("pods", "a", grace_s=0))
    timer.start()
    started = time.monotonic()
    assert kube.call("delete", "pod", "a").returncode == 0
    assert time.monotonic() > started + 0.9


def test_labels_annotations_and_patches(kube: Kube) -> None:
    kube.call("create", "-f", "-", text=jobset("a"))
    kube.call("label", "jobset", "a", "x=1")
    kube.call("annotate", "jobset", "a", "y=2")
    patch = '{"metadata": {"labels": {"x": null, "z": "3"}}, "spec": {"suspend": true}}'
    assert kube.call("patch", "jobset", "a", "--type=merge", "-p", patch).returncode == 0
    body = kube.get("jobsets", "a")
    assert (body["metadata"]["labels"], body["metadata"]["annotations"]) == ({"z": "3"}, {"y": "2"})
    assert body["spec"] == {"suspend": True} and body["metadata"]["generation"] == 2
    strategic = kube.call("patch", "jobset", "a", "-p", patch)
    assert "application/merge-patch+json" in strategic.stderr and strategic.returncode == 1
    kube.create(pod("p"))
    kube.call("patch", "pod", "p", "-p", '{"spec": {"containers": [{"name": "main", "image": "j"}]}}')
    kube.call(
        "patch", "pod", "p", "--type=json", "-p", '[{"op": "add", "path": "/metadata/labels", "value": {"a~b": "c"}}]'
    )
    assert kube.get("pods", "p")["spec"]["containers"] == [{"name": "main", "image": "j"}]


@needs_new_kubectl
def test_the_status_is_a_subresource(kube: Kube) -> None:
    given = json.loads(jobset("a")) | {"status": {"restarts": 3}}
    kube.call("create", "-f", "-", text=json.dumps(given))
    assert "status" not in kube.get("jobsets", "a")
    kube.call("patch", "jobset", "a", "--subresource=status", "--type=merge", "-p", '{"status": {"restarts": 1}}')
    kube.call("patch", "jobset", "a", "--type=merge", "-p", '{"status": {"restarts": 2}, "spec": {"suspend": true}}')
    assert kube.get("jobsets", "a")["status"] == {"restarts": 1}


def test_a_stale_replacement_is_a_conflict(kube: Kube) -> None:
    body = json.loads(kube.call("create", "-f", "-", "-o", "json", text=jobset("a")).stdout)
    kube.call("label", "jobset", "a", "x=1")
    done = kube.call("replace", "-f", "-", text=json.dumps(body))
    assert "(Conflict)" in done.stderr and "the object has been modified" in done.stderr


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"a": "x" * 64}, "must be no more than 63 characters"),
        ({"a": "b/c"}, "a valid label must be an empty string or consist of"),
        ({"a/b/c": "d"}, "prefix part a lowercase RFC 1123 subdomain must consist of"),
    ],
)
def test_labels_are_checked(kube: Kube, labels: dict[str, str], text: str) -> None:
    done = kube.call("create", "-f", "-", text=jobset("a", **labels))
    assert text in done.stderr and 'The JobSet "a" is invalid: metadata.labels' in done.stderr


def test_names_and_sizes_are_checked(kube: Kube) -> None:
    assert "a lowercase RFC 1123 subdomain" in kube.call("create", "-f", "-", text=jobset("A_b")).stderr
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"a": "x" * (1 << 20), "b": "y"},
    }
    assert "may not be more than 1048576 bytes" in kube.call("create", "-f", "-", text=json.dumps(body)).stderr
    body["data"] = {"a": "x" * (3 << 20)}
    assert "Request entity too large: limit is 3145728" in kube.call("create", "-f", "-", text=json.dumps(body)).stderr


def test_secrets_are_kept_in_base64_whichever_way_they_come(kube: Kube) -> None:
    kube.call("create", "secret", "generic", "a", "--from-literal=token=hf_x")
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "stringData": {"token": "hf_x"}}
    kube.call("create", "-f", "-", text=json.dumps(body))
    for name in ("a", "b"):
        done = kube.call("get", "secret", name, "-o", "jsonpath={.data.token}")
        assert base64.b64decode(done.stdout) == b"hf_x"


def test_can_i_answers_by_the_faults(kube: Kube) -> None:
    assert kube.call("auth", "can-i", "create", "jobsets.jobset.x-k8s.io").stdout == "yes\n"
    kube.fault("forbidden", verb="create", resource="pods/exec")
    assert kube.call("auth", "can-i", "create", "pods", "--subresource=exec").stdout.startswith("no")
    assert kube.call("auth", "can-i", "get", "pods", "--subresource=log").stdout == "yes\n"
    refused = kube.call("exec", "p", "--", "true") if kube.create(pod("p")) else None
    text = 'cannot create resource "pods/exec" in API group "" in the namespace "default"'
    assert refused and 'pods "p" is forbidden' in refused.stderr and text in refused.stderr


def test_versions_and_resources_are_discovered(kube: Kube) -> None:
    assert json.loads(kube.call("version", "-o", "json").stdout)["serverVersion"]["minor"] == "32"
    listed = kube.call("api-resources", "--no-headers", "-o", "name").stdout.split()
    assert {"pods", "jobsets.jobset.x-k8s.io", "localqueues.kueue.x-k8s.io"} <= set(listed)


@needs_new_kubectl
def test_nothing_is_stored_by_a_dry_run(kube: Kube) -> None:
    assert kube.call("create", "--dry-run=server", "-f", "-", text=jobset("a")).returncode == 0
    assert kube.objects("jobsets") == []
    kube.call("create", "-f", "-", text=jobset("a"))
    assert kube.call("delete", "--dry-run=server", "jobset", "a").returncode == 0
    assert len(kube.objects("jobsets")) == 1


QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "q"},
    "spec": {"cohort": "c"},
}


def test_kueue_has_two_versions_of_which_the_older_one_warns(kube: Kube) -> None:
    done = kube.call("create", "-f", "-", text=json.dumps(QUEUE))
    assert "Warning: This version is deprecated. Use v1beta2 instead.\n" in done.stderr and done.returncode == 0
    newer = json.loads(kube.call("get", "clusterqueue", "q", "-o", "json").stdout)
    assert (newer["apiVersion"], newer["spec"]) == ("kueue.x-k8s.io/v1beta2", {"cohortName": "c"})
    done = kube.call("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "-o", "json")
    assert json.loads(done.stdout)["items"][0]["spec"] == {"cohort": "c"}
    kube.call("patch", "clusterqueue", "q", "--type=merge", "-p", '{"spec": {"cohortName": "d"}}')
    assert kube.get("clusterqueues", "q")["spec"] == {"cohort": "d"}
    kube.set(kueue_versions=["v1beta2"])
    done = kube.call("get", "clusterqueues.v1beta1.kueue.x-k8s.io")
    kube.set(kueue_versions=["v1beta2", "v1beta1"])
    assert done.returncode == 1
    kube.delete("clusterqueues", "q")


CONTAINER = {"name": "main", "image": "i"}


@pytest.mark.parametrize(
    ("pod_spec", "text"),
    [
        (
            {"containers": [CONTAINER], "graceSeconds": 3},
            'JobSet in version "v1alpha2" cannot be handled as a JobSet: strict decoding error: '
            'unknown field "spec.replicatedJobs[0].template.spec.template.spec.graceSeconds"',
        ),
        (
            {"containers": [CONTAINER | {"env": [{"name": "A", "value": 1}]}]},
            'spec.template.spec.containers[0].env[0].value in body must be of type string: "integer"',
        ),
        ({"containers": [{"image": "i"}]}, "spec.template.spec.containers[0].name: Required value"),
        (
            {"containers": [CONTAINER | {"resources": {"limits": {"google.com/tpu": "four"}}}]},
            "must be of type integer or string",
        ),
    ],
)
@needs_new_kubectl
def test_fields_of_a_manifest_are_checked(kube: Kube, pod_spec: dict[str, object], text: str) -> None:
    body = json.loads(jobset("a"))
    body["spec"] = {"replicatedJobs": [{"name": "r", "template": {"spec": {"template": {"spec": pod_spec}}}}]}
    done = kube.call("create", "-f", "-", text=json.dumps(body))
    assert done.returncode == 1 and text in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"restartPolicy": "Always"}, 'spec.template.spec.restartPolicy: Unsupported value: "Always"'),
        (
            {"containers": [CONTAINER | {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
        (
            {
                "containers": [
                    CONTAINER | {"resources": {"requests": {"google.com/tpu": 4}, "limits": {"google.com/tpu": "8"}}}
                ]
            },
            'Invalid value: "4": must be equal to google.com/tpu limit of 8',
        ),
        ({"containers": [CONTAINER, CONTAINER]}, 'spec.template.spec.containers[1].name: Duplicate value: "main"'),
    ],
)
def test_jobs_are_checked_when_they_are_created(kube: Kube, more: dict[str, object], text: str) -> None:
    template = {"restartPolicy": "Never", "containers": [CONTAINER]}
    spec = {"completionMode": "Indexed", "completions": 1, "template": {"spec": template | more}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    done = kube.call("create", "-f", "-", text=json.dumps(body))
    assert done.returncode == 1 and 'The Job "j" is invalid' in done.stderr and text in done.stderr
    spec["template"] = {"spec": template}
    assert kube.call("create", "-f", "-", text=json.dumps(body)).returncode == 0
