"""Launchers without the time that imports take: `python -m tests.e2e.fork_server MODULE...` imports these once and forks a process for each order.

An order is a line of JSON on standard input. Lines on standard output: ["started", PID] in answer to an order, and ["ended", PID, STATUS] with
the status of os.waitpid when a process has ended. A process ends with the server, and that with the one that started it.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab import machine

MODULES = (
    "google.cloud.storage",
    "matplotlib.figure",
    "podwright.cli.app",
    "podwright.cli.destination",
    "podwright.plan.kinds.grpo",
    "podwright.plan.make",
    "podwright.recipe.imports",
    "podwright.report.kinds.grpo",
    "podwright.report.page",
    "podwright.run.cleaning",
    "podwright.run.create",
    "podwright.run.session",
    "podwright.storage.bucket",
    "podwright.storage.trial",
    "podwright.targets.gke.target",
    "podwright.track",
)
"""what the verbs of a run on GKE import"""


class ForkServer:
    """`with ForkServer() as server`: starts scripts as processes of their own."""

    def __enter__(self) -> "ForkServer":
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fork_server", *MODULES],
            cwd=machine.REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            preexec_fn=machine.end_with_parent,
        )
        self._text = b""
        self._started: list[int] = []
        self._statuses: dict[int, int] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.communicate()

    def start(
        self, script: Path, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], out: Path
    ) -> "ForkedProcess":
        """Run `script` as __main__ in a session of its own, with its output in `out`."""
        order = {"script": str(script), "argv": argv, "cwd": str(cwd), "environment": {**environment}, "out": str(out)}
        assert self._server.stdin
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        while not self._started:
            self._read()
        return ForkedProcess(self, self._started.pop())

    def status(self, pid: int, seconds: float | None) -> int | None:
        """Of a process that has ended, as os.waitpid has it; None if it lives after so many seconds. It waits for good with `seconds` None."""
        while pid not in self._statuses and select.select([self._server.stdout], [], [], seconds)[0]:
            self._read()
        return self._statuses.get(pid)

    def _read(self) -> None:
        assert self._server.stdout
        piece = self._server.stdout.read(4096)
        assert piece, "the fork server has ended"
        *lines, self._text = (self._text + piece).split(b"\n")
        for what, pid, *status in map(json.loads, lines):
            if what == "started":
                self._started.append(pid)
            else:
                self._statuses[pid] = status[0]


class ForkedProcess:
    """What lives under disturbances use of subprocess.Popen."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self) -> int:
        code = self._look(None)
        assert code is not None
        return code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and (status := self._server.status(self.pid, seconds)) is not None:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def serve() -> dict[str, Any]:
    """Fork a process for each order; in such a process, return its order."""
    ended, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    text = b""
    while True:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            with contextlib.suppress(ChildProcessError):
                while (child := os.waitpid(-1, os.WNOHANG))[0]:
                    say("ended", *child)
        if 0 in ready:
            if not (piece := os.read(0, 1 << 16)):
                sys.exit()
            *orders, text = (text + piece).split(b"\n")
            for order in map(json.loads, orders):
                if not (pid := os.fork()):
                    return dict(order)
                say("started", pid)


def say(*words: str | int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """The process of an order, from here to its end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    machine.end_with_parent()
    os.setsid()
    os.chdir(order["cwd"])
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, out)):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["script"], *order["argv"]]
    runpy.run_path(order["script"], run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    become(serve())
