"""Asks the hosts of a target before a run: whether they can be reached and could start it, and what they are."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from podwright import extras
from podwright.errors import UserError, counted
from podwright.rundir import Record
from podwright.storage.folder import require_folder
from podwright.targets.base import Remark, facts_in
from podwright.targets.hosts.package import pack_code
from podwright.targets.hosts.runner import HostProfile
from podwright.targets.hosts.transport import PORTS, Host, Trouble, after_setup, of_each, require_all

_LEAST_FREE = 10 << 30
_OLDEST = (3, 11)
_NO_PYTHON = """{{
code=$?
if ! command -v {0} > /dev/null; then printf 'exec: %s: not found\\n' {1} >&2
elif [ "$({0} -c 'print(6 * 7)' 2> /dev/null)" != 42 ]; then printf 'podwright: no Python interpreter: %s\\n' {1} >&2
fi
exit $code; }}"""
"""shell: names what is not there, or no Python"""
_PROBE = """
import glob, importlib.util, json, os, shutil, subprocess, sys, tempfile
folder, probe, stored, wants_gpus = sys.argv[1:]
def gpus():
    if shutil.which("nvidia-smi"):
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        return sum(line.startswith("GPU ") for line in listing.stdout.splitlines()) if listing.returncode == 0 else None
    return None if os.path.exists("/dev/dxg") else len(glob.glob("/dev/nvidia[0-9]*"))
os.makedirs(folder, exist_ok=True)
tempfile.NamedTemporaryFile(dir=folder).close()
lacks = [n for n in ("pydantic", "yaml", "psutil") if importlib.util.find_spec(n) is None]
plugin = any(importlib.util.find_spec(name) for name in wants_gpus.split(",") if name)
print(json.dumps({"host": "", "python": sys.version_info[:2], "lacks": lacks, "free": shutil.disk_usage(folder).free,
    "sees": not probe or os.path.exists(probe),
    "sees_storage": not stored or os.path.exists(stored), "gpus": gpus() if wants_gpus else 0, "plugin": plugin}))
