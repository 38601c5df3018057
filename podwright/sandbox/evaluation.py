"""Run a script by real bash in a sandbox and read back every call of a program that the sandbox has a stand-in for.

`enter.sh` is the sandbox: user namespaces, so no rights are needed and none are gained. `standin.sh` runs in the place of the programs
in `stage.STANDINS`, and `prelude.sh` is read by every bash before its script.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from podwright.errors import UserError
from podwright.recipe.script_text import with_placeholders
from podwright.sandbox.stage import PATH, UNPRIVILEGED, Surroundings, fill, is_root, missing_capabilities, read
from podwright.shell import Shell

PROCESSES = 64
OUTPUT = 4 << 20  # bytes, the limit of a file in enter.sh
_BY_BASH = {"PWD", "OLDPWD", "SHLVL", "_"}
_STOPPED = {
    "time": "did not end within {seconds} s",
    "memory": "used more than 512 MiB of memory",
    "calls": "called programs more than 500 times",
    "background": "left processes running in the background",
}


@dataclass(frozen=True)
class Call:
    """One call of a stand-in. `argv` is what the program would have got, its name first; bytes that are not UTF-8 are surrogates, as in `os.fsdecode`."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]  # exported, and not of the sandbox itself: the values given and what the script set
    stdin: bytes = b""  # at most 1 MB, read only where an argument is - or /dev/stdin

    @property
    def name(self) -> str:
        return self.argv[0]


@dataclass(frozen=True)
class Evaluated:
    """What a script did. Where `sandboxed` is false nothing was run, and `why_not` says why."""

    calls: tuple[Call, ...] = ()
    exit_code: int | None = None  # None: not run, or stopped
    output: str = ""  # the last 4000 bytes of stdout and stderr together
    sandboxed: bool = True
    why_not: str = ""
    problem: str = ""  # in one line: the script failed or was stopped
    placeholders: Mapping[str, str] = field(default_factory=dict)  # as with_placeholders names them

    def workloads(self) -> list[Call]:
        """The calls of `xpk workload create`, and of its form for Pathways. `argv` begins with xpk, also where python or uv starts it."""
        calls = [(call, _of_xpk(call.argv)) for call in self.calls]
        return [replace(call, argv=argv) for call, argv in calls if " ".join(argv[1:3]).startswith("workload create")]


