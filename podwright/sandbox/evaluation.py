"""Run a script by real bash in a sandbox and read back every call of a program that the sandbox has a stand-in for.

`enter.sh` is the sandbox: user namespaces, so no rights are needed and none are gained. `standin.sh` runs in the place of the programs
in `STANDINS`, and `prelude.sh` is read by every bash before its script.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from podwright.errors import UserError
from podwright.recipe.script_text import is_variable, quoted, with_placeholders, with_values
from podwright.shell import Shell

HERE = Path(__file__).parent

# Programs that a launch script may call and that must not run. Everything else of /usr runs: sed, printf, tr, mktemp.
STANDINS = (
    *("xpk", "pip", "pip3", "uv", "uvx", "pipx", "poetry", "conda", "mamba", "virtualenv", "python", "python3"),
    *(f"python3.{minor}" for minor in range(8, 16)),
    *("gcloud", "gsutil", "bq", "kubectl", "helm", "kueuectl", "gcluster", "terraform"),
    *("docker", "docker-credential-gcloud", "podman", "crane", "skopeo", "nerdctl"),
    *("curl", "wget", "git", "gh", "ssh", "scp", "rsync", "aws", "az", "huggingface-cli", "hf", "wandb"),
    *("sudo", "apt", "apt-get", "apt-key", "dpkg", "yum", "dnf", "snap", "brew", "systemctl", "service"),
    *("source", "sleep", "nvidia-smi", "tpu-info", "tmux", "screen", "crontab", "ping", "nc"),
)
NOBODY = 65534  # whom root becomes: root has no process limit, and may read what others have hidden
PROCESSES = 64
OUTPUT = 4 << 20  # bytes, the limit of a file in enter.sh
FILES, FILE_SIZE = 200, 1 << 20  # of the files beside a script that go with it
_BY_BASH = {"PWD", "OLDPWD", "SHLVL", "_"}
_READ_ONLY = {"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"}
_FIXED = {"HOME", "PATH", "BASH_ENV"}  # a value that the user gives does not reach these
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
        """The calls of `xpk workload create`, also those of xpk.py by python."""
        return [call for call in self.calls if "workload create" in " ".join(_xpk(call.argv)[1:3])]


def _xpk(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`argv` from the name of xpk on; empty where it is another program."""
    if argv[0].startswith("python") and len(argv) > 1 and Path(argv[1]).name == "xpk.py":
        return argv[1:]
    return argv if argv[0] == "xpk" else ()


