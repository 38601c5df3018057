"""The folder that a script is run from: the script with the files beside it, stand-ins for programs, and variables."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podwright.recipe.maxtext.script import versions
from podwright.recipe.maxtext.xpk import NEWEST
from podwright.recipe.script_text import BARE, NESTED, contexts, quoted, with_placeholders

HERE = Path(__file__).parent
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Programs that a launch script may call and that must not run. Everything else of /usr runs: sed, printf, tr, mktemp.
STANDINS = tuple((HERE / "standins.txt").read_text().split())
# Whom root becomes, because root has no process limit and may read what others have hidden. Nobody else has this id: systemd's end
# at 65519, and 65534 is that of daemons.
UNPRIVILEGED = 65533
_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_SETGID": 6, "CAP_SETUID": 7}  # of linux/capability.h
_IDS = Path("/proc/self/uid_map")
_READ_ONLY = {"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"}  # bash refuses to set them
_FIXED = {"HOME", "PATH", "BASH_ENV"}  # the sandbox needs its own
_IN_SANDBOX = "/podwright"
# Programs that only read, which a script finds beside the stand-ins where it is trusted.
READERS = ("basename", "cat", "cut", "dirname", "grep", "head", "seq", "tail", "tr", "wc")
# Where it is trusted bash opens no file to write into, not even these: descriptors that are open already take their place. NOWHERE is a file,
# for a script may send there that something was refused.
NOWHERE = 19
_OPEN = {"null": NOWHERE, "stdout": 1, "stderr": 2}
_INTO_DEVICE = re.compile(r"(&|\d*)(>&|>[>|]?)[ \t]*([\"']?)/dev/(null|stdout|stderr)\3(?=[\s;&|)}`]|\Z)")


@dataclass(frozen=True)
class Script:
    """What bash runs."""

    path: Path
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    """those beside it, by name"""


@dataclass(frozen=True)
class Surroundings:
    """What a script sees of where it runs."""

    user: str
    home: str
    at_s: int  # seconds since 1970, the time that `date` tells
    timezone: str
    variant: int = 0
    """what differs between two machines ($RANDOM, the host name, process ids) follows it"""

    def variables(self) -> dict[str, str]:
        """The variables of every script."""
        return {
            "HOME": self.home,
            "USER": self.user,
            "LOGNAME": self.user,
            "SHELL": "/bin/bash",
            "PATH": f"{_IN_SANDBOX}/bin:{PATH}",
            "LANG": "C.UTF-8",
            "TZ": self.timezone,
            "TMPDIR": "/tmp",
            "TERM": "dumb",
            "BASH_ENV": f"{_IN_SANDBOX}/bin/prelude.sh",
        }


def fill(stage: Path, script: Script, values: Mapping[str, str], seen: Surroundings) -> dict[str, str]:
    """Write into the empty folder `stage` what a run of `script` needs; the variables that it has there."""
    recipe, programs = stage / "recipe", stage / "bin"
    for folder in (recipe, programs, stage / "root"):
        folder.mkdir()
    text = with_placeholders(script.text, values)[0]
    for name, content in script.files.items():
        _write(recipe / name, with_placeholders(content, values)[0] if name.endswith(".sh") else content)
    _write(recipe / script.path.name, text)
    given = dict[str, str]()
    for name, value in values.items():
        if name.isascii() and name.isidentifier() and name not in _READ_ONLY | _FIXED:
            given[name] = value
    changes = {
        "@PATH@": PATH,
        "@NOW@": str(seen.at_s),
        "@VARIANT@": str(seen.variant),
        "@ANSWERS@": _answers(text, values),
    }
    _copy("enter.sh", stage, changes)
    _copy("prelude.sh", programs, changes)
    # Apart from the prelude, in which `trusting` replaces paths. A variable that the script has made readonly stays.
    lines = (f"[[ ${{{name}+${{{name}@a}}}} == *r* ]] || {name}={quoted(value)}\n" for name, value in given.items())
    _write(programs / "values", "".join(lines))
    _copy("standin.sh", programs, {"@SH@": str(shutil.which("sh")), **changes})
    (programs / "standin.sh").chmod(0o755)
    (stage / "random").write_bytes(hashlib.shake_256(b"podwright%d" % seen.variant).digest(1 << 16))
    for name in (*STANDINS, "date"):
        (programs / name).symlink_to("standin.sh")
    variables = {**seen.variables(), **given}
    _write(stage / "environment", "".join(f"{name}={value}\0" for name, value in variables.items()))
    return variables


def hand_over(stage: Path) -> None:
    """Give `stage` to the user that root becomes."""
    if is_root():
        for path in (stage, *stage.rglob("*")):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)


def trusting(stage: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Change a filled `stage` so that bash can run from it without a sandbox; its variables.

    The home is an empty one: programs of the user's own, such as an activated environment would bring, are not reached by it. Files beside
    the script that are no text are left out, for a library among them could be loaded into every program (LD_PRELOAD).
    """
    home = stage / "home"
    (home / ".local" / "bin" / "venv" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "venv" / "bin" / "activate").touch()
    for folder in ("calls", "run"):
        (stage / folder).mkdir()
    for path in (stage / "recipe").iterdir():
        text = read(path)
        if "\0" in text:
            path.unlink()
        elif path.suffix in (".sh", ""):
            _write(path, _without_devices(text))
    for name in READERS:
        if program := shutil.which(name, path=PATH):
            (stage / "bin" / name).symlink_to(program)
    (stage / "bin" / "absent-program").symlink_to("standin.sh")
    with (stage / "bin" / "prelude.sh").open("a") as prelude:
        prelude.write((HERE / "trusted.sh").read_text())
    for name in ("prelude.sh", "standin.sh"):
        path = stage / "bin" / name
        path.write_text(path.read_text().replace(_IN_SANDBOX, str(stage)))
    _, _, body = read(stage / "bin" / "standin.sh").partition("\n")
    # -p: without the functions that the script exports, which would run here unrestricted
    _write(stage / "bin" / "standin.sh", f"#!{shutil.which('bash', path=PATH)} -p\n{body}")
    changes = {"PATH": f"{stage}/bin", "BASH_ENV": f"{stage}/bin/prelude.sh", "HOME": str(home)}
    return {**variables, **changes}


