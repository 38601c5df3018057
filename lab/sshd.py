"""Two hosts with a real sshd each on this machine: each has a name, a disk and process numbers of its own, and ends with the test.

The folder that a test puts its runs into is hidden from them, so that nothing gets there but over ssh.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from lab.machine import end_with_parent
from lab.slurm import _ports, lacking

NEEDED = ("sshd", "ssh", "ssh-keygen", "unshare")
HOSTS = {"h1": "127.0.0.11", "h2": "127.0.0.12"}
CONF = """Port {port}
ListenAddress {address}
HostKey {root}/key-{host}
AuthorizedKeysFile {root}/authorized_keys
PidFile none
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
LogLevel VERBOSE
"""


def missing() -> str:
    """Why there can be no hosts here; "" when there can."""
    return lacking(NEEDED, "openssh-server openssh-client")


class Hosts:
    """`root`/disk is another folder on each of them; `hidden` is empty there."""

    addresses: ClassVar[dict[str, str]] = HOSTS
    namespaces: tuple[str, ...] = ("-u", "-m", "-p")

    def __init__(self, hidden: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ssh", dir="/tmp"))
        self.hidden = hidden
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = dict(zip(HOSTS, _ports(len(HOSTS)), strict=True))
        self.names = [f"{address}:{self.ports[host]}" for host, address in self.addresses.items()]

    def __enter__(self) -> "Hosts":
        root = self.root
        Path("/run/sshd").mkdir(exist_ok=True)
        (root / "disk").mkdir()
        for key in ("id", "other", *(f"key-{host}" for host in HOSTS)):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / key)], check=True)
        shutil.copy(root / "id.pub", root / "authorized_keys")
        self.config("config", "id")
        known = [
            f"[{address}]:{self.ports[host]} {(root / f'key-{host}.pub').read_text()}"
            for host, address in self.addresses.items()
        ]
        (root / "known_hosts").write_text("".join(known))
        for host in HOSTS:
            self.start(host)
        return self

    def __exit__(self, *_: object) -> None:
        for host in list(self.daemons):
            self.lose(host)
        shutil.rmtree(self.root, ignore_errors=True)

    def config(self, name: str, key: str, known: str = "known_hosts") -> Path:
        """What `ssh -F` takes: who we are, and whom we know."""
        path = self.root / name
        path.write_text(
            f"IdentityFile {self.root / key}\nIdentitiesOnly yes\nUserKnownHostsFile {self.root / known}\nGlobalKnownHostsFile none\n"
        )
        return path

    def start(self, host: str) -> None:
        root = self.root
        (root / f"disk-{host}").mkdir(exist_ok=True)
        conf = root / f"sshd-{host}.conf"
        conf.write_text(CONF.format(port=self.ports[host], address=self.addresses[host], root=root, host=host))
        (root / f"hosts-{host}").write_text(self.names_on(host))
        mounts = f"{self.network(host)} mount --bind {root}/hosts-{host} /etc/hosts; mount --bind {root}/disk-{host} {root}/disk; mount -t tmpfs tmpfs {self.hidden}"
        # The shell stays, as the first process of the host, to take in orphans.
        script = f"hostname {host}; {mounts}; {shutil.which('sshd')} -D -e -f {conf} & wait"
        with (root / f"{host}.log").open("ab") as log:
            self.daemons[host] = subprocess.Popen(
                ["unshare", *self.namespaces, "-f", "--mount-proc", "--kill-child", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self.connect(host)
        wait(lambda: b"Server listening" in (root / f"{host}.log").read_bytes())

    def names_on(self, host: str) -> str:
        """Its /etc/hosts."""
        return Path("/etc/hosts").read_text() + "".join(
            f"{address} {name}\n" for name, address in self.addresses.items()
        )

    def network(self, host: str) -> str:
        """What it does first: shell."""
        return ""

    def connect(self, host: str) -> None:
        """With the network of this machine, which it shares."""

    def lose(self, host: str) -> None:
        """The machine is switched off: everything on it ends at once."""
        daemon = self.daemons.pop(host)
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()
        (self.root / f"{host}.log").write_bytes(b"")

    def pause(self, host: str) -> None:
        """No ssh gets through to the host, nor does an open connection; what runs on it goes on."""
        self._signal_sshd(host, signal.SIGSTOP)

    def unpause(self, host: str) -> None:
        self._signal_sshd(host, signal.SIGCONT)

    def _signal_sshd(self, host: str, number: int) -> None:
        init = self._init(host)
        namespace = os.readlink(f"/proc/{init}/ns/pid")
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/pid") == namespace and (path / "comm").read_text().startswith("sshd"):
                    os.kill(int(path.name), number)
            except OSError:
                continue

    def _init(self, host: str) -> str:
        """The process that is number 1 there, once it runs."""
        children = Path(f"/proc/{self.daemons[host].pid}/task/{self.daemons[host].pid}/children")
        wait(lambda: bool(children.read_text().split()))
        return children.read_text().split()[0]

    def processes(self, what: str) -> list[int]:
        """Of both hosts, those that name `what` in their command."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if what.encode() in path.read_bytes() and b"disk" in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


