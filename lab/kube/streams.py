"""Answers that last: watches, and the logs of containers."""

import asyncio
import contextlib
import json
import os
import random
import re
import time
from datetime import datetime
from pathlib import Path

from aiohttp import web

from lab.kube import selectors
from lab.kube.call import Call
from lab.kube.errors import ApiError, bad_request, not_found
from lab.kube.faults import Rule
from lab.kube.rest import text_of
from lab.kube.store import Change, Object, Store

POLL_S = 0.1
BOOKMARK_S = 10.0
CHUNK = 1 << 18
# The prefix of a line in a container's log file, in the format of the container runtimes: time, stream, F for a full line.
PREFIX = re.compile(rb"^(\S+) (?:stdout|stderr) [FP] ", re.MULTILINE)


class Wakeup:
    """Wakes the watches of the event loop when the store changes, whichever thread changed it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self.loop, self.condition, self.scheduled = loop, asyncio.Event(), False
        store.listeners.append(self.changed)

    def changed(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            self.loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        self.scheduled = False
        self.condition.set()
        self.condition = asyncio.Event()

    async def wait(self, condition: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(condition.wait(), seconds)


def only(rules: list[Rule], kind: str) -> Rule | None:
    return next((rule for rule in rules if rule.kind == kind), None)


class Limit:
    """How long a stream lasts: what a `cut` fault leaves of it."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rule = only(rules, "cut")
        self.lines = self.rule.lines if self.rule else None
        self.bytes = self.rule.bytes if self.rule else None
        self.end = time.monotonic() + self.rule.after_s if self.rule and self.rule.after_s is not None else None

    def over(self) -> bool:
        return 0 in (self.lines, self.bytes) or (self.end is not None and time.monotonic() >= self.end)

    def take(self, text: bytes) -> bytes:
        """As much of these whole lines as may still be sent."""
        if self.bytes is not None:
            text = text[: self.bytes]
            self.bytes -= len(text)
        if self.lines is None:
            return text
        parts = text.split(b"\n")[:-1][: self.lines]
        self.lines -= len(parts)
        return b"".join(part + b"\n" for part in parts)

    def close(self, request: web.Request) -> None:
        """Break the connection, unless the cut is to look like the end."""
        if self.over() and self.rule and not self.rule.clean and request.transport:
            request.transport.abort()
            raise ConnectionResetError


async def opened(request: web.Request, content_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    return response


# watches


async def watch(
    request: web.Request, call: Call, store: Store, wakeup: Wakeup, rules: list[Rule]
) -> web.StreamResponse:
    match = selectors.compiled(
        call.row.plural, call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
    )
    gone = only(rules, "gone")
    limit = Limit(rules)
    seconds = float(call.query.get("timeoutSeconds") or store.knobs.get("watch_s", random.uniform(1800, 3600)))
    end = time.monotonic() + seconds
    bookmarks = call.query.get("allowWatchBookmarks") == "true"
    response = await opened(request, "application/json")
    version = int(call.query.get("resourceVersion") or 0)
    if gone:
        await response.write(
            event("ERROR", ApiError(410, "Expired", f"too old resource version: {version} (0)").status())
        )
        return response
    if not version:
        with store.lock:
            now, version = store.select(call.row.plural, call.namespace), store.version
        first = b"".join(line("ADDED", text_of(call, entry)) for entry in now if match is None or match(entry.body))
        await response.write(limit.take(first))
    marked = time.monotonic()
    while time.monotonic() < end and not limit.over():
        condition = wakeup.condition
        try:
            changes, version = store.events_since(call.row.plural, version, call.namespace)
        except ApiError as error:
            await response.write(event("ERROR", error.status()))
            return response
        text = b"".join(seen(call, change, match) for change in changes)
        if bookmarks and time.monotonic() > marked + BOOKMARK_S:
            marked = time.monotonic()
            text += event("BOOKMARK", bookmark(call, version))
        if text:
            await response.write(limit.take(text))
        else:
            await wakeup.wait(
                condition, min(BOOKMARK_S, POLL_S if limit.rule else BOOKMARK_S, max(0, end - time.monotonic()))
            )
    limit.close(request)
    return response


def seen(call: Call, change: Change, match: selectors.Match | None) -> bytes:
    """The event as a watch with a selector sees it: what comes to match is added, what no longer does is deleted."""
    if match is None:
        return line(change.type, text_of(call, change.new))
    before = change.old is not None and match(change.old)
    after = match(change.new.body) and change.type != "DELETED"
    if not before and not after:
        return b""
    return line("MODIFIED" if before and after else "ADDED" if after else "DELETED", text_of(call, change.new))


def line(type: str, text: bytes) -> bytes:
    return b'{"type":"' + type.encode() + b'","object":' + text + b"}\n"


def event(type: str, body: Object) -> bytes:
    return line(type, json.dumps(body).encode())


def bookmark(call: Call, version: int) -> Object:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"kind": call.row.kind, "apiVersion": call.api_version, "metadata": metadata}


