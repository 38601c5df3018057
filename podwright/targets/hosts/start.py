"""`python -m podwright.targets.hosts.start ATTEMPT`: bring an attempt to its hosts and start it there; submit.json says how that went.

A process of its own, so that a launcher that is killed meanwhile leaves no half of it behind.
"""

from __future__ import annotations

import importlib
import json
import secrets
import shlex
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from podwright.errors import UserError, from_os
from podwright.rundir import Ending, Record, RunDir, recipe_of, write_json
from podwright.shell import Shell
from podwright.storage import inputs
from podwright.targets.hosts.package import pack_code
from podwright.targets.hosts.transport import LATER_ATTEMPT, NOT_STARTED, Host, Trouble, of_each, require_all

# Of the run's directory what a trainer neither reads nor writes, earlier attempts, and copies of what is in the storage.
_STAYS = (
    "journal.jsonl",
    "launcher.lock",
    "attended.lock",
    "trainer.lock",
    "report",
    "trackers",
    "latest",
    "attempts",
    "inputs",
)


def main() -> int:
    folder = Path(sys.argv[1])
    order = json.loads((folder / "order.json").read_text())
    shell = Shell()
    connect = importlib.import_module(order["transport"]).connect
    hosts = [Host(shell, connect(record)) for record in order["handle"]["hosts"]]
    outcome: Record = {}
    try:
        paths = [] if order["handle"]["shared"] else _inputs(order)
        answers = of_each(hosts, lambda number, host: _bring(number, host, folder, order, paths))
        outcome["unreached"] = [h.name for h, answer in zip(hosts, answers, strict=True) if isinstance(answer, Trouble)]
        require_all(answers)
        if order.get("check") and not (folder / "stop").exists():
            importlib.import_module(order["check"]).check(hosts, order)
        start(hosts, folder, order, shell)
    except (UserError, OSError) as fault:
        e = fault if isinstance(fault, UserError) else from_os(fault)
        if e is None:
            raise
        ending = Ending.BAD_INPUT
        if isinstance(e, Trouble):
            ending = e.ending
            print(e.stderr)  # for whoever reads start.txt
        write_json(folder / "submit.json", outcome | {"ending": str(ending), "detail": e.what, "fix": e.fix})
        return 1
    write_json(folder / "submit.json", outcome)
    return 0


def start(hosts: Sequence[Host], folder: Path, order: Record, shell: Shell) -> None:
    """Start a keeper on every host, unless somebody asked for a stop."""
    attempt = shlex.quote(order["handle"]["attempt_dir"])
    stdin = json.dumps({"token": secrets.token_hex(16), "env": shell.variables(order["env"])}) + "\n"
    if (folder / "stop").exists():
        return

    def begin(number: int, host: Host) -> None:
        # Exit code 0 without a record: setup ended the shell, or what was started is no Python.
        kept = f"{{ [ -e host-{number}.json ] || {{ echo {shlex.quote(NOT_STARTED)} >&2; exit 1; }}; }}"
        print(host.call(f"cd {attempt} && bash start.sh {number} && {kept}", stdin, None), end="")

    require_all(of_each(hosts, begin))
    if (folder / "stop").exists():
        require_all(of_each(hosts, lambda number, host: host.call(f"touch {attempt}/stop")))


def _bring(number: int, host: Host, folder: Path, order: Record, paths: list[str]) -> None:
    """First an end to what an earlier attempt, given up while nobody could reach this host, may have left there. Nothing where a later one
    is: this machine was asleep while another one went on with the run."""
    handle = order["handle"]
    run = RunDir(Path(handle["run_dir"]))
    marks = f"{shlex.quote(str(Path(handle['attempt_dir']).parent))}/*/host-{number}.sh"
    later = f'[ "${{folder##*/}}" -le {folder.name} ] || {{ echo "{LATER_ATTEMPT} ${{folder##*/}}" >&2; exit 1; }}'
    end = f'{later}; (cd "$folder" && sh "${{mark##*/}}" end)'
    host.call(f'for mark in {marks}; do folder=${{mark%/*}}; [ ! -e "$mark" ] || {{ {end}; }}; done')
    if handle["shared"]:
        return
    work = f"work/runs/{run.name}"

    def pack(tar: tarfile.TarFile) -> None:
        pack_code(tar)
        for path in sorted(run.path.iterdir()):
            if path.name not in _STAYS:
                tar.add(path, f"{work}/{path.name}")
        for name in order["files"]:
            tar.add(folder / name, f"{work}/attempts/{folder.name}/{name}")
        for name in paths:
            tar.add(Path(order["cwd"]) / name, f"work/{name}")

    host.ship(handle["home"], pack)


def _inputs(order: Record) -> list[str]:
    run = RunDir(Path(order["handle"]["run_dir"]))
    kept = inputs.uploaded_keys(run)
    values = {key: value for key, value in inputs.named(recipe_of(run)).items() if key not in kept}
    return paths_below(values, Path(order["cwd"]))


def paths_below(values: dict[str, str], cwd: Path) -> list[str]:
    """Of what a recipe names, by its keys, the files and folders below `cwd`, where the run was started."""
    paths = []
    for key, value in values.items():
        if value.startswith(("/", "~")) or not (cwd / value).exists():
            continue
        if ".." in Path(value).parts:
            raise Trouble(
                f"{key}={value} is outside {cwd}, and only files below that folder are copied to the hosts",
                "move it there, or give an absolute path that exists on every host",
            )
        paths.append(value)
    return paths


if __name__ == "__main__":
    sys.exit(main())
