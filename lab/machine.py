"""A host of the lab as its holder sees it: started in namespaces of its own, cut off from the network, killed."""

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
TICK_S = 0.05
HOST_START_S = 30.0
ISOLATED = ("unshare", "-n", "-m", "-u", "-i", "-p", "-f", "--mount-proc", "--kill-child")


class Machine:
    """One host; it ends with the process that holds this object. `order` is what `lab.host` reads."""

    def __init__(self, root: Path, order_file: Path, order: dict[str, Any]) -> None:
        lab = read(root / "lab.json")
        facts = {"root": str(root), "gateway": f"10.214.{lab['number']}.1", "hidden": lab["hidden"]}
        write(order_file, facts | {"sshd": shutil.which("sshd")} | order)
        self.process = subprocess.Popen(
            [*ISOLATED, sys.executable, "-m", "lab.host", str(order_file)],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )
        wait(lambda: os.readlink(f"/proc/{self.process.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10)
        self.link = f"pwl{secrets.token_hex(5)}"  # that of a host of a killed lab goes when the kernel gets to it
        ip(f"link add {self.link} type veth peer name eth0 netns {self.process.pid}")
        ip(f"link set {self.link} master {bridge(lab['number'])} up")
        self.connected = True

    def ended(self) -> bool:
        return self.process.poll() is not None

    def connect(self, on: bool) -> None:
        """Plug the network cable in, or pull it."""
        if on != self.connected and not self.ended():
            subprocess.run(["ip", "link", "set", self.link, "up" if on else "down"], check=False)
            self.connected = on


def kill(machines: Collection[Machine]) -> None:
    """Switch hosts off, all at once."""
    for host in machines:
        host.process.kill()
    for host in machines:
        host.process.wait()


def owner_is_gone(root: Path) -> bool:
    """Whether the test that owns the lab has ended."""
    with (root / "owner.lock").open() as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def bridge(number: int) -> str:
    return f"pwlab{number}"


def accepts_ssh(address: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, 22), timeout=1) as connection:
        return connection.recv(4) == b"SSH-"
    return False


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def write(path: Path, value: dict[str, Any]) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value))
    part.replace(path)


def wait(true: Any, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(TICK_S)


def end_with_parent() -> None:
    """A process that has called this, or has it as its `preexec_fn`, is killed when its parent ends. It hears the signals of a terminal though
    nohup or the & of a script has them ignored in the processes above it."""
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Python's, which becomes the default of what is executed
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
