"""Over which network the processes of several hosts exchange arrays, on hosts of many makes: each in a network and with an /etc/hosts of its own."""

import json
import shutil
import subprocess
import sys
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
