"""On a host: starts its processes of one attempt once every host has come, watches them, and ends them all when one
fails, a host is lost or somebody asks for it. The first host hears from the others over a connection each, and tells them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import time

from podwright.rundir import Record
from podwright.targets.hosts import host_attempt, oom
from podwright.targets.hosts.guest import Guest
from podwright.targets.hosts.host_attempt import HostAttempt

TICK_S = 0.1
BEAT_S = 1.0
SILENCE_S = 15.0  # after which a host that says nothing is lost
JOIN_S = 180.0  # for all hosts to come together: their setup may take a while
GONE_S = 30.0  # that a shared folder may be away for; what is not on the disk of this host was deleted
KILL_S = 5.0  # from asking the processes of a failed attempt to leave until they are killed
_MOST_BYTES = 1 << 20
GOOD = (0, 3, -signal.SIGUSR1, -signal.SIGTERM)  # done, or saved and left, or left before there was anything to save


class Link:
    """A connection to another host: one JSON object a line."""

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self._socket.setblocking(False)
        self._rest = b""
        self.heard = time.monotonic()
        self.closed = False

    def say(self, message: Record) -> None:
        with contextlib.suppress(OSError):  # the next look at it says that it is closed
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> list[Record]:
        try:
            while True:
                data = self._socket.recv(1 << 16)
                if not data:
                    self.closed = True
                    break
                self.heard = time.monotonic()
                self._rest += data
                if len(self._rest) > _MOST_BYTES:  # none of us says so much
                    self.closed = True
                    break
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        *lines, self._rest = self._rest.split(b"\n")
        messages = []
        for line in lines:
            with contextlib.suppress(ValueError):
                messages.append(json.loads(line))
        return [message for message in messages if isinstance(message, dict)]

    @property
    def lost(self) -> bool:
        return self.closed or time.monotonic() - self.heard > SILENCE_S

    def close(self) -> None:
        self._socket.close()


class Keeper:
    def __init__(self, place: HostAttempt, job: Record, token: str):
        self.place, self.number, self.job, self.token = place, place.host, job, token
        self.script = place.attempt / "process.sh"
        self.name = job["hosts"][place.host]
        self.created = time.monotonic()
        self.phase = "joining"
        self.links: dict[int, Link] = {}
        self.strangers: list[Link] = []
        self.done: set[int] = set()
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.codes: dict[str, int] = {}
        self.faults: list[Record] = []
        self.why = ""
        self.last_try = 0.0
        self.stopping = False
        self.ending_since: float | None = None
        self.killed = False
        self.last_beat = 0.0
        self.last_there = time.monotonic()
        self.server: socket.socket | None = None
        self.oom = oom.of_this_process()
        self.guest = Guest(job.get("notices", False), job.get("sign_of_life", ""))
        self.preempted = False

    def keep(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        self.write()
        if self.number == 0:
            try:
                self.server = socket.create_server(("", self.job["control"]), backlog=64, reuse_port=False)
                self.server.setblocking(False)
            except OSError as e:
                self.fail(
                    {
                        "kind": "port",
                        "host": self.name,
                        "why": f"port {self.job['control']}: {os.strerror(e.errno or 0)}",
                    }
                )
        while not self.over():
            self.join()
            self.look()  # before it is heard that others have failed, which may follow from what is seen here
            self.listen()
            self.obey()
            self.press()
            self.watch_folder()
            self.beat()
            time.sleep(TICK_S)
        self.leave()

    def over(self) -> bool:
        if len(self.codes) < len(self.children) or (self.phase == "joining" and not self.faults and not self.stopping):
            return False
        if self.number:
            self.announce_done()
            return self.phase == "over" or not self.links or self.links[0].lost
        return all(n in self.done or link.lost for n, link in self.links.items())

    def leave(self) -> None:
        if self.number and self.phase != "over" and not self.faults and not self.stopping:
            self.faults.append({"kind": "lost", "host": self.job["hosts"][0]})
        self.phase = "ended"
        host_attempt.sweep([child.pid for child in self.children.values()])
        self.write()
        for link in self.links.values():
            link.say({"over": True, "faults": self.faults})
        for link in (*self.links.values(), *self.strangers):
            link.close()
        if self.server:
            self.server.close()
        deleted = any(fault["kind"] == "deleted" for fault in self.faults)
        if self.job["shared"] and not deleted and self.place.record().get("phase") != "ended":
            self.write(GONE_S)  # a shared folder may be away for a moment, and this record is the last

    def write(self, patience_s: float = 0.0) -> None:
        ranks = {str(n): [child.pid, host_attempt.started(child.pid)] for n, child in self.children.items()}
        known = self.place.record().get("ranks", {})
        me = {"pid": os.getpid(), "started": host_attempt.started(os.getpid()), "boot": host_attempt.boot_id()}
        status = {
            "phase": self.phase,
            "codes": self.codes,
            "fault": worst(self.faults),
            "stopped": self.stopping,
            "preempted": self.preempted,
            "time": time.time(),
        }
        ranks = {n: known.get(n, rank) for n, rank in ranks.items()}
        self.place.write_record({**me, **status, "ranks": ranks, "missing": self.missing()}, patience_s)

    def missing(self) -> list[str]:
        if self.number or self.phase != "joining":
            return []
        return [name for n, name in enumerate(self.job["hosts"]) if n and n not in self.links]

    def join(self) -> None:
        if self.phase != "joining" or self.faults or self.stopping:
            return
        self.admit() if self.number == 0 else self.connect()
        if self.number == 0 and not self.missing():
            for link in self.links.values():
                link.say({"go": True})
            self.start()
        elif time.monotonic() - self.created > JOIN_S:
            if self.number == 0:
                self.fail(
                    {"kind": "absent", "host": self.name, "port": self.job["control"], "why": ", ".join(self.missing())}
                )
            elif not self.links:
                where = f"{self.job['address']}:{self.job['control']}"
                self.fail(
                    {"kind": "apart", "host": self.name, "port": self.job["control"], "why": f"{where} ({self.why})"}
                )

    def admit(self) -> None:
        assert self.server
        with contextlib.suppress(BlockingIOError):
            while True:
                self.strangers.append(Link(self.server.accept()[0]))
        for link in list(self.strangers):
            for message in link.hear():
                token = str(message.get("token", "")).encode(
                    errors="surrogatepass"
                )  # what strangers say may be anything
                if secrets.compare_digest(token, self.token.encode()) and message.get("host") in range(
                    1, len(self.job["hosts"])
                ):
                    self.links[message["host"]] = link
                    self.write()
            if link.closed or link in self.links.values():
                self.strangers.remove(link)

    def connect(self) -> None:
        if self.links or time.monotonic() - self.last_try < 0.5:
            return
        self.last_try = time.monotonic()
        try:
            self.links[0] = Link(socket.create_connection((self.job["address"], self.job["control"]), timeout=5))
            self.links[0].say({"token": self.token, "host": self.number})
        except OSError as e:
            self.why = str(e.strerror or e)

    def start(self) -> None:
        self.phase = "running"
        count = self.job["per_node"]
        for local in range(count):
            number = self.number * count + local
            try:
                out = self.place.log(number).open("ab")
            except FileNotFoundError:  # between the sign to start and the start
                self.fail_without_folder()
                return
            with out:
                self.children[number] = subprocess.Popen(
                    ["bash", str(self.script), str(number), str(local)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        self.write()

    def listen(self) -> None:
        for n, link in self.links.items():
            for message in link.hear():
                self.faults += [fault for fault in message.get("faults", []) if fault not in self.faults]
                if message.get("go") and self.phase == "joining" and not self.faults and not self.stopping:
                    self.start()
                self.preempted |= message.get("preempted", False)
                if message.get("stop"):
                    self.stop()
                    if message.get("preempted"):
                        self.signal(signal.SIGINT)
                if message.get("done"):
                    self.done.add(n)
                if message.get("over"):
                    self.phase = "over"
            if link.lost and n not in self.done and self.phase != "over":
                self.done.add(n)
                self.fail({"kind": "lost", "host": self.job["hosts"][n]})
        if self.faults and self.ending_since is None:
            self.fail()

    def look(self) -> None:
        for number, child in self.children.items():
            code = child.poll()
            if code is None or str(number) in self.codes:
                continue
            code = self.codes[str(number)] = 128 - code if code > 128 else code
            if code in GOOD or self.killed or self.ending_since is not None:
                self.write()
            elif not self.job["shared"] and not self.script.exists():  # its folder is being deleted
                self.fail_without_folder()
            else:
                killed = self.oom.killed() if code == -signal.SIGKILL else ""
                self.fail({"kind": "process", "host": self.name, "process": number, "code": code, "oom": killed})

    def obey(self) -> None:
        if self.guest.preempted and not self.preempted:
            self.preempted = True
            self.stop()
            self.signal(signal.SIGINT)  # a second one: there is no time to finish a step
        if (self.place.attempt / "stop").exists():
            self.stop()
        if (self.place.attempt / "kill").exists():
            self.kill()

    def stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        self.signal(signal.SIGTERM)
        for link in self.links.values():
            link.say({"stop": True, "preempted": self.preempted})

    def fail(self, fault: Record | None = None) -> None:
        """The attempt is over: everybody is told, and everything ended."""
        if fault:
            self.faults.append(fault)
        if self.ending_since is None:
            self.ending_since = time.monotonic()
            self.signal(signal.SIGTERM)
        for link in self.links.values():
            link.say({"faults": self.faults})
        self.write()

    def watch_folder(self) -> None:
        """End the attempt at once when its folder was deleted: no verb reaches it any more, and what it writes goes nowhere."""
        try:
            self.place.attempt.stat()
        except FileNotFoundError:
            gone_s = time.monotonic() - self.last_there
            if self.ending_since is None and gone_s > (GONE_S if self.job["shared"] else 2 * BEAT_S):
                self.fail_without_folder()
        except OSError:  # a file system that does not answer has deleted nothing
            self.last_there = time.monotonic()
        else:
            self.last_there = time.monotonic()

    def fail_without_folder(self) -> None:
        self.kill()
        self.fail({"kind": "deleted", "host": self.name, "why": str(self.place.attempt)})

    def press(self) -> None:
        if self.ending_since is not None and time.monotonic() - self.ending_since > KILL_S:
            self.kill()

    def kill(self) -> None:
        if not self.killed:
            self.killed = True
            host_attempt.sweep([child.pid for child in self.children.values()])

    def signal(self, number: int) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(number)

    def beat(self) -> None:
        if time.monotonic() - self.last_beat > BEAT_S:
            self.last_beat = time.monotonic()
            self.guest.live()
            for link in self.links.values():
                link.say({})

    def announce_done(self) -> None:
        for link in self.links.values():
            if 0 not in self.done:
                link.say({"done": True, "faults": self.faults})
        self.done.add(0)


def worst(faults: list[Record]) -> Record | None:
    """Of all that was seen, what the rest follows from: a lost host, else a process that was killed, else who failed first."""
    kinds = sorted(faults, key=lambda f: (f["kind"] == "process", f.get("code", 0) >= 0))
    return kinds[0] if kinds else None


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