def evaluate(
    script: Path,
    values: Mapping[str, str],
    shell: Shell,
    *,
    limit_s: float = 10.0,
    user: str = "user",
    home: str = "",
    at_s: int = 1_767_225_600,
    timezone: str = "UTC",
) -> Evaluated:
    """Run `script` by bash where it has no network, no file of this machine but programs, and at most `limit_s` seconds.

    `values` (K=V that the user typed) are exported, and follow each line of the script that assigns K; a key that is no name of a variable is that of a
    placeholder <K>. `user` and `home` (below /home) are what $USER and $HOME say, and `at_s`, seconds since 1970, is the time that `date`
    tells in `timezone`. Files beside the script lie beside it in the sandbox, but for hidden ones and those above 1 MiB; `values` count in
    those that end in .sh too.
    UserError: the script cannot be read.
    """
    try:
        original = script.read_bytes().decode(errors="surrogateescape")
    except OSError as e:
        raise UserError(f"{script}: {(e.strerror or str(e)).lower()}", "give a bash script") from e
    if "\0" in original:
        raise UserError(f"{script} is no text", "give a bash script")
    text, placeholders = with_placeholders(original, values)
    text = with_values(text, values)
    seconds = math.ceil(limit_s)
    missing = [name for name in ("bash", "sh", "unshare", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return Evaluated(sandboxed=False, why_not=f"{', '.join(missing)} is not installed", placeholders=placeholders)
    with tempfile.TemporaryDirectory(prefix="podwright-") as folder:
        stage = Path(folder)
        _fill(stage, script, text, _answers(text, values), at_s)
        for path in (stage / "recipe").glob("*.sh"):
            if path.name != script.name:  # that the script may source
                sourced = path.read_bytes().decode(errors="surrogateescape")
                path.write_bytes(with_values(sourced, values).encode(errors="surrogateescape"))
        home = home or f"/home/{user}"
        base = _base(user, home, timezone)
        given = {k: v for k, v in values.items() if is_variable(k) and k not in _READ_ONLY | _FIXED}
        (stage / "environment").write_bytes(
            b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in {**base, **given}.items())
        )
        _give_away(stage)
        argv = _argv(stage, script.name, home, user, seconds)
        out = bytearray()

        def read(pipe: IO[bytes]) -> None:
            out.extend(pipe.read())

        _, errors = shell.stream(argv, read=read, seconds=seconds + 5)
    return _result(bytes(out), errors, script, seconds, placeholders, base)


def _base(user: str, home: str, timezone: str) -> dict[str, str]:
    """The variables of every script."""
    return {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "PATH": f"/podwright/bin:{_PATH}",
        "LANG": "C.UTF-8",
        "TZ": timezone,
        "TMPDIR": "/tmp",
        "TERM": "dumb",
        "BASH_ENV": "/podwright/bin/prelude.sh",
    }


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _argv(stage: Path, script: str, home: str, user: str, seconds: int) -> list[str]:
    """The command, with an empty environment. Root becomes nobody first."""
    drop: list[str] = []
    if os.geteuid() == 0:
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
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
    enter = ["bash", str(stage / "enter.sh"), str(stage), script, home, user, str(seconds), str(_processes())]
    return ["env", "-i", f"PATH={_PATH}", *drop, *spaces, *enter, os.path.expanduser("~")]


def _processes() -> int:
    """The process limit. Before Linux 5.14 it counts all processes of a user, not those of the sandbox alone."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if os.geteuid() == 0 or not release or (int(release[1]), int(release[2])) >= (5, 14):
        return PROCESSES
    mine = [path for path in Path("/proc").glob("[0-9]*/task/[0-9]*") if path.stat().st_uid == os.geteuid()]
    return PROCESSES + len(mine)


def _fill(stage: Path, script: Path, text: str, answers: str, at_s: int) -> None:
    """Write what the sandbox needs: the script with the files beside it, and the stand-ins."""
    recipe, programs = stage / "recipe", stage / "bin"
    for folder in (recipe, programs, stage / "root"):
        folder.mkdir()
    for path in _siblings(script):
        shutil.copyfile(path, recipe / path.name)
    (recipe / script.name).write_bytes(text.encode(errors="surrogateescape"))
    shutil.copyfile(HERE / "enter.sh", stage / "enter.sh")
    shutil.copyfile(HERE / "prelude.sh", programs / "prelude.sh")
    body = (
        (HERE / "standin.sh")
        .read_text()
        .replace("@PATH@", _PATH)
        .replace("@ANSWERS@\n", answers)
        .replace("@NOW@", str(at_s))
    )
    (programs / "standin").write_text(f"#!{shutil.which('sh')}\n{body}")
    (programs / "standin").chmod(0o755)
    for name in (*STANDINS, "date"):
        (programs / name).symlink_to("standin")


def _give_away(stage: Path) -> None:
    """Let nobody read `stage`, where root runs this: the user nobody, no other one."""
    if os.geteuid() == 0:
        for path in (stage, *stage.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _siblings(script: Path) -> Iterator[Path]:
    paths = [path for path in script.parent.iterdir() if not path.name.startswith(".") and path != script]
    for path in sorted(paths)[:FILES]:
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_size <= FILE_SIZE and os.access(path, os.R_OK):
            yield path


def _answers(text: str, values: Mapping[str, str]) -> str:
    """What stand-ins print, as branches of a `case`: scripts check the version of xpk and ask gcloud for the project."""
    version = re.search(r"\bxpk==([\w.]+)", text)
    project, zone = values.get("PROJECT_ID", ""), values.get("ZONE", "")
    lines = {
        '"pip show xpk"* | "pip3 show xpk"* | "uv pip show xpk"*': f"Name: xpk\nVersion: {version[1] if version else '1.16.0'}\n",
        '"gcloud config get-value project"* | "gcloud config get project"*': f"{project}\n" if project else "",
        '"gcloud config get-value compute/zone"*': f"{zone}\n" if zone else "",
    }
    return "".join(f"  {pattern}) printf '%s' {quoted(answer)} ;;\n" for pattern, answer in lines.items())


def _result(
    out: bytes, errors: str, script: Path, seconds: int, placeholders: Mapping[str, str], base: Mapping[str, str]
) -> Evaluated:
    """What `enter.sh` has printed, as a record."""
    fields = out.split(b"\0")
    if fields[0] != b"started":
        lines = errors.strip().splitlines()
        return Evaluated(
            sandboxed=False, why_not=lines[-1] if lines else "the sandbox did not start", placeholders=placeholders
        )
    if len(fields) < 5 or fields[1] != b"ended":
        problem = f"{script} {_STOPPED['time'].format(seconds=seconds)}"
        return Evaluated(problem=problem, placeholders=placeholders)
    stopped = fields[3].decode()
    code = None if stopped in ("time", "memory", "calls") else int(fields[2])
    output = base64.b64decode(fields[4]).decode(errors="replace")
    calls = tuple(call for record in fields[5:-1] if (call := _call(record, base)))
    problem = _STOPPED[stopped].format(seconds=seconds) if stopped else ""
    if code and not problem:
        problem = _failure(code, output)
    return Evaluated(calls, code, output, problem=f"{script} {problem}" if problem else "", placeholders=placeholders)


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
