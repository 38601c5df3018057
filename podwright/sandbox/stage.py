"""The folder that a sandbox is built from: the script with the files beside it, stand-ins for programs, and variables."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from podwright.recipe.script_text import is_variable, quoted, with_placeholders, with_values

HERE = Path(__file__).parent
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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
# Whom root becomes, because root has no process limit and may read what others have hidden. Nobody else has this id: systemd's end
# at 65519, and 65534 is that of daemons.
UNPRIVILEGED = 65533
_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_SETGID": 6, "CAP_SETUID": 7}  # of linux/capability.h
FILES, FILE_SIZE = 200, 1 << 20  # of the files beside a script that go with it
_READ_ONLY = {"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"}  # bash refuses to set them
_FIXED = {"HOME", "PATH", "BASH_ENV"}  # the sandbox needs its own


@dataclass(frozen=True)
class Surroundings:
    """What a script sees of where it runs."""

    user: str
    home: str
    at_s: int  # seconds since 1970, the time that `date` tells
    timezone: str

    def variables(self) -> dict[str, str]:
        """The variables of every script."""
        return {
            "HOME": self.home,
            "USER": self.user,
            "LOGNAME": self.user,
            "SHELL": "/bin/bash",
            "PATH": f"/podwright/bin:{PATH}",
            "LANG": "C.UTF-8",
            "TZ": self.timezone,
            "TMPDIR": "/tmp",
            "TERM": "dumb",
            "BASH_ENV": "/podwright/bin/prelude.sh",
        }


def fill(stage: Path, script: Path, original: str, values: Mapping[str, str], seen: Surroundings) -> dict[str, str]:
    """Write into the empty folder `stage` what `enter.sh` needs; the placeholders that `original`, the text of `script`, still has."""
    recipe, programs = stage / "recipe", stage / "bin"
    for folder in (recipe, programs, stage / "root"):
        folder.mkdir()
    text, placeholders = with_placeholders(original, values)
    for path in _siblings(script):
        if path.suffix == ".sh":
            _write(recipe / path.name, with_values(with_placeholders(read(path), values)[0], values))
        else:
            shutil.copyfile(path, recipe / path.name)
    _write(recipe / script.name, with_values(text, values))
    shutil.copyfile(HERE / "enter.sh", stage / "enter.sh")
    shutil.copyfile(HERE / "prelude.sh", programs / "prelude.sh")
    body = (HERE / "standin.sh").read_text().replace("@PATH@", PATH).replace("@NOW@", str(seen.at_s))
    _write(programs / "standin", f"#!{shutil.which('sh')}\n{body.replace('@ANSWERS@', _answers(text, values))}")
    (programs / "standin").chmod(0o755)
    (stage / "random").write_bytes(hashlib.shake_256(b"podwright").digest(1 << 16))
    for name in (*STANDINS, "date"):
        (programs / name).symlink_to("standin")
    given = {name: value for name, value in values.items() if is_variable(name) and name not in _READ_ONLY | _FIXED}
    variables = {**seen.variables(), **given}
    _write(stage / "environment", "".join(f"{name}={value}\0" for name, value in variables.items()))
    if is_root():
        for path in (stage, *stage.rglob("*")):
            os.chown(path, UNPRIVILEGED, UNPRIVILEGED, follow_symlinks=False)
    return placeholders


def is_root() -> bool:
    """Whether this is root and can become UNPRIVILEGED. Root of a user namespace with a single id is an ordinary user outside."""
    with open("/proc/self/uid_map") as lines:
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


def _siblings(script: Path) -> Iterator[Path]:
    """Files beside `script` that go with it: no hidden ones, no links, none that is large."""
    if not os.access(script.parent, os.R_OK):
        return
    paths = [path for path in script.parent.iterdir() if not path.name.startswith(".") and path.name != script.name]
    for path in sorted(paths)[:FILES]:
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_size <= FILE_SIZE and os.access(path, os.R_OK):
            yield path


def _answers(text: str, values: Mapping[str, str]) -> str:
    """What stand-ins print, as branches of a `case`: scripts check the version of xpk and ask gcloud for the project."""
    version = re.search(r"\bxpk==([\w.]+)", text)
    answers = {
        '"pip show xpk"* | "pip3 show xpk"* | "uv pip show xpk"*': f"Name: xpk\nVersion: {version[1] if version else '1.16.0'}",
        '"gcloud config get-value project"* | "gcloud config get project"*': values.get("PROJECT_ID", ""),
        '"gcloud config get-value compute/zone"*': values.get("ZONE", ""),
    }
    return "\n".join(f"  {pattern}) echo {quoted(answer)} ;;" for pattern, answer in answers.items() if answer)
