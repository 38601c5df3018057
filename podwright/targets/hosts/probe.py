"""Asks the hosts of a target before a run: whether they can be reached and could start it, and what they are."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.storage.folder import file_on_path
from podwright.targets.base import Remark, facts_in
from podwright.targets.hosts.package import pack_code
from podwright.targets.hosts.runner import HostProfile
from podwright.targets.hosts.transport import PORTS, Host, Trouble, of_each, setup_failed

_LEAST_FREE = 10 << 30
_SKEW_S = 10.0
_OLDEST = (3, 11)
_PROBE = """
import importlib.util, json, os, shutil, sys, tempfile, time
folder, probe = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
tempfile.NamedTemporaryFile(dir=folder).close()
lacks = [n for n in ("pydantic", "yaml", "psutil") if importlib.util.find_spec(n) is None]
print(json.dumps({"host": "", "python": sys.version_info[:2], "lacks": lacks, "free": shutil.disk_usage(folder).free,
    "time": time.time(), "sees": not probe or os.path.exists(probe)}))
"""


def check(profile: HostProfile, hosts: Sequence[Host]) -> list[Remark]:
    """What stands in the way of a run on the hosts as they are now."""
    probe = Path(profile.runs) / f".podwright-{secrets.token_hex(4)}" if profile.runs else None
    if probe is not None:
        if file := file_on_path(probe.parent):
            return [
                Remark("error", f"runs={profile.runs}: {file} is a file, not a folder", "correct runs of the target")
            ]
        if not probe.parent.is_dir():
            fix = f"type `mkdir -p {shlex.quote(profile.runs)}`, or correct runs of the target"
            return [Remark("error", f"runs={profile.runs}: there is no such folder here", fix)]
        probe.touch()
    folder = profile.runs or profile.folder
    script = shlex.join(["-c", _PROBE, profile.runs or profile.folder.removeprefix("~/"), str(probe or "")])
    begin = time.time()
    try:
        answers = of_each(
            hosts, lambda _, host: facts_in(host.call(prepared(profile, f"cd && exec {profile.python_word} {script}")))
        )
    finally:
        if probe is not None:
            probe.unlink()
    remarks, took = [], time.time() - begin
    for host, answer in zip(hosts, answers, strict=True):
        if isinstance(answer, Trouble):
            remarks.append(Remark("error", answer.what, answer.fix))
        elif answer:
            remarks += _of_host(host.name, folder, answer[-1])
            skew = abs(answer[-1]["time"] - begin)
            if skew > _SKEW_S + took:
                remarks.append(
                    Remark(
                        "warning",
                        f"the clocks of host {host.name} and of this machine differ by {skew:.0f} s",
                        "synchronize both with an NTP server",
                    )
                )
    return remarks or [Remark("info", f"{len(hosts)} host(s) answer and can start a run")]


def _of_host(name: str, folder: str, facts: Record) -> list[Remark]:
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
        fix = "install the trainer's packages there (pip install -e '.[torch]' in podwright's clone), or set python of the target to theirs"
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
    return remarks


def probe_hosts(profile: HostProfile, hosts: Sequence[Host], address: str, arguments: list[str]) -> list[Record]:
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
            raise Trouble(
                f"host {host.name} did not report its devices",
                "type podwright target check NAME, with the name of the target",
            )
        return facts[-1] | {"host": host.name}

    answers = of_each(hosts, ask)
    for answer in answers:
        if isinstance(answer, Trouble):
            raise UserError(answer.what, answer.fix)
    return [answer for answer in answers if not isinstance(answer, Trouble)]


def prepared(profile: HostProfile, command: str) -> str:
    """`command` after the target's lines of setup, in the shell that they are for."""
    failed = (
        f"{{ {line}\n}} < /dev/null >&2 || {{ echo {setup_failed(line)} >&2; exit 1; }}" for line in profile.setup
    )
    return f"exec bash -c {shlex.quote(chr(10).join([*failed, command]))}"
