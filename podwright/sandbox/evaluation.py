"""Run a script by bash in a sandbox and read back every call of a program that the sandbox has a stand-in for.

`enter.sh` is the sandbox: user namespaces, so no rights are needed and none are gained. `standin.sh` runs in the place of the programs
in `stage.STANDINS`, `prelude.sh` is read by every bash before its script, and `trusted.sh` behind that where there is no sandbox.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from podwright.errors import UserError, both_ends
from podwright.sandbox.stage import (
    NOWHERE,
    PATH,
    UNPRIVILEGED,
    Script,
    Surroundings,
    fill,
    hand_over,
    has_proc,
    is_root,
    missing_capabilities,
    read,
    trusting,
)
from podwright.shell import Shell

PROCESSES = 64
SECONDS = 10
"""that a script may take"""
OUTPUT = 4 << 20  # bytes, the limit of a file in enter.sh
_BY_BASH = {"PWD", "OLDPWD", "SHLVL", "_"}
_DROP = ("setpriv", f"--reuid={UNPRIVILEGED}", f"--regid={UNPRIVILEGED}", "--clear-groups")
_STOPPED = {
    "time": f"did not end within {SECONDS} s",
    "memory": "used more than 512 MiB of memory",
    "calls": "called programs more than 500 times",
    "background": "left processes running in the background",
}


@dataclass(frozen=True)
class Call:
    """One call of a stand-in. `argv` is what the program would have got, its name first; bytes that are not UTF-8 are surrogates, as in `os.fsdecode`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]  # exported, and not of the sandbox itself: the values given and what the script set

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
    trusted: bool = False  # whether it was run without a sandbox

    def workloads(self) -> list[Call]:
        """The calls of `xpk workload create`. `argv` begins with xpk, also where python or uv starts it."""
        calls = [(call, _of_xpk(call.argv)) for call in self.calls]
        return [replace(call, argv=argv) for call, argv in calls if argv[1:3] == ("workload", "create")]


