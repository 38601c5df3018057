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

from lab.slurm import _end_with_parent, _ports, lacking

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

    def __init__(self, hidden: Path) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ssh", dir="/tmp"))
        self.hidden = hidden
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = dict(zip(HOSTS, _ports(len(HOSTS)), strict=True))
        self.names = [f"{address}:{self.ports[host]}" for host, address in HOSTS.items()]

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
            for host, address in HOSTS.items()
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
        conf.write_text(CONF.format(port=self.ports[host], address=HOSTS[host], root=root, host=host))
        names = "".join(f"{address} {name}\n" for name, address in HOSTS.items())
        (root / "hosts").write_text(Path("/etc/hosts").read_text() + names)
        mounts = f"mount --bind {root}/hosts /etc/hosts; mount --bind {root}/disk-{host} {root}/disk; mount -t tmpfs tmpfs {self.hidden}"
        # The shell stays, as the first process of the host, to take in orphans.
        script = f"hostname {host}; {mounts}; {shutil.which('sshd')} -D -e -f {conf} & wait"
        with (root / f"{host}.log").open("ab") as log:
            self.daemons[host] = subprocess.Popen(
                ["unshare", "-u", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        wait(lambda: b"Server listening" in (root / f"{host}.log").read_bytes())

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
        (init,) = Path(f"/proc/{self.daemons[host].pid}/task/{self.daemons[host].pid}/children").read_text().split()
        namespace = os.readlink(f"/proc/{init}/ns/pid")
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns/pid") == namespace and (path / "comm").read_text().startswith("sshd"):
                    os.kill(int(path.name), number)
            except OSError:
                continue

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