"""


def check(profile: HostProfile, hosts: Sequence[Host], storage: str = "") -> list[Remark]:
    """What stands in the way of a run on the hosts as they are now. `storage`: a bucket, or a folder that the hosts must share."""
    if profile.runs:
        try:
            require_folder(Path(profile.runs), "runs")
        except UserError as e:
            return [Remark("error", e.what, e.fix)]
    folder = profile.runs or profile.folder
    home = profile.runs or profile.folder.removeprefix("~/")
    with _mark(profile.runs) as probe, _mark("" if "://" in storage else storage) as stored:
        script = shlex.join(
            ["-c", _PROBE, home, probe, stored, ",".join(extras.GPU_PLUGINS) if profile.gpus_per_node else ""]
        )
        command = prepared(
            profile,
            f"cd && {{ (exec {profile.python_word} {script}) || {_NO_PYTHON.format(profile.python_word, shlex.quote(profile.python))}; }}",
        )
        answers = of_each(hosts, lambda _, host: host.call(command))
    remarks = []
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, Trouble):
            remarks.append(Remark("error", answer.what, answer.fix))
        elif not (facts := facts_in(answer)):
            what = f"host {host.name} answers nothing: setup ends the shell, or python={profile.python} is no Python"
            remarks.append(Remark("error", what, "correct setup and python of the target"))
        else:
            remarks += _of_host(profile, host.name, folder, storage, facts[-1])
    if all(remark.of_jax for remark in remarks):
        remarks.append(Remark("info", f"{len(hosts)} host(s) answer, with a Python and a folder for runs"))
    return remarks


@contextlib.contextmanager
def _mark(folder: str) -> Iterator[str]:
    """A file that exists in `folder` meanwhile, for hosts to look for; "" where none can be written: other checks name why."""
    path = Path(folder) / f".podwright-{secrets.token_hex(4)}"
    if not folder or not path.parent.is_dir():
        yield ""
        return
    try:
        path.touch()
    except OSError:
        yield ""
        return
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _of_host(profile: HostProfile, name: str, folder: str, storage: str, facts: Record) -> list[Remark]:
    remarks = []
    if tuple(facts["python"]) < _OLDEST:
        version = ".".join(map(str, facts["python"]))
        remarks.append(
            Remark(
                "error",
                f"host {name} has Python {version}, and 3.11 or newer is needed",
                "set python of the target to a newer interpreter",
            )
        )
    if facts["lacks"]:
        fix = f"install the trainer's packages there ({extras.pip('torch')}), or set python of the target to theirs"
        remarks.append(Remark("error", f"the Python of host {name} lacks {', '.join(facts['lacks'])}", fix))
    if facts["free"] < _LEAST_FREE:
        free = f"host {name} has {facts['free'] / (1 << 30):.1f} GiB of free disk space for {folder}"
        remarks.append(
            Remark("warning", free, "free some: a checkpoint holds weights and optimizer state, and several are kept")
        )
    if not facts["sees"]:
        fix = "mount the same folder there, or remove runs from the target: files are then copied to the hosts"
        remarks.append(
            Remark("error", f"host {name} does not see a file that this machine has written in {folder}", fix)
        )
    if not facts["sees_storage"]:
        what = f"host {name} does not see a file that this machine has written in storage={storage}: the folder there is another one"
        remarks.append(Remark("error", what, "mount the same folder there, or correct storage of the target"))
    if profile.gpus_per_node and not facts["plugin"]:
        remarks.append(
            Remark(
                "error", f"the Python of host {name} has no jax for NVIDIA GPUs", extras.gpu_fix(" there"), of_jax=True
            )
        )
    return remarks + _gpus(name, profile.gpus_per_node, facts["gpus"])


def _gpus(name: str, wanted: int, there: int | None) -> list[Remark]:
    """`there`: None where the host's NVIDIA driver does not list them."""
    if there is None:
        what = f"the GPUs of host {name} cannot be counted: nvidia-smi fails there"
        return [Remark("inconclusive", what, "type nvidia-smi there, which names the cause")]
    if there >= wanted:
        return []
    what = f"host {name} has {counted(there, 'GPU')}, and gpus_per_node={wanted}"
    return [Remark("error", what, f"set gpus_per_node={there} in the target, or check nvidia-smi on the host")]


def probe_hosts(
    profile: HostProfile, hosts: Sequence[Host], address: str, arguments: list[str], target: str
) -> list[Record]:
    """Facts of each host, of the names by which it knows the others and of the network between them; all hosts at the same time."""
    home = f"{profile.folder.removeprefix('~/')}/check-{secrets.token_hex(4)}"
    places = [address or hosts[0].address, *(host.address for host in hosts[1:])]
    meet = f"{places[0]}:{PORTS.start + secrets.randbelow(len(PORTS))}"
    if not profile.runs:  # runs will not be where they are kept here
        arguments = [
            profile.folder.removeprefix("~/") if before == "--folder" else word
            for before, word in pairwise(["", *arguments])
        ]
    given = [*arguments, *(word for place in places for word in ("--peer", place)), "--meet", meet]

    def ask(number: int, host: Host) -> Record:
        path = ""
        if not profile.runs:
            host.ship(home, pack_code)
            path = f"export PYTHONPATH={'' if home.startswith('/') else '$PWD/'}{shlex.quote(home)}/code; "
        command = f"{profile.python_word} -m podwright.train facts --rank {number} {shlex.join(given)}"
        try:
            facts = facts_in(host.call(prepared(profile, f"cd && {path}exec {command}"), limit_s=300))
        finally:
            if not profile.runs:
                host.call(f"rm -rf {shlex.quote(home)}")
        if not facts:
            raise Trouble(f"host {host.name} did not report its devices", f"type podwright target check {target}")
        return facts[-1] | {"host": host.name, "meet": places[0]}

    return require_all(of_each(hosts, ask))


def prepared(profile: HostProfile, command: str) -> str:
    """`command` after the target's lines of setup, in the shell that they are for."""
    return f"exec bash -c {shlex.quote(after_setup(profile.setup, command))}"
