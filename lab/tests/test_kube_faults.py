"""Faults of the simulated API server, and what the real kubectl makes of each."""

import json
import threading
import time
from pathlib import Path

import pytest

from lab.kube.control import Kube
from lab.kube.faults import Faults
from lab.tests.kube_cluster import jobset, needs_kubectl, pod

pytestmark = needs_kubectl


@pytest.mark.long
def test_connections_are_refused_while_the_api_is_unreachable(kube: Kube) -> None:
    kube.call("get", "pods")
    kube.unreachable(1.5)
    refused = kube.call("get", "pods", "-o", "name")
    assert refused.returncode == 1 and "was refused" in refused.stderr
    kube.create(pod("a"))  # tests and the cloud do
    deadline = time.monotonic() + 20
    while (done := kube.call("get", "pods", "-o", "name")).returncode:
        assert time.monotonic() < deadline
    assert done.stdout == "pod/a\n"


def test_connections_break_when_the_api_becomes_unreachable(kube: Kube) -> None:
    threading.Timer(1.0, lambda: kube.unreachable(0.5)).start()
    done = kube.call("get", "pods", "-w", timeout=30)
    assert done.returncode in (0, 1)


def test_kubectl_retries_after_the_time_that_429_names(kube: Kube) -> None:
    kube.fault("http", status=429, retry_after_s=1, verb="list", resource="pods", calls=2)
    started = time.monotonic()
    assert kube.call("get", "pods").returncode == 0
    assert time.monotonic() > started + 2
    assert [r["status"] for r in kube.requests() if r["verb"] == "list"][-3:] == [429, 429, 200]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "Error from server (InternalError): Internal error occurred: etcdserver: leader changed"),
        (503, "Error from server (ServiceUnavailable): the server is currently unable to handle the request"),
        (401, "error: You must be logged in to the server (Unauthorized)"),
    ],
)
def test_errors_of_the_server_are_shown(kube: Kube, status: int, text: str) -> None:
    kube.fault("http", status=status, verb="list", resource="pods", calls=1)
    done = kube.call("get", "pods")
    assert done.returncode == 1 and text in done.stderr
    assert kube.call("get", "pods").returncode == 0


def test_a_text_of_a_webhook_that_is_down_can_be_given(kube: Kube) -> None:
    text = 'Internal error occurred: failed calling webhook "mjobset.kb.io": no endpoints available for service "jobset-webhook-service"'
    kube.fault("http", status=500, text=text, verb="create", resource="jobsets", skip=1, calls=1)
    assert kube.call("create", "-f", "-", text=jobset("a")).returncode == 0
    assert text in kube.call("create", "-f", "-", text=jobset("b")).stderr
    assert kube.call("create", "-f", "-", text=jobset("b")).returncode == 0


def test_rights_are_missing_by_verb_and_resource(kube: Kube) -> None:
    kube.fault("forbidden", verb="delete", resource="jobsets")
    kube.call("create", "-f", "-", text=jobset("a"))
    done = kube.call("delete", "jobset", "a")
    text = 'jobsets.jobset.x-k8s.io "a" is forbidden: User "lab@example.com" cannot delete resource "jobsets" in API group "jobset.x-k8s.io"'
    assert done.returncode == 1 and text in done.stderr


def test_a_slow_answer_comes(kube: Kube) -> None:
    kube.fault("slow", delay_s=1, verb="list", resource="pods", seconds=30)
    started = time.monotonic()
    assert kube.call("get", "pods").returncode == 0
    assert time.monotonic() > started + 1


def test_an_answer_that_never_comes_ends_with_the_timeout(kube: Kube) -> None:
    kube.fault("hang", verb="list", resource="pods", calls=1)
    done = kube.call("get", "pods", "--request-timeout=1s")
    texts = ("Client.Timeout exceeded", "context deadline exceeded")  # which of them is a matter of chance
    assert done.returncode == 1 and any(text in done.stderr for text in texts)


def test_a_create_whose_answer_is_lost_has_created(kube: Kube) -> None:
    kube.fault("lost", verb="create", resource="jobsets", calls=1)
    done = kube.call("create", "-f", "-", text=jobset("a"))
    assert done.returncode == 1 and "EOF" in done.stderr
    assert "(AlreadyExists)" in kube.call("create", "-f", "-", text=jobset("a")).stderr


def test_a_connection_is_reset(kube: Kube) -> None:
    kube.fault("reset", verb="create", resource="jobsets", calls=1)
    assert kube.call("create", "-f", "-", text=jobset("a")).returncode == 1
    assert kube.objects("jobsets") == []


def test_a_page_of_a_list_is_too_old(kube: Kube) -> None:
    for number in range(4):
        kube.create(pod(f"p{number}"))
    first = kube.call("get", "--raw", "/api/v1/namespaces/default/pods?limit=2")
    token = json.loads(first.stdout)["metadata"]["continue"]
    kube.expire_history()
    done = kube.call("get", "--raw", f"/api/v1/namespaces/default/pods?limit=2&continue={token}")
    assert done.returncode == 1 and "The provided continue parameter is too old" in done.stderr


def test_a_login_is_needed_and_expires(tmp_path: Path) -> None:
    plugin, token = tmp_path / "plugin", tmp_path / "token"
    token.write_text("lab")
    credential = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential"}
    text = json.dumps(credential | {"status": {"token": "TOKEN"}}).replace("TOKEN", f"'$(cat {token})'")
    plugin.write_text(f"#!/bin/sh\necho '{text}'\n")
    plugin.chmod(0o755)
    with Kube(tmp_path, login=str(plugin)) as kube:
        assert kube.call("get", "pods").returncode == 0
        kube.set(token="another")
        assert "You must be logged in to the server" in kube.call("get", "pods").stderr
        token.write_text("another")
        assert kube.call("get", "pods").returncode == 0


def test_the_credential_plugin_is_missing(tmp_path: Path) -> None:
    with Kube(tmp_path / ("long" * 30), login="no-such-plugin") as kube:
        done = kube.call("get", "pods")
        assert done.returncode == 1 and "executable no-such-plugin not found" in done.stderr


def test_what_is_owned_goes_later(kube: Kube) -> None:
    kube.set(garbage_s=1.0)
    owner = json.loads(kube.call("create", "-f", "-", "-o", "json", text=jobset("a")).stdout)["metadata"]
    reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "a", "uid": owner["uid"]}
    kube.create(pod("a-0", metadata={"ownerReferences": [reference]}))
    kube.call("delete", "jobset", "a")
    assert len(kube.objects("pods", "default")) == 1
    deadline = time.monotonic() + 10
    while kube.objects("pods", "default"):
        assert time.monotonic() < deadline
    kube.set(garbage_s=0)


def test_a_rule_passes_some_calls_then_holds_for_some() -> None:
    faults = Faults()
    faults.set(kind="http", skip=1, calls=2)
    assert [len(faults.of("get", "pods", "a")) for _ in range(5)] == [0, 1, 1, 0, 0]
    faults.set(kind="http", verb="get", resource="pods", seconds=0.0)
    time.sleep(0.01)
    assert faults.of("get", "pods", "a") == []
