"""The lab's cloud: allocations of hosts, created and deleted by processes of their own, with their state in files that anybody may read.

`python -m lab.cloud ROOT NAME` is the process that holds one allocation: it starts the hosts, watches them, and ends with them.
When the test that owns the lab ends, however it ends, so does everything in it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lab import machine
from lab.machine import HOST_START_S, REPOSITORY, TICK_S, bridge, ip, read, wait, write
from lab.slurm import lacking

NEEDED = ("sshd", "ssh", "ssh-keygen", "unshare", "ip", "openssl", "curl")


def missing() -> str:
    """Why there can be no lab here; "" when there can."""
    if absent := lacking(NEEDED, "openssh-server openssh-client iproute2 openssl curl"):
        return absent
    done = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, check=False
    )
    return f"no network namespaces: {done.stderr.decode().strip()}" if done.returncode else ""


class Lab:
    """A folder, a bridge and an address range; `hidden` folders are empty on its hosts."""

    def __init__(self, *hidden: Path) -> None:
        self.hidden = hidden

    def __enter__(self) -> "Lab":
        self.number, self.root, self._lock = _claim()
        root = self.root
        for name in ("allocations", "disks", "home"):
            (root / name).mkdir()
        Path("/run/sshd").mkdir(exist_ok=True)
        for key in ("id", "host-key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / key)], check=True)
        host_key = (root / "host-key.pub").read_text()
        (root / "known_hosts").write_text(f"10.214.{self.number}.* {host_key}")
        ssh_config(root, secrets.token_hex(4)).write_text(
            f"User root\nIdentityFile {root}/id\nIdentitiesOnly yes\nUserKnownHostsFile {root}/known_hosts\n"
            "GlobalKnownHostsFile none\n"
        )
        write(root / "lab.json", {"number": self.number, "hidden": [str(path) for path in self.hidden]})
        self.configure()
        ip(f"link add {bridge(self.number)} type bridge")
        ip(f"addr add {self.gateway}/24 dev {bridge(self.number)}")
        ip(f"link set {bridge(self.number)} up")
        return self

    def __exit__(self, *_: object) -> None:
        for folder in (self.root / "allocations").iterdir():
            delete(self.root, folder.name)
        wait(lambda: not any((self.root / "allocations").iterdir()), 20)
        ip(f"link del {bridge(self.number)}")
        _clear(self.root)
        with contextlib.suppress(OSError):  # the next lab may have taken the number by now
            (self.root / "owner.lock").unlink()
            self.root.rmdir()
        os.close(self._lock)

    @property
    def gateway(self) -> str:
        """The address of this machine as the hosts see it."""
        return f"10.214.{self.number}.1"

    def configure(self, **settings: Any) -> None:
        """num_hosts; no_capacity: zones that refuse; create_s, delete_s: how long these take."""
        defaults = {"num_hosts": 4, "no_capacity": [], "create_s": 0.0, "delete_s": 0.0}
        write(self.root / "cloud.json", defaults | settings)

    def allocations(self) -> list[str]:
        return sorted(path.name for path in (self.root / "allocations").iterdir())

    def preempt(self, name: str, notice_s: float = 0.0) -> None:
        """Take an allocation away: its metadata say so, and `notice_s` later all its hosts are off."""
        write(self.root / "allocations" / name / "preempt.json", {"notice_s": notice_s})

    def disk(self, host: str) -> Path:
        """The home of a host, seen from here."""
        return self.root / "disks" / host


def ssh_config(root: Path, token: str = "*") -> Path:
    """What `ssh -F` takes; another name in each lab, so that no shared connection of an earlier one is used."""
    name = f"ssh-{token}.conf"
    return next(root.glob(name)) if token == "*" else root / name


def create(root: Path, name: str, labels: dict[str, str], zone: str) -> str:
    """Start creating; "" or why not. What exists already is left as it is."""
    if zone in read(root / "cloud.json")["no_capacity"]:
        return f'There is no more capacity in the zone "{zone}"'
    folder = root / "allocations" / name
    try:
        folder.mkdir()
    except FileExistsError:
        return ""
    write(
        folder / "state.json",
        {
            "state": "creating",
            "zone": zone,
            "labels": labels,
            "created": time.time(),
            "since": time.time(),
            "hosts": [],
        },
    )
    with (folder / "holder.txt").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "lab.cloud", str(root), name],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return ""


def describe(root: Path, name: str) -> dict[str, Any] | None:
    """{"state": creating | ready | preempted | broken | deleting, "since", "zone", "labels", "created", "hosts": [{"name", "address"}]};
    None: gone."""
    folder = root / "allocations" / name
    try:
        state = read(folder / "state.json")
    except FileNotFoundError:
        return None
    return state | ({"state": "deleting"} if (folder / "delete").exists() else {})


def delete(root: Path, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (root / "allocations" / name / "delete").touch()


class Holder:
    """One allocation."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name, self.folder = root, name, root / "allocations" / name
        self.lab, self.cloud = read(root / "lab.json"), read(root / "cloud.json")
        self.state = read(self.folder / "state.json")
        self.hosts: list[machine.Machine] = []
        self.metadata: list[Path] = []

    def run(self) -> None:
        try:
            self._pause(self.cloud["create_s"])
            if not self._unwanted():
                self._start()
            while not self._unwanted():
                self._look()
                time.sleep(TICK_S)
            self._pause(self.cloud["delete_s"])
        finally:
            self._kill()
            shutil.rmtree(self.folder)

    def _pause(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and not self._owner_is_gone():
            time.sleep(TICK_S)

    def _unwanted(self) -> bool:
        return (self.folder / "delete").exists() or self._owner_is_gone()

    def _owner_is_gone(self) -> bool:
        return machine.owner_is_gone(self.root)

    def _start(self) -> None:
        count = self.cloud["num_hosts"]
        addresses = [f"10.214.{self.lab['number']}.{number}" for number in _numbers(self.root, count)]
        names = [f"{self.name}-w-{worker}" for worker in range(count)]
        for worker, (name, address) in enumerate(zip(names, addresses, strict=True)):
            metadata = self.folder / f"metadata-{worker}.json"
            write(
                metadata,
                {
                    "instance/attributes/agent-worker-number": str(worker),
                    "instance/attributes/worker-network-endpoints": ",".join(f"unknown:unknown:{a}" for a in addresses),
                    "instance/preempted": "FALSE",
                },
            )
            self.metadata.append(metadata)
            order = {"name": name, "address": address, "metadata": str(metadata)}
            self.hosts.append(machine.Machine(self.root, self.folder / f"{name}.json", order))
        limit = time.monotonic() + HOST_START_S
        while not all(map(machine.accepts_ssh, addresses)):
            if self._unwanted() or time.monotonic() > limit:
                return self._become("broken") if not self._unwanted() else None
            time.sleep(TICK_S)
        self.state["hosts"] = [{"name": n, "address": a} for n, a in zip(names, addresses, strict=True)]
        self._become("ready")

    def _look(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            notice_s = read(self.folder / "preempt.json")["notice_s"]
            (self.folder / "preempt.json").unlink()
            for path in self.metadata:
                write(path, read(path) | {"instance/preempted": "TRUE"})
            self._pause(notice_s)
            self._kill()
            self._become("preempted")
        if self.state["state"] == "ready" and any(host.ended() for host in self.hosts):
            self._become("broken")

    def _kill(self) -> None:
        machine.kill(self.hosts)

    def _become(self, state: str) -> None:
        self.state |= {"state": state, "since": time.time()}
        write(self.folder / "state.json", self.state)


def _claim() -> tuple[int, Path, int]:
    """A number that no living lab has, its folder, and the lock that keeps it; remains of a lab that was killed are removed."""
    for number in range(1, 255):
        root = Path(f"/tmp/podwright-lab-{number}")
        root.mkdir(exist_ok=True)
        lock = os.open(root / "owner.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink == 0:
                raise BlockingIOError
        except BlockingIOError:
            os.close(lock)
            continue
        _clear(root)
        for remains in (f"link del {bridge(number)}", f"route del unreachable 10.213.{number}.0/24"):
            subprocess.run(["ip", *remains.split()], capture_output=True, check=False)
        return number, root, lock
    raise AssertionError("254 labs are in use")


def _clear(root: Path) -> None:
    """Of all but the lock, which goes last: whoever sees no lock takes the number."""
    for path in root.iterdir():
        if path.name != "owner.lock":
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _numbers(root: Path, count: int) -> list[int]:
    """Host numbers that this lab has not used yet, so that no old connection leads to a new host."""
    with (root / "numbers").open("a+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        first = int(f.read() or 2)
        assert first + count < 255, "the lab's address range is used up"
        f.truncate(0)
        f.write(str(first + count))
    return list(range(first, first + count))


if __name__ == "__main__":
    Holder(Path(sys.argv[1]), sys.argv[2]).run()
