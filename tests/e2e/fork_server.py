"""Launchers without the time that imports take: `python -m tests.e2e.fork_server MODULE...` imports these once and forks a process for each order.

An order is a line of JSON on standard input. Lines on standard output: ["started", PID] of a process that has opened its outputs, and
["ended", PID, STATUS] with the status of os.waitpid when it has ended. A process ends with the server, and that with the one that started it.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lab import machine

MODULES = (
    "google.cloud.storage",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "matplotlib.style",
    "podwright.cli.app",
    "podwright.cli.destination",
    "podwright.cli.recipe_names",
    "podwright.plan.kinds.grpo",
    "podwright.plan.make",
    "podwright.importers.config_files",
    "podwright.recipe.maxtext.argument_types",
    "podwright.recipe.maxtext.launch_config",
    "podwright.report.kinds.grpo",
    "podwright.report.page",
    "podwright.run.cleaning",
    "podwright.run.create",
    "podwright.run.removal",
    "podwright.run.session",
    "podwright.storage.bucket",
    "podwright.storage.trial",
    "podwright.targets.gke.target",
    "podwright.targets.local",
    "podwright.targets.slurm",
    "podwright.targets.ssh",
    "podwright.targets.tpu_vm.target",
    "podwright.track",
    "podwright.train.grpo.token_check",
    "pydantic.type_adapter",
    "tests.token_counts",
)
"""what the verbs of a run import"""


class ForkServer:
    """`with ForkServer() as server`: starts scripts as processes of their own. It starts when it is first needed."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._text = b""
        self._started: list[int] = []
        self._statuses: dict[int, int] = {}

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.kill()
            self._server.communicate()

    def start(
        self, script: Path, argv: Sequence[str], cwd: Path, environment: Mapping[str, str], out: Path
    ) -> "ForkedProcess":
        """Run `script` as __main__ in a session of its own, with all of its output in `out`."""
        return ForkedProcess(self, self._order(script, argv, cwd, environment, (out, out), session=True))

    def start_piped(
        self, script: Path, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> "ForkedProcess":
        """Run `script` as __main__ without setsid, with pipes from its stdout and stderr."""
        pipes = [os.pipe(), os.pipe()]
        out, err = (Path(f"/proc/{os.getpid()}/fd/{write}") for _, write in pipes)
        try:
            pid = self._order(script, argv, cwd, environment, (out, err), session=False)
        finally:
            for _, write in pipes:  # the process has opened both
                os.close(write)
        return ForkedProcess(self, pid, *(os.fdopen(read) for read, _ in pipes))

    def _order(
        self,
        script: Path,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        outputs: tuple[Path, Path],
        session: bool,
    ) -> int:
        """The number of a process that has this order; its outputs are open."""
        self._server = self._server or subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.fork_server", *MODULES],
            cwd=machine.REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            preexec_fn=machine.end_with_parent,
        )
        order = {"script": str(script), "argv": argv, "cwd": str(cwd), "environment": {**environment}}
        order |= {"outputs": [str(path) for path in outputs], "session": session}
        assert self._server.stdin
        self._server.stdin.write(json.dumps(order).encode() + b"\n")
        while not self._started:
            self._read()
        return self._started.pop()

    def status(self, pid: int, seconds: float | None) -> int | None:
        """The status of a process that has ended, as os.waitpid has it; None if it lives after so many seconds. None waits without limit."""
        assert self._server
        until = None if seconds is None else time.monotonic() + seconds
        while pid not in self._statuses:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._server.stdout], [], [], left)[0]:
                break
            self._read()
        return self._statuses.get(pid)

    def _read(self) -> None:
        assert self._server and self._server.stdout
        piece = self._server.stdout.read(4096)
        assert piece, "the fork server has ended"
        *lines, self._text = (self._text + piece).split(b"\n")
        for what, pid, *status in map(json.loads, lines):
            if what == "started":
                self._statuses.pop(pid, None)  # of an earlier process: the kernel gives numbers again after 32,768
                self._started.append(pid)
            else:
                self._statuses[pid] = status[0]


def podwright(argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What a verb prints and its exit code."""
    process = shared().start_piped(machine.REPOSITORY / "podwright" / "__main__.py", argv, cwd, environment)
    out, err = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess(["podwright", *argv], process.returncode, out, err)


@functools.cache
def shared() -> ForkServer:
    """The fork server of this process of pytest; it ends with that."""
    server = ForkServer()
    atexit.register(server.__exit__)
    return server


class ForkedProcess:
    """A process of a fork server, with the methods of subprocess.Popen that tests use."""

    def __init__(
        self, server: ForkServer, pid: int, stdout: IO[str] | None = None, stderr: IO[str] | None = None
    ) -> None:
        self._server, self.pid, self.stdout, self.stderr = server, pid, stdout, stderr
        self.returncode: int | None = None
        self._outputs = [_RestOfOutput(stream) for stream in (stdout, stderr) if stream]

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Both outputs to their ends, and wait. After subprocess.TimeoutExpired a later call returns the text in full."""
        until = None if timeout is None else time.monotonic() + timeout
        for output in self._outputs:
            output.begin()
        for output in self._outputs:
            if not output.ended(None if until is None else max(0.0, until - time.monotonic())):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        out, err = (output.text for output in self._outputs)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and (status := self._server.status(self.pid, seconds)) is not None:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class _RestOfOutput:
    """What a process writes to a pipe after the lines that a test has read."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self.text = stream, ""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()

    def ended(self, seconds: float | None) -> bool:
        assert self._thread
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _read(self) -> None:
        with self._stream:
            self.text = self._stream.read()


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
                if not os.fork():
                    return dict(order)


def say(*words: str | int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def become(order: dict[str, Any]) -> None:
    """Turn this process into that of an order, from here to its end."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    machine.end_with_parent()
    if order["session"]:
        os.setsid()
    out, err = order["outputs"]
    try:
        files = [os.open(os.devnull, os.O_RDONLY), os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)]
        files.append(files[1] if err == out else os.open(err, os.O_WRONLY))
    finally:
        say("started", os.getpid())  # the other side may close its ends of pipes
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 256)  # what the server has open
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["script"], *order["argv"]]
    runpy.run_path(order["script"], run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # a collection in a forked process would copy the memory that it shares with this one
    become(serve())