def _without_devices(text: str) -> str:
    """A script that writes into open descriptors in the place of devices."""
    kinds = contexts(text)

    def redirected(match: re.Match[str]) -> str:
        if kinds[match.start(2)] not in (BARE, NESTED):
            return match[0]
        descriptor = _OPEN[match[4]]
        both = match[1] == "&" or match[2] == ">&"
        return f">&{descriptor} 2>&{descriptor}" if both else f"{match[1]}>&{descriptor}"

    return _INTO_DEVICE.sub(redirected, text)


def has_proc() -> bool:
    """Whether there is a /proc as Linux has it, without which there is no sandbox and nobody knows who root is."""
    return _IDS.exists()


def is_root() -> bool:
    """Whether this is root and can become UNPRIVILEGED. Root of a user namespace with a single id is an ordinary user outside."""
    with _IDS.open() as lines:
        ids = [(int(first), int(count)) for first, _, count in (line.split() for line in lines)]
    return os.geteuid() == 0 and any(first <= UNPRIVILEGED < first + count for first, count in ids)


def missing_capabilities() -> list[str]:
    """Names of the capabilities that root lacks, as in a hardened container, and that become another user and remove that user's files
    afterwards; [] of a user who is not root."""
    if not is_root():
        return []
    status = dict(line.partition(":\t")[::2] for line in Path("/proc/self/status").read_text().splitlines())
    effective = int(status["CapEff"], 16)
    return [name for name, number in _CAPABILITIES.items() if not effective >> number & 1]


def read(path: Path) -> str:
    """The text of a file, whatever its bytes are: those that are not UTF-8 become surrogates."""
    return path.read_bytes().decode(errors="surrogateescape")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))


def _copy(name: str, folder: Path, changes: Mapping[str, str]) -> None:
    """A shell program of this folder with `changes` for what stands between @."""
    text = (HERE / name).read_text()
    for word, value in changes.items():
        text = text.replace(word, value)
    _write(folder / name, text)


def _answers(text: str, values: Mapping[str, str]) -> str:
    """What stand-ins print, as branches of a `case`: scripts check the version of xpk and ask gcloud for the project."""
    version = versions(text, {})[0].get("xpk", NEWEST)
    answers = {
        '"pip show xpk"* | "pip3 show xpk"* | "uv pip show xpk"*': f"Name: xpk\nVersion: {version}",
        '"gcloud config get-value project"* | "gcloud config get project"*': values.get("PROJECT_ID", ""),
        '"gcloud config get-value compute/zone"*': values.get("ZONE", ""),
    }
    return "\n".join(f"  {pattern}) echo {quoted(answer)} ;;" for pattern, answer in answers.items() if answer)