# logs


NODE_OFF = "lab/off"  # annotation of a node that does not run any more, though its object is still there


def log_file(folder: Path, pod: Object, container: str, restart: int = 0) -> Path:
    """Where a container's log is kept, as in /var/log/pods. What was there before a rotation has another name."""
    metadata = pod["metadata"]
    return (
        folder / "logs" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}" / container / f"{restart}.log"
    )


async def log(request: web.Request, call: Call, store: Store, folder: Path, rules: list[Rule]) -> web.StreamResponse:
    pod = store.get("pods", call.name, call.namespace)
    container = container_of(pod, call)
    node = pod["spec"].get("nodeName", "")
    if not node:
        return web.Response(text="")
    if store.list("nodes") and not store.find("nodes", node):
        raise not_found("nodes", node)
    if NODE_OFF in ((store.find("nodes", node) or {"metadata": {}})["metadata"].get("annotations") or {}):
        place = f"https://127.0.0.1:10250/containerLogs/{call.namespace}/{call.name}/{container}"
        raise ApiError(500, "InternalError", f'Get "{place}": dial tcp 127.0.0.1:10250: i/o timeout')  # [?]
    restart = instance(pod, container, call)
    follow, limit = call.query.get("follow") == "true", Limit(rules)
    file = LogFile(log_file(folder, pod, container, restart))
    file.skip_to(call, only(rules, "repeat"))
    stamped = call.query.get("timestamps") == "true"
    response = await opened(request, "text/plain")
    left = int(call.query.get("limitBytes") or 0) or None
    try:
        while not limit.over() and left != 0:
            ended = has_ended(store, pod, container, restart)  # before the read: what comes later is not missed
            text = limit.take(shown(file.read(), stamped))
            if left is not None:
                text = text[:left]
                left -= len(text)
            if text:
                await response.write(text)
            elif not follow or ended:
                return response
            else:
                await asyncio.sleep(POLL_S)
        limit.close(request)
        if limit.rule and limit.over():
            await response.write(limit.rule.text.encode())
    finally:
        file.close()
    return response


def container_of(pod: Object, call: Call) -> str:
    containers = [c["name"] for c in (*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ()))]
    regular = [c["name"] for c in pod["spec"].get("containers", ())]
    name = call.query.get("container", "")
    if not name and len(regular) > 1:
        choice = " ".join(regular)
        raise bad_request(f"a container name must be specified for pod {call.name}, choose one of: [{choice}]")
    if name and name not in containers:
        raise bad_request(f"container {name} is not valid for pod {call.name}")
    return name or regular[0]


