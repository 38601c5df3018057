"""The simulated cloud itself: its states, faults, guests and records, through its `gcloud` and over ssh."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab import cloud
from tests.lab.gcloud.control import Gcloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
ZONE = "us-east5-b"
QUEUED, VM = ("compute", "tpus", "queued-resources"), ("compute", "tpus", "tpu-vm")


class Client:
    """Calls `gcloud` as a program under test would."""

    def __init__(self, gcloud: Gcloud) -> None:
        self.cloud = gcloud
        self.key = gcloud.root / "gcloud" / "me"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)

    def run(self, *argv: str, zone: str = ZONE) -> tuple[int, Any, str]:
        """(status, stdout as JSON, stderr)."""
        done = self.cloud.call(*argv, "--project=p", f"--zone={zone}", "--format=json")
        assert "Traceback" not in done.stderr and "lab:" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr

    def create(self, name: str, *more: str, zone: str = ZONE, size: str = "v6e-8") -> tuple[int, Any, str]:
        flags = (f"--node-id={name}", f"--accelerator-type={size}", "--runtime-version=v2-alpha-tpuv6e", "--async")
        return self.run(*QUEUED, "create", name, *flags, self.metadata, *more, zone=zone)

    def create_node(self, name: str, *more: str) -> tuple[int, Any, str]:
        flags = ("--accelerator-type=v6e-8", "--version=v2-alpha-tpuv6e", "--spot", self.metadata)
        return self.run(*VM, "create", name, *flags, *more)

    @property
    def metadata(self) -> str:
        return f"--metadata=ssh-keys=tester:{self.key.with_suffix('.pub').read_text().strip()}"

    def state(self, name: str, zone: str = ZONE) -> str:
        status, shown, err = self.run(*QUEUED, "describe", name, zone=zone)
        return str(shown["state"]["state"]) if status == 0 else err.split()[2]

    def node_state(self, name: str) -> str:
        status, shown, err = self.run(*VM, "describe", name)
        return str(shown["state"]) if status == 0 else err.split()[2]

    def states_until(self, last: str, name: str, seconds: float = 30.0) -> list[str]:
        """The states that a queued resource goes through, as describe shows them."""
        states = [self.state(name)]
        until(lambda: (states.append(self.state(name)) if states[-1] != last else None) or states[-1] == last, seconds)
        return [state for state, before in zip(states, [None, *states], strict=False) if state != before]

    def ssh(self, node: str, worker: int, command: str) -> subprocess.CompletedProcess[str]:
        host = self.cloud.hosts(node)[worker]
        known = self.cloud.root / "known"
        known.write_text(f"{host['address']} ssh-ed25519 {host['host_key']}\n")
        options = [f"UserKnownHostsFile={known}", "IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=2"]
        argv = ["ssh", "-F", "none", "-i", str(self.key), *(f"-o{option}" for option in options)]
        return subprocess.run(
            [*argv, f"tester@{host['address']}", command], capture_output=True, text=True, check=False
        )


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def lab() -> Iterator[cloud.Lab]:
    with cloud.Lab() as lab:
        yield lab


@pytest.fixture
def client(lab: cloud.Lab) -> Iterator[Client]:
    with Gcloud(lab) as gcloud:
        yield Client(gcloud)


def test_a_queued_resource_becomes_active_and_is_deleted_with_its_node(client: Client) -> None:
    client.cloud.times(creating=0.4, accepted=0.4, provisioning=0.4, deleting=0.4)
    status, operation, err = client.create("q", "--spot", "--labels=podwright-run=r")
    assert status == 0 and operation["metadata"]["verb"] == "create" and "Check operation [" in err
    assert client.states_until("ACTIVE", "q") == ["CREATING", "ACCEPTED", "PROVISIONING", "ACTIVE"]
    labelled = "--filter=tpu.nodeSpec[0].node.labels.podwright-run:*"
    assert len(client.run(*QUEUED, "list", labelled, zone="-")[1]) == 1
    (node,) = client.run(*VM, "list", "--filter=labels.podwright-run=r", zone="-")[1]
    assert node["state"] == "READY" and node["queuedResource"].endswith("/q") and node["networkEndpoints"]
    status, _, err = client.run(*QUEUED, "delete", "q", "--quiet")
    assert status == 1 and "when state is ACTIVE (must be one of [ACCEPTED" in err and client.state("q") == "ACTIVE"
    assert client.run(*QUEUED, "delete", "q", "--quiet", "--force", "--async")[0] == 0
    assert client.states_until("NOT_FOUND:", "q") == ["DELETING", "NOT_FOUND:"]
    (row,) = client.cloud.ledger()
    assert (
        client.cloud.resources() == [] and (row["name"], row["chips"]) == ("q", 8) and row["gone_at"] > row["ready_at"]
    )
    argvs = [" ".join(row["argv"]) for row in client.cloud.calls()]
    assert "delete q --quiet --force --async" in argvs[-3] or any("--force" in argv for argv in argvs)


def test_the_guest_knows_its_place_and_deletes_itself(client: Client) -> None:
    client.cloud.order_endpoints([2, 0, 3, 1])
    marker = "--metadata-from-file=startup-script=" + str(client.cloud.root / "startup.sh")
    (client.cloud.root / "startup.sh").write_text('echo "booted as $(id -u)"')
    client.cloud.late_key("q", 1, 1.5)
    assert client.create("q", marker, size="v6e-16")[0] == 0
    until(lambda: client.state("q") == "ACTIVE")
    assert client.ssh("q", 1, "true").returncode == 255, "its key is late"
    node = client.run(*VM, "describe", "q")[1]
    hosts = client.cloud.hosts("q")
    external = [endpoint["accessConfig"]["externalIp"] for endpoint in node["networkEndpoints"]]
    assert external == [hosts[worker]["address"] for worker in (2, 0, 3, 1)]
    rows = client.run(*VM, "get-guest-attributes", "q", "--query-path=hostkeys/")[1]
    assert [row["value"] for row in rows] == [hosts[worker]["host_key"] for worker in (2, 0, 3, 1)]
    read = "curl -s -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1/"
    seen = client.ssh("q", 2, f"id -u; {read}instance/attributes/agent-worker-number; cat startup-script.log")
    assert seen.stdout == "0\n2booted as 0\n", seen
    code = "import sys, urllib.request as u; r = u.Request(sys.argv[1], method='DELETE', headers={'Authorization': 'Bearer ' + sys.argv[2]}); print(u.urlopen(r).status)"
    url = f"https://tpu.googleapis.com/v2/projects/p/locations/{ZONE}/queuedResources/q?force=true"
    token = f'$({read}instance/service-accounts/default/token | sed \'s/.*access_token": "//;s/".*//\')'
    assert (
        client.ssh("q", 0, f"curl -s -X DELETE -H 'Authorization: Bearer wrong' '{url}'").stdout.count(
            "UNAUTHENTICATED"
        )
        == 1
    )
    until(lambda: client.ssh("q", 1, "true").returncode == 0)
    client.ssh("q", 3, f'{sys.executable} -c "{code}" \'{url}\' "{token}"')
    until(lambda: client.cloud.resources() == [])
