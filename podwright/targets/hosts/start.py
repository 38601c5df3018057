"""`python -m podwright.targets.hosts.start ATTEMPT`: bring an attempt to its hosts and start it there; submit.json says how that went.

A process of its own, so that a launcher that is killed meanwhile leaves no half of it behind.
"""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import tarfile
from pathlib import Path
from typing import Any

from podwright.rundir import RunDir, recipe_of, write_json
from podwright.shell import Shell
from podwright.targets.hosts.host import Host, Trouble, of_each, pack_code

# Of the run's directory what a trainer neither reads nor writes, and earlier attempts.
_STAYS = ("journal.jsonl", "launcher.lock", "trainer.lock", "report", "trackers", "latest", "attempts")


def main() -> int:
    folder = Path(sys.argv[1])
    order = json.loads((folder / "order.json").read_text())
    try:
        start(folder, order)
    except Trouble as e:
        print(e.said)  # for whoever looks into ssh.txt
        write_json(folder / "submit.json", {"ending": str(e.ending), "detail": e.what, "fix": e.fix})
        return 1
    write_json(folder / "submit.json", {})
    return 0


def start(folder: Path, order: dict[str, Any]) -> None:
    handle, shell = order["handle"], Shell()
    hosts = [Host(shell, name, handle["ssh"]) for name in handle["hosts"]]
    run = RunDir(Path(handle["run_dir"]))
    inputs = [] if handle["shared"] else _inputs(recipe_of(run), Path(order["cwd"]))
    _all(of_each(hosts, lambda number, host: _bring(number, host, run, folder, order, inputs)))
    given = json.dumps({"token": secrets.token_hex(16), "env": shell.variables(order["env"])})
    attempt = shlex.quote(handle["attempt_dir"])
    if (folder / "stop").exists():
        return
    _all(
        of_each(
            hosts,
            lambda number, host: print(
                host.call(f"cd {attempt} && exec bash start.sh {number}", given + "\n", None), end=""
            ),
        )
    )
    if (folder / "stop").exists():
        of_each(hosts, lambda number, host: host.call(f"touch {attempt}/stop"))


def _all(answers: list[Any]) -> None:
    if failed := next((answer for answer in answers if isinstance(answer, Trouble)), None):
        raise failed


def _bring(number: int, host: Host, run: RunDir, folder: Path, order: dict[str, Any], inputs: list[str]) -> None:
    """First an end to what an earlier attempt, given up while nobody could reach this host, may have left there."""
    handle = order["handle"]
    marks = f"{shlex.quote(str(Path(handle['attempt_dir']).parent))}/*/host-{number}.sh"
    host.call(f'for one in {marks}; do [ ! -e "$one" ] || (cd "${{one%/*}}" && sh "${{one##*/}}" end); done')
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
        for name in inputs:
            tar.add(Path(order["cwd"]) / name, f"work/{name}")

    host.ship(handle["home"], pack)


def _inputs(recipe: dict[str, Any], cwd: Path) -> list[str]:
    """Files and folders that the recipe names from where the run was started."""
    named = {
        f"{section}.{key}": value
        for section in ("model", "data", "aligner", "encoders")
        for key, value in (recipe.get(section) or {}).items()
        if isinstance(value, str) and (key == "source" or key.endswith("_weights"))
    }
    named |= {
        f"rewards[{n}].function": one["function"].partition(":")[0] for n, one in enumerate(recipe.get("rewards") or [])
    }
    found = []
    for key, value in named.items():
        if not value or value.startswith(("/", "~")) or not (cwd / value).exists():
            continue
        if ".." in Path(value).parts:
            raise Trouble(
                f"{key}={value} is above the folder that is brought to the hosts",
                "give a path that every host has, beginning with /",
            )
        found.append(value)
    return found


if __name__ == "__main__":
    sys.exit(main())