def status_of(pod: Object, container: str) -> Object:
    status = pod.get("status", {})
    listed = (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
    return next((entry for entry in listed if entry["name"] == container), {})


def instance(pod: Object, container: str, call: Call) -> int:
    """Which start of the container is read; refused while there is none."""
    status = status_of(pod, container)
    restarts = status.get("restartCount", 0)
    if call.query.get("previous") == "true":
        if not restarts:
            raise bad_request(f'previous terminated container "{container}" in pod "{call.name}" not found')
        return restarts - 1
    waiting = status.get("state", {}).get("waiting")
    if not status or waiting:
        if restarts and waiting:
            return restarts - 1
        reason = (waiting or {}).get("reason", "ContainerCreating")
        verb = (
            "is waiting to start"
            if "BackOff" not in reason
            else "is waiting to start: trying and failing to pull image"
        )
        text = f'container "{container}" in pod "{call.name}" {verb}'
        raise bad_request(text if "BackOff" in reason else f"{text}: {reason}")
    return int(restarts)


def has_ended(store: Store, pod: Object, container: str, restart: int) -> bool:
    """Whether nothing will be added to the log any more."""
    now = store.find("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
    if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
        return True
    status = status_of(now, container)
    return "terminated" in status.get("state", {}) or status.get("restartCount", 0) > restart


class LogFile:
    """Reads whole lines of a log that grows and is rotated."""

    def __init__(self, path: Path) -> None:
        self.path, self.part, self.position = path, b"", 0
        self.descriptor: int | None = None
        self.open()

    def open(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.descriptor = os.open(self.path, os.O_RDONLY)
            self.position = 0

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None

    def skip_to(self, call: Call, repeat: Rule | None) -> None:
        """Go to where sinceTime, sinceSeconds and tailLines say, the later of them."""
        since = since_of(call)
        tail = int(call.query["tailLines"]) if "tailLines" in call.query else None
        if self.descriptor is None or (since is None and tail is None):
            return
        text = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
        if since is not None:
            self.position = first_at(text, since - (repeat.back_s if repeat else 0))
        if tail is not None:
            start = len(text)
            for _ in range(tail + (not text or text.endswith(b"\n"))):
                start = text.rfind(b"\n", 0, start)
                if start < 0:
                    break
            self.position = max(self.position, start + 1) if tail else len(text)

    def read(self) -> bytes:
        """What was added, in whole lines; goes on in the new file after a rotation."""
        if self.descriptor is None:
            self.open()
        if self.descriptor is None:
            return b""
        text = os.pread(self.descriptor, CHUNK, self.position)
        if not text and self.rotated():
            self.close()
            self.open()
            return self.read() if self.descriptor is not None else b""
        self.position += len(text)
        lines, newline, self.part = (self.part + text).rpartition(b"\n")
        return lines + newline

    def rotated(self) -> bool:
        assert self.descriptor is not None
        try:
            return os.stat(self.path).st_ino != os.fstat(self.descriptor).st_ino
        except FileNotFoundError:
            return False


def since_of(call: Call) -> float | None:
    if "sinceTime" in call.query:
        return seconds_of(call.query["sinceTime"])
    return time.time() - float(call.query["sinceSeconds"]) if "sinceSeconds" in call.query else None


def seconds_of(text: str) -> float:
    """Unix seconds of an RFC 3339 time, whose fraction may have nine digits."""
    seconds, _, fraction = text.rstrip("Z").partition(".")
    if not text.endswith("Z"):
        return datetime.fromisoformat(text).timestamp()
    return datetime.fromisoformat(seconds + "+00:00").timestamp() + float(f"0.{fraction or 0}")


def first_at(text: bytes, since: float) -> int:
    """Where the first line begins that is not earlier; times of a log only grow, so half of it is left out at each step."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        start = max(text.rfind(b"\n", low, middle) + 1, low)
        end = text.find(b"\n", start) + 1 or len(text)
        if seconds_of(text[start:end].split(b" ", 1)[0].decode()) >= since:
            high = start
        else:
            low = end
    return low


def shown(text: bytes, stamped: bool) -> bytes:
    return PREFIX.sub(rb"\1 " if stamped else b"", text)