class SeparateHosts(Hosts):
    """With a network of their own each, joined by a bridge, and /etc/hosts as Debian and Ubuntu write it: the own name of a host stands for
    the loopback there, and for its address on the other one. There is no default route."""

    addresses: ClassVar[dict[str, str]] = {"h1": "10.215.77.1", "h2": "10.215.77.2"}
    namespaces = (*Hosts.namespaces, "-n")

    def __init__(self, hidden: Path) -> None:
        super().__init__(hidden)
        self.bridge = f"pw{os.getpid() % 10**7}"

    def __enter__(self) -> "SeparateHosts":
        _ip(f"link add {self.bridge} type bridge")
        _ip(f"addr add 10.215.77.254/24 dev {self.bridge}")
        _ip(f"link set {self.bridge} up")
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        _ip(f"link delete {self.bridge}")

    def config(self, name: str, key: str, known: str = "known_hosts") -> Path:
        path = super().config(name, key, known)
        for host, address in self.addresses.items():
            names = f"Host {host}\n HostName {address}\n Port {self.ports[host]}\n"
            path.write_text(f"{path.read_text()}{names}")
        return path

    def names_on(self, host: str) -> str:
        others = [f"{address} {name}\n" for name, address in self.addresses.items() if name != host]
        return f"127.0.0.1 localhost\n127.0.1.1 {host}\n{''.join(others)}"

    def network(self, host: str) -> str:
        there = "until ip link show eth0; do sleep 0.05; done > /dev/null 2>&1"
        return f"ip link set lo up; {there}; ip addr add {self.addresses[host]}/24 dev eth0; ip link set eth0 up;"

    def connect(self, host: str) -> None:
        end = f"{self.bridge}{host}"[-15:]
        _ip(f"link add {end} type veth peer name eth0 netns {self._init(host)}")
        _ip(f"link set {end} master {self.bridge} up")


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def wait(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def stand_in(path: Path, standin: Path) -> Path:
    """A Python for the hosts: what would train is the stand-in in the first process and waits in the others, the rest is Python's."""
    path.write_text(
        f"""#!/bin/sh
case "$*" in
  "-m podwright.train facts"* | "-m podwright.train devices"*) exec {sys.executable} "$@" ;;
  "-m podwright.train"*) ;;
  *) exec {sys.executable} "$@" ;;
esac
shift 2
[ "$RANK" = 0 ] && exec {sys.executable} {standin} "$@"
env | grep -E '^(RANK|WORLD_SIZE|LOCAL_|MASTER|JAX_|TELL)' | sort
trap 'exit 3' TERM
[ -z "$STANDIN_OTHER" ] || exec sleep "$STANDIN_OTHER"
"""
    )
    path.chmod(0o755)
    return path