def _of_xpk(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`argv` from the name of xpk on; empty where it is another program."""
    for place, word in enumerate(argv[:4]):
        if Path(word).name in ("xpk", "xpk.py", "xpk.main"):
            return ("xpk", *argv[place + 1 :])
    return ()


def evaluate(
    script: Path,
    values: Mapping[str, str],
    shell: Shell,
    *,
    arguments: Sequence[str] = (),
    limit_s: float = 10.0,
    user: str = "user",
    home: str = "",
    at_s: int = 1_767_225_600,
    timezone: str = "UTC",
) -> Evaluated:
    """Run `script` by bash where it has no network, no file of this machine but programs, and at most `limit_s` seconds.

    `arguments` are $1 and those after it. `values` (K=V that the user typed) are exported, and follow each line of the script that assigns K; a key that is no name of a variable is that of a
    placeholder <K>. `user` and `home` (below /home, if none is given) are what $USER and $HOME say, and `at_s`, seconds since 1970, is the time that `date`
    tells in `timezone`. Files beside the script lie beside it in the sandbox, but for hidden ones, links and those above 1 MiB.
    UserError: the script cannot be read.
    """
    try:
        original = read(script)
    except OSError as e:
        raise UserError(f"{script}: {(e.strerror or str(e)).lower()}", "give a bash script") from e
    if "\0" in original:
        raise UserError(f"{script} is no text", "give a bash script")
    if why_not := _why_not():
        return Evaluated(sandboxed=False, why_not=why_not, placeholders=with_placeholders(original, values)[1])
    seen = Surroundings(user, home or f"/home/{user}", at_s, timezone)
    seconds, out = math.ceil(limit_s), bytearray()

    def take(pipe: IO[bytes]) -> None:
        out.extend(pipe.read())

    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podwright-")))
            placeholders = fill(folder, script, original, values, seen)
        except OSError as e:
            why_not = f"the folder of the sandbox cannot be written: {e}"
            return Evaluated(sandboxed=False, why_not=why_not, placeholders=with_placeholders(original, values)[1])
        _, errors = shell.stream(
            [*_argv(folder, script.name, seen, seconds), *arguments], read=take, seconds=seconds + 5
        )
    return replace(_result(bytes(out), errors, script, seconds, seen.variables()), placeholders=placeholders)


def _why_not() -> str:
    """What this machine lacks for a sandbox, as far as it is known beforehand; "" for nothing."""
    missing = [name for name in ("bash", "sh", "unshare", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed here"
    capabilities = ", ".join(missing_capabilities())
    return f"root has no {capabilities} here, which the sandbox needs" if capabilities else ""


def _argv(stage: Path, script: str, seen: Surroundings, seconds: int) -> list[str]:
    """The command, with an empty environment. Root becomes UNPRIVILEGED first."""
    drop = ["setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups"]
    spaces = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
    ]
    enter = ["bash", str(stage / "enter.sh"), str(stage), script, seen.home, seen.user, str(seconds), str(_processes())]
    return ["env", "-i", f"PATH={PATH}", *(drop if is_root() else []), *spaces, *enter, os.path.expanduser("~")]


def _processes() -> int:
    """The process limit. Before Linux 5.14 it counts all processes of a user, not those of the sandbox alone."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if is_root() or not release or (int(release[1]), int(release[2])) >= (5, 14):
        return PROCESSES
    mine = [path for path in Path("/proc").glob("[0-9]*/task/[0-9]*") if path.stat().st_uid == os.geteuid()]
    return PROCESSES + len(mine)


def _result(out: bytes, errors: str, script: Path, seconds: int, base: Mapping[str, str]) -> Evaluated:
    """What `enter.sh` has printed, as a record."""
    fields = out.split(b"\0")
    if fields[0] != b"started":
        lines = errors.strip().splitlines() or ["it did not start"]
        return Evaluated(sandboxed=False, why_not=f"this machine allows no sandbox: {lines[-1]}")
    if len(fields) < 5 or fields[1] != b"ended":
        return Evaluated(problem=f"{script} {_STOPPED['time'].format(seconds=seconds)}")
    stopped = fields[3].decode()
    code = None if stopped in ("time", "memory", "calls") else int(fields[2])
    output = base64.b64decode(fields[4]).decode(errors="replace")
    calls = tuple(call for record in fields[5:-1] if (call := _call(record, base)))
    problem = _STOPPED[stopped].format(seconds=seconds) if stopped else ""
    if code and not problem:
        problem = _failure(code, output)
    return Evaluated(calls, code, output, problem=f"{script} {problem}" if problem else "")


def _failure(code: int, output: str) -> str:
    if code == 128 + 25:
        return f"wrote more than {OUTPUT >> 20} MiB into a file or to the terminal"
    if code > 128:
        return f"was ended by signal {code - 128}"
    lines = [line for line in output.splitlines() if line.strip()]
    return f"ended with exit code {code}" + (f": {lines[-1].strip()}" if lines else "")


def _call(record: bytes, base: Mapping[str, str]) -> Call | None:
    """The call in a record of `standin.sh`; None where the stand-in was ended while it wrote."""
    try:
        name, cwd, number, rest = base64.b64decode(record).split(b"\0", 3)
        *arguments, rest = rest.split(b"\0", int(number))
        exported, end, stdin = rest.partition(b"\0\0") if not rest.startswith(b"\0") else (b"", b"\0", rest[1:])
    except (ValueError, binascii.Error):
        return None
    if len(arguments) != int(number) or not end:
        return None
    pairs = [os.fsdecode(line).partition("=") for line in exported.split(b"\0")]
    env = {key: value for key, _, value in pairs if key and key not in _BY_BASH and base.get(key) != value}
    return Call(tuple(os.fsdecode(word) for word in (name, *arguments)), os.fsdecode(cwd), env, stdin)
