"""The simulated cloud itself: its states, faults, guests and records, through its `gcloud` and over ssh."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import cloud
from lab.gcloud.control import Gcloud

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
        done = self.cloud.call(*argv, "--project=p", *([f"--zone={zone}"] if zone else []), "--format=json")
        assert "Traceback" not in done.stderr and "lab:" not in done.stderr, done.stderr
        out = json.loads(done.stdout) if done.returncode == 0 and done.stdout else None
        return done.returncode, out, done.stderr

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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_requests_wait_for_capacity_expire_and_are_suspended(client: Client) -> None:
    client.cloud.capacity(ZONE, 0)
    client.cloud.quota("us-east5", 16)
    assert client.create("late", "--spot")[0] == 0
    assert client.create("never", "--spot", "--valid-until-duration=1s")[0] == 0
    status, _, err = client.create("third", "--spot")
    limit = (
        "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 16 in region us-east5."
    )
    assert (status, err) == (1, f"ERROR: (gcloud.compute.tpus.queued-resources.create) RESOURCE_EXHAUSTED: {limit}\n")
    assert client.create("dear")[0] == 0, "on-demand quota is another"
    assert client.run(*QUEUED, "delete", "dear", "--quiet", "--force")[0] == 0
    until(lambda: client.state("never") == "FAILED")
    assert client.run(*QUEUED, "describe", "never")[1]["state"]["failedData"]["error"]["code"]
    client.cloud.capacity(ZONE, 8, after_s=2.0)
    assert client.states_until("ACTIVE", "late")[-2:] == ["PROVISIONING", "ACTIVE"]
    client.cloud.capacity(ZONE, 0)
    client.cloud.times(suspending=0.4)
    client.cloud.preempt("late", notice_s=1.0)
    notice = (
        "curl -s -H 'Metadata-Flavor: Google' 'http://metadata.google.internal/computeMetadata/v1/instance/preempted'"
    )
    until(lambda: client.ssh("late", 0, notice).stdout == "TRUE", 1.0)
    assert client.states_until("SUSPENDED", "late") == ["ACTIVE", "SUSPENDING", "SUSPENDED"]
    assert client.node_state("late") == "NOT_FOUND:"
    assert client.create("third", "--spot")[0] == 1, "husks hold their quota"
    assert {row["state"] for row in client.cloud.resources()} == {"SUSPENDED", "FAILED"}
    for name in ("late", "never"):
        assert client.run(*QUEUED, "delete", name, "--quiet")[0] == 0
    assert client.cloud.resources() == [] and all(row["gone_at"] for row in client.cloud.ledger())


@pytest.mark.long
def test_flex_start_ends_by_its_limit_and_exists_in_some_zones_only(client: Client) -> None:
    flags = ("--accelerator-type=v6e-8", "--runtime-version=v2-alpha-tpuv6e", "--provisioning-model=flex-start")
    create = ("alpha", *QUEUED, "create")
    assert client.run(*create, "f", "--node-id=f", *flags, "--max-run-duration=1s", zone="us-east5-a")[0] == 0
    until(lambda: client.state("f", "us-east5-a") == "SUSPENDED")
    status, _, err = client.run(*create, "g", "--node-id=g", *flags, "--max-run-duration=1s")
    assert status == 1 and '"code": 3' in err and "FLEX_START provisioning model is not supported" in err
    status, _, err = client.create("h", "--max-run-duration=1s")
    assert status == 2 and "gcloud alpha compute tpus queued-resources create --max-run-duration" in err


def test_direct_nodes_and_their_errors(client: Client) -> None:
    status, node, err = client.create_node("n")
    assert (status, node["state"]) == (0, "READY") and err.endswith("Created tpu [n].\n")
    status, _, err = client.create_node("n")
    assert status == 1 and "ALREADY_EXISTS" in err
    assert client.run(*VM, "update", "n", "--update-labels=a=2", "--quiet")[0] == 0
    assert client.run(*VM, "describe", "n")[1]["labels"] == {"a": "2"}
    client.cloud.times(ghost=3.0)
    client.cloud.capacity(ZONE, 8)
    status, _, err = client.create_node("m")
    assert status == 1 and '"code": 8' in err and f'no more capacity in the zone \\"{ZONE}\\"' in err
    assert client.node_state("m") == "CREATING", "it stays listed for a while"
    client.cloud.preempt("n")
    until(lambda: client.node_state("n") == "PREEMPTED")
    status, _, err = client.run(*VM, "update", "n", "--update-labels=a=3", "--quiet")
    assert "update is not supported while in state PREEMPTED" in err
    assert client.run(*VM, "delete", "n", "--quiet")[0] == 0
    until(lambda: client.cloud.resources() == [])


@pytest.mark.long
def test_faults_of_calls(client: Client) -> None:
    cloud = client.cloud
    cloud.set(name_taken_s=60.0, lag={"describe": 60.0, "list": 60.0})
    cloud.fault("queued-resources create", "cut", keep=20)
    status, _, err = client.create("q", "--async")
    assert (status, err) == (1, "Create request issue"), "it took effect"
    assert client.state("q") == "NOT_FOUND:" and client.run(*QUEUED, "list")[1] == [], "and is seen later"
    assert client.create("q")[2].startswith("ERROR: (gcloud.compute.tpus.queued-resources.create) ALREADY_EXISTS")
    cloud.set(lag={"describe": 0.0, "list": 0.0})
    until(lambda: client.state("q") == "ACTIVE")
    cloud.fault("queued-resources describe", status=503, calls=2)
    assert [client.run(*QUEUED, "describe", "q")[0] for _ in range(3)] == [1, 1, 0]
    cloud.set(lag={"describe": 5.0, "list": 5.0})
    until(lambda: client.state("q") == "ACTIVE")
    cloud.fault("queued-resources delete", "killed")
    assert client.run(*QUEUED, "delete", "q", "--force", "--quiet")[0] == -9
    assert client.state("q") == "ACTIVE", "as it was before"
    until(lambda: client.state("q") == "NOT_FOUND:")
    assert "ALREADY_EXISTS" in client.create("q")[2], "the name is free later"
    cloud.fault("tpu-vm *", "timeout")
    status, _, err = client.create_node("n")
    assert status == 1 and "has not finished in 1800 seconds" in err and len(cloud.resources()) == 1
    cloud.fault("*", status=429, calls=None, probability=1.0)
    assert "Maximum number of CreateNode requests per minute" in client.create_node("m")[2]
    cloud.set(faults=[])
    cloud.deny("tpu.nodes.list", "instance:tpu.nodes.delete")
    assert "PERMISSION_DENIED: Permission 'tpu.nodes.list' denied on" in client.run(*VM, "list")[2]
    assert client.run(*VM, "delete", "n", "--quiet")[0] == 0
    killed = [row for row in cloud.calls() if row["rc"] is None]
    assert ["delete" in row["argv"] for row in killed] == [True]


@pytest.mark.long
def test_login_api_project_and_other_services(client: Client) -> None:
    cloud = client.cloud
    cloud.set(api_enabled=False, buckets={"b": {"location": "US-EAST5"}}, properties={"core/project": "p"})
    assert "SERVICE_DISABLED" in client.run(*VM, "list")[2]
    assert client.run("services", "list", "--enabled", "--filter=config.name=tpu.googleapis.com", zone="")[:2] == (
        0,
        [],
    )
    cloud.set(account="", api_enabled=True)
    assert "You do not currently have an active account selected." in client.run(*VM, "list")[2]
    cloud.set(account="me@example.com", login_expired=True)
    assert "cannot prompt during non-interactive execution" in client.run(*VM, "list")[2]
    cloud.set(login_expired=False)
    assert client.run("auth", "list", zone="")[1] == [{"account": "me@example.com", "status": "ACTIVE"}]
    assert cloud.call("config", "get-value", "project").stdout == "p\n"
    assert cloud.call("config", "get-value", "compute/zone").stderr == "(unset)\n"
    assert client.run("storage", "buckets", "describe", "gs://b", zone="")[1]["location"] == "US-EAST5"
    assert client.run("storage", "buckets", "describe", "gs://c", zone="")[2].endswith("gs://c not found: 404.\n")
    assert "zone" in client.cloud.call(*VM, "describe", "n").stderr
    types = client.run(*VM, "accelerator-types", "list")[1]
    assert "v6e-16" in [item["type"] for item in types]
    assert 'The requested zone "us-west1-a" is not supported' in client.create("q", zone="us-west1-a")[2]
    assert "could not be found in the zonal accelerator configurations" in client.create("q", size="v4-8")[2]
    assert client.run(*VM, "describe", "n", zone="mars-1a")[2].count("Permission denied on 'locations/mars-1a'") == 1


@pytest.mark.long
def test_a_worker_behind_a_tunnel_and_out_of_reach(client: Client) -> None:
    assert client.create("q", "--internal-ips")[0] == 0
    until(lambda: client.state("q") == "ACTIVE")
    (endpoint,) = client.run(*VM, "describe", "q")[1]["networkEndpoints"]
    assert endpoint["accessConfig"] == {}
    with pytest.raises(OSError):
        socket.create_connection((endpoint["ipAddress"], 22), timeout=2)
    rows = client.run(*VM, "get-guest-attributes", "q")[1]
    name = next(row["value"] for row in rows if row["key"] == "hostname")
    gcloud = (
        f"{client.cloud.folder}/gcloud compute start-iap-tunnel {name} 22 --listen-on-stdin --project=p --zone={ZONE}"
    )
    options = ("-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", f"-oProxyCommand={gcloud}")
    argv = ["ssh", "-F", "none", "-i", str(client.key), *options, f"tester@{endpoint['ipAddress']}", "hostname"]
    assert subprocess.run(argv, capture_output=True, text=True, check=False).stdout == f"{name}\n"
    client.cloud.busy_device("q", 0)
    client.cloud.unreachable("q", 0, 4.0)
    time.sleep(0.3)
    assert client.ssh("q", 0, "true").returncode == 255
    until(lambda: client.ssh("q", 0, "true").returncode == 0)
    read = "curl -s -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1/instance/attributes/lab-device"
    assert client.ssh("q", 0, read).stdout == "busy"


@pytest.mark.long
def test_provisioning_fails_or_starts_again(client: Client) -> None:
    cloud = client.cloud
    cloud.fail_provisioning("Insufficient reserved capacity.", code=9, request="bad")
    cloud.fail_provisioning("", request="retried", back=True)
    assert client.create("bad", "--reserved")[0] == 0 and client.create("retried", "--spot")[0] == 0
    until(lambda: client.state("bad") == "FAILED")
    error = {"code": 9, "message": "Insufficient reserved capacity."}
    assert client.run(*QUEUED, "describe", "bad")[1]["state"]["failedData"] == {"error": error}
    until(lambda: client.state("retried") == "ACTIVE")
    cloud.image("*", None, "tpu-ubuntu2204-base")
    read = "curl -s -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1/instance/attributes/lab-image"
    until(lambda: client.ssh("retried", 0, read).stdout == "tpu-ubuntu2204-base")
    assert client.run(*VM, "delete", "retried", "--quiet", "--async")[0] == 0
    until(lambda: client.state("retried") == "SUSPENDED")
    assert client.run(*QUEUED, "describe", "retried")[1]["state"]["stateInitiator"] == "USER"


def test_a_node_that_is_taken_while_it_is_made_and_an_operation_that_hangs(client: Client) -> None:
    cloud = client.cloud
    cloud.times(operation=1.0, provisioning=5.0)
    flags = ("--accelerator-type=v6e-8", "--version=v2-alpha-tpuv6e", "--spot")
    argv = [str(cloud.folder / "gcloud"), *VM, "create", "n", *flags, "--project=p", f"--zone={ZONE}", "--quiet"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: client.node_state("n") == "CREATING")
        cloud.preempt("n")
        until(lambda: client.node_state("n") == "PREEMPTED")
        assert process.poll() is None, "the operation is still pending"
        err = process.communicate()[1]
    assert process.returncode == 1 and '"code": 3' in err and "update is not supported while in state PREEMPTED" in err
    cloud.fault("tpu-vm describe", text="INTERNAL: something nobody has seen before", calls=1)
    assert client.run(*VM, "describe", "n")[2].endswith("describe) INTERNAL: something nobody has seen before\n")
    cloud.fault("tpu-vm describe", "http", status=429)
    assert (
        "HttpError accessing <https://tpu.googleapis.com/v2/projects/p/locations" in client.run(*VM, "describe", "n")[2]
    )
    cloud.fault("tpu-vm delete", status=500, before=False)
    assert (
        "Internal error. Please try again" in client.run(*VM, "delete", "n", "--quiet")[2] and cloud.resources() == []
    )


@pytest.mark.long
def test_calls_at_once_and_several_nodes_of_one_request(client: Client) -> None:
    client.cloud.times(creating=5.0)
    argv = [str(client.cloud.folder / "gcloud"), *QUEUED, "create", "q", "--node-count=2", "--accelerator-type=v6e-8"]
    argv += [
        "--runtime-version=v2-alpha-tpuv6e",
        "--project=p",
        f"--zone={ZONE}",
        "--quiet",
        "--async",
        client.metadata,
    ]
    started = [subprocess.Popen(argv, stderr=subprocess.DEVNULL) for _ in range(6)]
    assert sorted(process.wait() for process in started) == [0, 1, 1, 1, 1, 1]
    client.cloud.times(creating=0.0)
    until(lambda: client.state("q") == "ACTIVE")
    assert [client.node_state(name) for name in ("q-0", "q-1")] == ["READY", "READY"]
    names = [host["name"] for node in ("q-0", "q-1") for host in client.cloud.hosts(node)]
    assert [client.ssh(node, 0, "hostname").stdout.strip() for node in ("q-0", "q-1")] == names


def test_a_cloud_ends_with_the_test_that_owns_it() -> None:
    code = (
        "import os, signal, time\n"
        "from lab import cloud\n"
        "from lab.gcloud.control import Gcloud\n"
        "lab = cloud.Lab().__enter__()\n"
        "gcloud = Gcloud(lab).__enter__()\n"
        "gcloud.call('compute', 'tpus', 'tpu-vm', 'create', 'n', '--accelerator-type=v6e-8', '--version=v',\n"
        f"    '--project=p', '--zone={ZONE}')\n"
        "assert gcloud.hosts('n')\n"
        "print(lab.root, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    argv = [sys.executable, "-c", code]
    root = subprocess.run(argv, capture_output=True, text=True, cwd=cloud.REPOSITORY, check=False).stdout.strip()
    assert root
    until(lambda: not [path for path in Path("/proc").glob("[0-9]*/cmdline") if root in text(path)])


def text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
