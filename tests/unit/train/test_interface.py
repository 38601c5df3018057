"""Over which network the processes of several hosts exchange arrays, on hosts of many makes: each in a network and with an /etc/hosts of its own."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podwright.train import interface


def _interface(name: str, address: str) -> str:
    ends = f"ip link add {name} type veth peer name p{name}; ip link set p{name} addrgenmode none up"
    return f"{ends}; ip addr add {address} dev {name}; ip link set {name} up"


ONE = _interface("eth0", "10.9.0.1/24")
TWO = f"{ONE}; {_interface('ib0', '10.8.0.1/24')}"
DOCKER = f"{ONE}; {_interface('docker0', '172.17.0.1/16')}"
DEBIAN = "127.0.0.1 localhost\n127.0.1.1 h1\n10.9.0.2 h2\n10.8.0.2 h2-ib\n"
ASK = "import sys; from podwright.train import interface; print(interface.of_route(sys.argv[1]))"


def can_have_networks() -> bool:
    tried = ["unshare", "-n", "-m", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]
    return bool(shutil.which("unshare") and shutil.which("ip")) and subprocess.run(tried, check=False).returncode == 0


@pytest.mark.parametrize(
    ("network", "names", "first", "expected"),
    [
        (ONE, DEBIAN, "h1", "eth0"),
        (ONE, DEBIAN, "h2", "eth0"),
        (ONE, DEBIAN, "10.9.0.1", "eth0"),
        (ONE, DEBIAN, "10.9.0.2", "eth0"),
        (DOCKER, DEBIAN, "h1", "eth0"),
        (DOCKER, "172.17.0.1 h1\n", "h1", "eth0"),
        (f"{DOCKER}; ip route add default via 10.9.0.254", "172.17.0.1 h1\n", "h1", "eth0"),
        (_interface("br-ex", "10.9.0.1/24"), "10.9.0.2 h2\n", "h2", "br-ex"),
        (TWO, DEBIAN, "h2-ib", "ib0"),
        (f"{TWO}; ip route add default via 10.8.0.254", DEBIAN, "h1", "ib0"),
        (TWO, DEBIAN, "h1", ""),
        (ONE, DEBIAN, "127.0.0.1", ""),
        (ONE, DEBIAN, "::1", ""),
        (ONE, DEBIAN, "nobody.invalid", "eth0"),
        ("true", DEBIAN, "h1", ""),
        (f"{ONE}; ip addr add fd00::1/64 dev eth0 nodad", "::1 h1\n", "fd00::2", "eth0"),
    ],
)  # fmt: skip
@pytest.mark.skipif(not can_have_networks(), reason="no network of its own can be made here")
def test_the_network_is_that_of_the_route_to_the_first_host(
    tmp_path: Path, network: str, names: str, first: str, expected: str
) -> None:
    (tmp_path / "hosts").write_text(names)
    script = f'hostname h1; ip link set lo up; {network}; mount --bind {tmp_path}/hosts /etc/hosts; exec "$@"'
    argv = ["unshare", "-n", "-m", "-u", "sh", "-c", script, "sh", sys.executable, "-c", ASK, first]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout == f"{expected}\n", json.dumps([done.stdout, done.stderr])


HOST = """hostname $1; ip link set lo up
until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
ip addr add $2/24 dev eth0; ip link set eth0 up
mount --bind $3 /etc/hosts
shift 3
exec "$@\""""
"""shell of a host: its name, its address, its /etc/hosts and what runs there"""
TRAINERS = {
    "jax": """
from podwright.train import mesh
mesh.start_processes()
import jax
print(mesh.gathered(jax.process_index()))
""",
    "torch": """
import os
from podwright.train.multimodal.processes import world
joined = world.join(os.environ)
print(joined.gathered(joined.rank), flush=True)
os._exit(0)
""",
}


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.skipif(not can_have_networks(), reason="no network of its own can be made here")
def test_hosts_whose_own_names_stand_for_the_loopback_exchange_arrays(tmp_path: Path, trainer: str) -> None:
    """As Debian and Ubuntu install them; each is named to the other one by its address."""
    addresses = {"h1": "10.9.0.1", "h2": "10.9.0.2"}
    joined = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "h1",
        "MASTER_PORT": "13580",
    }
    joined |= {"JAX_COORDINATOR_ADDRESS": "h1:13579", "JAX_NUM_PROCESSES": "2", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    hosts = []
    for rank, (name, address) in enumerate(addresses.items()):
        others = "".join(f"{at} {other}\n" for other, at in addresses.items() if other != name)
        (tmp_path / name).write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{others}")
        words = ["sh", "-c", HOST, "sh", name, address, str(tmp_path / name), sys.executable, "-c", TRAINERS[trainer]]
        environment = os.environ | joined | {"RANK": str(rank), "JAX_PROCESS_ID": str(rank)}
        argv = ["unshare", "-n", "-m", "-u", "-p", "-f", "--kill-child", *words]
        hosts.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))  # fmt: skip
    _connect(*(host.pid for host in hosts))
    outputs = [host.communicate(timeout=300)[0] for host in hosts]
    assert [output.splitlines()[-1] for output in outputs] == ["[0, 1]"] * 2, outputs


def _connect(*launchers: int) -> None:
    """Two hosts by a cable, each the child of one of these processes, once they are there."""
    children = [Path(f"/proc/{pid}/task/{pid}/children") for pid in launchers]
    end = time.monotonic() + 60
    while not all(path.read_text().split() for path in children):
        assert time.monotonic() < end
        time.sleep(0.05)
    ends = [f"pw{os.getpid() % 10**7}x{number}" for number in range(2)]
    subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True)
    for path, name in zip(children, ends, strict=True):
        inside = path.read_text().split()[0]
        subprocess.run(["ip", "link", "set", name, "netns", inside, "name", "eth0"], check=True)


SEVERAL = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (SEVERAL, {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "=eth7"}),
        ({"WORLD_SIZE": "2"}, {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "=eth7"}),
        ({"JAX_NUM_PROCESSES": "2"}, {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "=eth7"}),
        (SEVERAL | {"GLOO_SOCKET_IFNAME": "ib0,ib1"}, {"GLOO_SOCKET_IFNAME": "ib0,ib1", "NCCL_SOCKET_IFNAME": "=eth7"}),
        (SEVERAL | {"NCCL_SOCKET_IFNAME": "^lo"}, {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "^lo"}),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_what_a_user_names_stays_and_one_host_needs_none(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setattr(interface, "of_route", lambda first: "eth7" if first == "h1" else "")
    changed = dict(environment)
    name = interface.choose(changed, "h1")
    assert {key: value for key, value in changed.items() if "IFNAME" in key} == expected
    assert name == expected.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