def _of_xpk(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`argv` from the name of xpk on; empty where it is another program."""
    for place, word in enumerate(argv[:4]):
        if Path(word).name in ("xpk", "xpk.py", "xpk.main"):
            return ("xpk", *argv[place + 1 :])
    return ()


def run(
    script: Script,
    values: Mapping[str, str],
    shell: Shell,
    seen: Surroundings,
    *,
    trust: bool = False,
) -> Evaluated:
    """Run a script by bash where it has no network, no file of this machine but programs, and at most SECONDS.

    `values` (K=V that the user typed) are exported, and count whatever the script assigns to K; a key that is no name of a variable is that of
    a placeholder <K>. `trust`: where there can be no sandbox, with stand-ins on PATH alone.
    """
    why_not = _why_not()
    if why_not and not (trust and has_proc()):
        return Evaluated(sandboxed=False, why_not=why_not)
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podwright-")))
            variables = fill(folder, script, values, seen)
            if not why_not:
                hand_over(folder)
                result = _sandboxed(folder, script, shell, seen)
                if result.sandboxed or not trust:
                    return result
            return _trusted(folder, script, shell, seen, trusting(folder, variables))
        except OSError as e:
            return Evaluated(sandboxed=False, why_not=f"the sandbox cannot be set up: {e}")


def _sandboxed(folder: Path, script: Script, shell: Shell, seen: Surroundings) -> Evaluated:
    out = bytearray()
    argv = _argv(folder, script.path.name, seen)
    _, errors = shell.stream(argv, read=lambda pipe: out.extend(pipe.read()), seconds=SECONDS + 5)
    return _result(bytes(out), errors, script.path, seen.variables())


# $0: the folder, $1: seconds, $2: processes. What is exported here is not of the script's programs: those get the variables behind it.
_TRUSTED = """
cd "$0/recipe" || exit 1
for limit in "-c 0" "-f 4096" "-v 1048576" "-t $1" "-u $2"; do ulimit $limit; done 2> /dev/null
shift 2
"$@" < /dev/null > "$0/run/log" 2>&1 {nowhere}> "$0/run/nowhere" &
wait "$!"
code=$?
kill -KILL -- "-$!" 2> /dev/null # what it has left in the background: `timeout` leads a group of its own
exit "$code"
""".replace("{nowhere}", str(NOWHERE))
_REFUSED = re.compile(r": (line \d+: .*: restricted\b.*)")


def _trusted(folder: Path, script: Script, shell: Shell, seen: Surroundings, variables: Mapping[str, str]) -> Evaluated:
    """What the script does in a restricted bash with stand-ins on PATH alone. UserError for what such a bash refuses, and for a program that is
    neither a stand-in nor a reader: without them the words of the script could be others."""
    programs = [shutil.which(name, path=PATH) for name in ("timeout", "env", "bash")]
    if None in programs:
        return Evaluated(sandboxed=False, why_not="timeout, env or bash is not installed here")
    timeout, env, bash = map(str, programs)
    argv = [env, "-i", *(f"{name}={value}" for name, value in variables.items())]
    argv += [bash, "--", f"./{script.path.name}" if seen.variant else script.path.name]
    begin = [bash, "-c", _TRUSTED, str(folder), str(SECONDS), str(_processes())]
    begin += [timeout, "--signal=KILL", str(SECONDS), *argv]
    drops = is_root() and not missing_capabilities() and shutil.which("setpriv")
    if drops:
        hand_over(folder)
    code, _, _ = shell.ask([env, "-i", f"PATH={PATH}", *(_DROP if drops else ()), *begin], SECONDS + 5)
    hidden, log = ((folder / "run" / name).read_bytes().decode(errors="replace") for name in ("nowhere", "log"))
    absent = folder / "calls" / "absent"
    refused = _REFUSED.search(f"{log}\n{hidden}")
    if absent.exists() or refused:
        what = refused[1] if refused else f"calls {read(absent)}"
        fix = "take it out in a copy of the script, or import it where user namespaces are allowed"
        raise UserError(
            f"{script.path.name} {what}, which without a sandbox is not run", fix, "refused-without-sandbox"
        )
    problem = ""
    if code in (124, 137, -signal.SIGKILL):
        problem = _STOPPED["time"]
    elif code:
        problem = _failure(code, log)
    calls = [_call(path.read_bytes(), variables) for path in sorted((folder / "calls").glob("1*"))]
    home = str(folder / "home")
    there = seen.home
    moved = []
    for call in calls:
        if call:
            words = tuple(word.replace(home, there) for word in call.argv)
            moved.append(replace(call, argv=words))
    return Evaluated(tuple(moved), code, log[-4000:], True, "", f"{script.path} {problem}" if problem else "", True)


def _why_not() -> str:
    """What this machine lacks for a sandbox, as far as it is known beforehand; "" for nothing."""
    if not has_proc():
        return "it needs the /proc of Linux"
    missing = [name for name in ("bash", "sh", "unshare", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed here"
    capabilities = ", ".join(missing_capabilities())
    return f"root has no {capabilities} here, which the sandbox needs" if capabilities else ""


def _argv(stage: Path, script: str, seen: Surroundings) -> list[str]:
    """The command, with an empty environment. Root becomes UNPRIVILEGED first."""
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
    enter = ["bash", str(stage / "enter.sh"), str(stage), script, seen.home, seen.user, str(SECONDS), str(_processes())]
    return ["env", "-i", f"PATH={PATH}", *(_DROP if is_root() else []), *spaces, *enter, os.path.expanduser("~")]


def _processes() -> int:
    """The process limit. Where the sandbox has no limit of its own, before Linux 5.14 and in none, it counts all processes of a user."""
    if is_root():
        return PROCESSES
    running = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if process.stat().st_uid == os.geteuid():
                running += len(os.listdir(process / "task"))
    return PROCESSES + running


def _result(out: bytes, errors: str, script: Path, base: Mapping[str, str]) -> Evaluated:
    """What `enter.sh` has printed, as a record."""
    fields = out.split(b"\0")
    if fields[0] != b"started":
        lines = errors.strip().splitlines() or ["it did not start"]
        return Evaluated(sandboxed=False, why_not=f"this machine allows no sandbox: {lines[-1]}")
    if len(fields) < 5 or fields[1] != b"ended":
        return Evaluated(problem=f"{script} {_STOPPED['time']}")
    stopped = fields[3].decode()
    code = None if stopped in ("time", "memory", "calls") else int(fields[2])
    output = base64.b64decode(fields[4]).decode(errors="replace")
    calls = tuple(call for record in fields[5:-1] if (call := _call(base64.b64decode(record), base)))
    problem = _STOPPED[stopped] if stopped else ""
    if code and not problem:
        problem = _failure(code, output)
    return Evaluated(calls, code, output, problem=f"{script} {problem}" if problem else "")


def _failure(code: int, output: str) -> str:
    if code == 128 + 25:
        return f"wrote more than {OUTPUT >> 20} MiB into a file or to the terminal"
    if code > 128:
        return f"was ended by signal {code - 128}"
    lines = [line for line in output.splitlines() if line.strip()]
    return f"ended with exit code {code}" + (f": {both_ends(lines[-1].strip())}" if lines else "")


def _call(record: bytes, base: Mapping[str, str]) -> Call | None:
    """The call in a record of `standin.sh`; None where the stand-in was ended while it wrote."""
    try:
        name, number, rest = record.split(b"\0", 2)
        *arguments, exported = rest.split(b"\0", int(number))
    except ValueError:
        return None
    if len(arguments) != int(number) or not (exported == b"\0" or exported.endswith(b"\0\0")):
        return None
    pairs = [os.fsdecode(line).partition("=") for line in exported.split(b"\0")]
    env = {key: value for key, _, value in pairs if key and key not in _BY_BASH and base.get(key) != value}
    return Call(tuple(os.fsdecode(word) for word in (name, *arguments)), env)
