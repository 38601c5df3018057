"""The only place in the control half that starts processes or reads the environment they get.

Callers say which variables to add; everything else of the environment is inherited and never written anywhere.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import IO, NoReturn

from podwright.errors import UserError, expanded

# Variables that hold a list of flags: an addition goes after what the user has set.
FLAG_LISTS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


class Shell:
    """Starts processes, and remembers those it started so that their exit codes can be asked for."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        keep_open: Sequence[int] = (),
        without: str = "(?!)",
    ) -> int:
        """Start `argv` in a session of its own, output appended to `log`; its pid. It inherits no variable whose name matches `without`."""
        with log.open("ab") as out:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env={name: value for name, value in joined(os.environ, env).items() if not re.fullmatch(without, name)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=tuple(keep_open),
            )
        self._children[child.pid] = child
        return child.pid

    def returncode(self, pid: int) -> int | None:
        """Exit code of an ended child (negative: the signal); None while it runs or when someone else started it."""
        child = self._children.get(pid)
        return child.poll() if child else None

    def wait(self, pid: int) -> int:
        """Exit code of a child of ours, which is waited for."""
        return self._children[pid].wait()

    def kill(self, pid: int) -> None:
        """End a child of ours and whatever it started, at once; harmless when it has ended."""
        child = self._children[pid]
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            child.wait()

    @staticmethod
    def attach(argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start `argv` with the output of this process, in a session of its own so that Ctrl-C does not reach it; `end` ends it."""
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)

    @staticmethod
    def end(child: subprocess.Popen[bytes]) -> None:
        """End a process that `attach` started, with what it started."""
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    @staticmethod
    def flags() -> dict[str, str]:
        """The compiler flags that every child inherits."""
        return Shell.variables(FLAG_LISTS)

    @staticmethod
    def hides_gpus() -> bool:
        """Whether variables keep jax in every child from NVIDIA GPUs (train/devices.py knows the same)."""
        platforms = os.environ.get("JAX_PLATFORMS", "cuda").split(",")
        return {"cuda", "gpu", ""}.isdisjoint(platforms) or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")

    def output(self, argv: Sequence[str]) -> tuple[int, str]:
        """Run `argv` to its end: exit code and stdout. Its stderr goes to ours."""
        done = subprocess.run(
            argv, env=joined(os.environ, {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout

    def answer(self, program: Sequence[str], words: Sequence[str]) -> tuple[int, str]:
        """Run `program --messages FD words` to its end: exit code and stdout. What it writes to the open file FD goes to our stderr at
        once. What else is on its stderr, of libraries, is shown only when it crashed: with any code but 0 and 2.
        """
        messages = os.dup(2)
        with tempfile.TemporaryFile() as others:
            try:
                done = subprocess.run(
                    [*program, "--messages", str(messages), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=others,
                    pass_fds=(messages,),
                    text=True,
                    check=False,
                )
                if done.returncode not in (0, 2):
                    others.seek(0)
                    os.write(messages, others.read())
            finally:
                os.close(messages)
        return done.returncode, done.stdout

    def ask(
        self,
        argv: Sequence[str],
        seconds: float = 60.0,
        cwd: Path | None = None,
        keep_open: Sequence[int] = (),
        given: str = "",
    ) -> tuple[int, str, str]:
        """Run `argv` to its end, at most so long, here or in `cwd`, with `given` on its stdin: exit code, stdout, stderr.

        FileNotFoundError: there is no such command here.
        """
        try:
            done = subprocess.run(
                argv,
                input=given,
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds,
                cwd=cwd,
                pass_fds=tuple(keep_open),
            )
        except subprocess.TimeoutExpired:
            return 124, "", f"{argv[0]} has not answered for {seconds:.0f} s"
        return done.returncode, done.stdout, done.stderr

    def stream(
        self,
        argv: Sequence[str],
        write: Callable[[IO[bytes]], None] = lambda _: None,
        read: Callable[[IO[bytes]], None] = lambda _: None,
        seconds: float | None = None,
    ) -> tuple[int, str]:
        """Run `argv` to its end, at most so long, with what `write` gives it and `read` takes from it: exit code, stderr."""
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=errors) as child,
        ):
            assert child.stdin and child.stdout
            late = threading.Timer(seconds or threading.TIMEOUT_MAX, child.kill)
            late.daemon = True
            late.start()
            try:
                with contextlib.suppress(BrokenPipeError), child.stdin:
                    write(child.stdin)
                read(child.stdout)
                code = child.wait()
            except BaseException:
                child.kill()
                raise
            finally:
                late.cancel()
            errors.seek(0)
            return code, errors.read().decode(errors="replace")

    @staticmethod
    def variables(names: Sequence[str]) -> dict[str, str]:
        """Those of `names` that are set here, for a process on another machine."""
        return {name: os.environ[name] for name in names if name in os.environ}

    @staticmethod
    def has(program: str) -> bool:
        """Whether it is a command of this machine."""
        return shutil.which(program) is not None

    @staticmethod
    def private_folder() -> Path:
        """A folder of this user's alone for locks and sockets, one on a machine, with a path so short that a socket's fits into it.

        UserError where there can be none.
        """
        folder = Path(f"/tmp/podwright-{os.getuid()}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
        if about.st_uid != os.getuid() or about.st_mode & 0o077 or not folder.is_dir():
            raise UserError(
                f"{folder} is not yours alone, and locks and connections of ssh are kept there",
                f"type: rm -rf {folder}",
                "folder-not-private",
            )
        return folder


def targets_file() -> Path:
    """Where the user keeps the settings of targets."""
    if "PODWRIGHT_TARGETS" in os.environ:
        return expanded(os.environ["PODWRIGHT_TARGETS"])
    return expanded(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "podwright" / "targets.yaml"


def user() -> str:
    """Who `$USER` says this is; by the account where it is not set."""
    return os.environ.get("USER") or getpass.getuser()


def become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by `argv`."""
    os.execvpe(argv[0], list(argv), joined(os.environ, env))


def joined(before: Mapping[str, str], additions: Mapping[str, str]) -> dict[str, str]:
    """The environment `before` with `additions`, which count where both have a variable; lists of flags hold those of both."""
    env = dict(before)
    for name, value in additions.items():
        first = env.get(name, "")
        env[name] = f"{first} {value}" if first and name in FLAG_LISTS else value
    return env
