"""Looks for a text that must be seen nowhere while something runs: in command lines, files, objects of a bucket and of a simulated cluster."""

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.bucket import EmulatedBucket
from lab.kube.control import Kube

LARGEST = 4 << 20
COMMANDS_S, REST_S = 0.02, 0.2
YOUNG_S = 1.0
"""for which the command line of a process is read each time: it may still become another program"""
RESOURCES = ("configmaps", "jobsets", "jobs", "pods", "workloads", "events", "nodes", "localqueues", "clusterqueues")


class Watch:
    """Looks again and again until the block ends, and once more then. The text counts in base64 too."""

    def __init__(self, canary: str, *folders: Path, bucket: EmulatedBucket | None = None, kube: Kube | None = None):
        whole = canary.encode()
        self._marks = whole, base64.b64encode(whole[: len(whole) // 3 * 3])
        self._folders, self._bucket, self._kube = folders, bucket, kube
        self._over = threading.Event()
        loops = ((self._look_at_commands, COMMANDS_S), (self._look_at_the_rest, REST_S))
        self._threads = [threading.Thread(target=self._watch, args=loop, daemon=True) for loop in loops]
        self._ages: dict[str, float] = {}
        self.hits: set[str] = set()
        self.environments: set[str] = set()
        """command lines of processes that have the text in their environment, as they should"""
        self.commands: set[str] = set()
        """names of the programs whose command lines were looked at"""
        self.files: set[str] = set()
        """names of those that were looked into"""
        self.objects: set[str] = set()
        """names of those of the bucket that were looked into"""
        self.secrets: set[str] = set()
        """names of the Secrets of the cluster that have the text, as they should"""
        self.kinds: set[str] = set()
        """of the other objects of the cluster that were looked into"""

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._look_at_the_rest()

    def _watch(self, look: Callable[[], None], pause_s: float) -> None:
        while not self._over.wait(pause_s):
            look()

    def _has(self, content: bytes) -> bool:
        return any(mark in content for mark in self._marks)

    def _look_at_commands(self) -> None:
        ages: dict[str, float] = {}
        for number in filter(str.isdigit, os.listdir("/proc")):
            ages[number] = self._ages.get(number, -COMMANDS_S) + COMMANDS_S
            if ages[number] > YOUNG_S:
                continue
            command = _read(Path("/proc", number, "cmdline"))
            self.commands.update(Path(word).name for word in command.decode(errors="replace").split("\0")[:3])
            if self._has(command):
                self.hits.add(f"command line {command!r}")
        self._ages = ages

    def _look_at_the_rest(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            command = _read(process / "cmdline")
            if self._has(command):
                self.hits.add(f"command line {command!r}")
            if self._has(_read(process / "environ")):
                self.environments.add(command.decode(errors="replace"))
        for path in self._paths():
            self.files.add(path.name)
            if self._has(_read(path)):
                self.hits.add(str(path))
        for name in self._bucket.names() if self._bucket else ():
            self.objects.add(name)
            if self._has(name.encode() + (self._bucket.content(name) or b"" if self._bucket else b"")):
                self.hits.add(f"object {name}")
        if self._kube and self._kube.process.poll() is None:
            self._look_at_the_cluster(self._kube)

    def _look_at_the_cluster(self, kube: Kube) -> None:
        for resource in RESOURCES:
            for body in kube.objects(resource):
                self.kinds.add(body["kind"])
                if self._has(json.dumps(body).encode()):
                    self.hits.add(f"{resource}/{body['metadata']['name']}")
        for body in kube.objects("secrets"):
            data = body.pop("data", None)
            if self._has(json.dumps(body).encode()):
                self.hits.add(f"secrets/{body['metadata']['name']}, besides its data")
            if self._has(json.dumps(data).encode()):
                self.secrets.add(body["metadata"]["name"])

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for place, _, names in os.walk(folder):  # which does not mind that folders go meanwhile
                yield from (path for path in (Path(place) / name for name in names) if path.is_file())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(LARGEST)
    except OSError:
        return b""
