"""`podwright` in the process of the test: what a verb prints and its exit code, without the time that a process of its own needs.

Use a process where a test kills or signals it, or where its start or its environment at start are what is tested. `tests/unit/cli/test_light.py`
starts every verb in a process of its own.
"""

import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from podwright.cli.app import main

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGVTALRM)


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str


def call(*argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Result:
    """What `podwright ARGV` prints and its exit code; `env` is added to the environment. An error that `podwright` does not catch is raised.

    Output is captured below Python, as file descriptors, since the processes that a verb starts write there too. What a verb changes in this
    process is undone: the directory, the environment, signal handlers, sys.argv and the handlers of the root logger.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with _restored(), _redirected(1, out), _redirected(2, err):
            os.chdir(cwd or Path.cwd())
            os.environ.update(env or {})
            sys.argv = ["podwright", *argv]
            code = main(list(argv))
        return Result(code, _text(out), _text(err))


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    cwd, environment, argv = Path.cwd(), dict(os.environ), sys.argv
    signals = {number: signal.getsignal(number) for number in SIGNALS}
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        yield
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = argv
        for number, handler in signals.items():
            signal.signal(number, handler)
        root.setLevel(level)
        root.handlers[:] = handlers


@contextlib.contextmanager
def _redirected(number: int, file: IO[bytes]) -> Iterator[None]:
    """File descriptor `number`, 1 or 2, and the stream of `sys` above it write to `file`."""
    name = {1: "stdout", 2: "stderr"}[number]
    before, kept = getattr(sys, name), os.dup(number)
    before.flush()
    os.dup2(file.fileno(), number)
    # A process of its own has a buffered stdout and a stderr by lines.
    stream = open(number, "w", buffering=1, encoding="utf-8", errors=before.errors, closefd=False)  # noqa: SIM115
    setattr(sys, name, stream)
    try:
        yield
    finally:
        stream.flush()
        setattr(sys, name, before)
        os.dup2(kept, number)
        os.close(kept)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
