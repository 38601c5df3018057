"""Lives of a run on a simulated cloud whose launchers are killed: kills by phase, faults of the cloud, and what was wrong in the end.

python bench/chaos.py live 2000-2059 --rows ROWS      append a row of each life to the file ROWS
python bench/chaos.py live 3000-3059 --on gke --rows ROWS      the same on GKE
python bench/chaos.py live --lives 60 --first 7000 --on gke --rows ROWS --out FILE      the same of so many seeds; add them up in one JSON
python bench/chaos.py train 1-10 --rows ROWS          the same with the real trainer, after one undisturbed life
python bench/chaos.py table ROWS... [--out bench/results/chaos-DATE.json]      add the rows of one cloud up; of GKE, chaos_gke-DATE.json

A seed decides all of a life but how fast the machine is. Needs root, sshd and network namespaces (lab).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stamp import keep, stamp

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


TRAINERS = ("stand-in", "GRPO")


def seeds(words: list[str]) -> Iterator[int]:
    """Of words such as 7 and 2000-2059."""
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def live(words: list[str], rows: Path, kind: str, out: Path | None) -> int:
    from tests.e2e import chaos_gke, chaos_vms
    from tests.e2e.fork_server import ForkServer

    live = {"tpu-vm": chaos_vms.live, "gke": chaos_gke.live}[kind]
    lives, failed = list[dict[str, Any]](), 0
    with ForkServer() as forks:
        for seed in seeds(words):
            with tempfile.TemporaryDirectory(prefix=f"chaos-{seed}-", ignore_cleanup_errors=True) as folder:
                life = live(seed, Path(folder), forks)
            lives.append(life.document())
            if noted(lives[-1], rows):
                failed += 1
                print(f"seed {seed} failed: {life.faults}\nrepeat it: {life.again}", file=sys.stderr, flush=True)
            if out:
                out.write_text(json.dumps({**stamp(__file__), **summary(lives, kind)}, indent=1) + "\n")
    return 1 if failed else 0


def train(words: list[str], rows: Path) -> int:
    from tests.e2e import chaos_training
    from tests.e2e.chaos_script import Script

    def lived(script: Script, expected: Any = None) -> tuple[dict[str, Any], Any]:
        with tempfile.TemporaryDirectory(prefix=f"chaos-{script.seed}-") as folder:
            life, trained = chaos_training.train(script, Path(folder), expected)
        return life.document(), trained

    document, expected = lived(Script.undisturbed())
    print(json.dumps(document), flush=True)
    if expected is None:
        return 1
    failed = 0
    for seed in seeds(words):
        failed += noted(lived(Script.of_training(seed), expected)[0], rows)
    return 1 if failed else 0


def noted(document: dict[str, Any], rows: Path) -> bool:
    """Append a life to the file `rows`; whether anything was wrong."""
    commit = stamp(__file__)
    row = json.dumps({"commit": commit["commit"], "dirty": commit["dirty"], **document})
    with rows.open("a") as f:
        f.write(row + "\n")
    print(row, flush=True)
    return bool(document["faults"])


def summary(lives: list[dict[str, Any]], cloud: str) -> dict[str, Any]:
    """Of the newest row of each life."""
    kinds, kills = (of_gke if cloud == "gke" else of_vms)(lives)
    return {
        "lives": {kind: figures(of_kind) for kind, of_kind in kinds.items() if of_kind} | {"all": figures(lives)},
        **kills,
        "faults_by_kind": dict(Counter(kind for x in lives for kind in x["disturbances"]).most_common()),
        "verbs": dict(Counter(verb for x in lives for verb in x["verbs"])),
        "disturbances": by_kind(lives),
        **{name: sum(x.get(name, 0) for x in lives) for name in ("left", "foreign", "lost", "doubled")},
        "wrong": [{"seed": x["seed"], "faults": x["faults"], "repeat": x.get("again")} for x in lives if x["faults"]],
    }


def by_kind(lives: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How often each kind of disturbance was drawn and took place, and how many calls or requests failed while it lasted."""
    counts = {key: Counter(kind for x in lives for kind in x.get(key, ())) for key in ("drawn", "came")}
    refused = Counter[str]()
    for x in lives:
        refused.update(x.get("refused_calls", {}))
    return {
        kind: {"drawn": counts["drawn"][kind], "came": counts["came"][kind], "refused_calls": refused[kind]}
        for kind in sorted(counts["drawn"])
    }


def of_vms(lives: list[dict[str, Any]]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Lives by kind, and the kills of each phase by trainer."""
    from tests.e2e.chaos_phases import VM_PHASES

    killed = {trainer: Counter(p for x in lives if x["trainer"] == trainer for p in x["kills"]) for trainer in TRAINERS}
    kinds = {
        "stand-in, checkpoints on the hosts": [x for x in lives if x["trainer"] == "stand-in" and not x["bucket"]],
        "stand-in, checkpoints in a bucket": [x for x in lives if x["trainer"] == "stand-in" and x["bucket"]],
        "GRPO in four processes, checkpoints in a bucket": [x for x in lives if x["trainer"] == "GRPO"],
    }
    return kinds, {
        "kills_by_phase": {str(phase): [killed[trainer][phase] for trainer in TRAINERS] for phase in VM_PHASES}
    }


def of_gke(lives: list[dict[str, Any]]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """Lives by where their node pools come from; kills by phase, and those around a line of the journal by its event."""
    from tests.e2e.chaos_gke_script import CAPACITIES, CLOUDY_EVENTS, EVENTS
    from tests.e2e.chaos_phases import GKE_PHASES

    killed = Counter(kill for x in lives for kill in x["kills"])
    events = {e: [killed[f"before:{e}"], killed[f"after:{e}"]] for e in (*EVENTS, *CLOUDY_EVENTS)}
    phases = {str(phase): killed[phase] for phase in GKE_PHASES}
    kinds = {capacity: [x for x in lives if x["capacity"] == capacity] for capacity in CAPACITIES}
    return kinds, {"kills_by_phase": phases, "kills_by_event": events}


def figures(lives: list[dict[str, Any]]) -> dict[str, int]:
    wrong = [fault for x in lives for fault in x["faults"]]
    return {
        "lives": len(lives),
        "kills": sum(len(x["kills"]) for x in lives),
        "cloud_faults": sum(len(x["disturbances"]) for x in lives),
        "launchers": sum(x["launchers"] for x in lives),
        "attempts": sum(x["attempts"] for x in lives),
        "slices": sum(x["slices"] for x in lives),
        "recomputed": sum(x["recomputed"] for x in lives),
        "recomputed_at_most": sum(x["explained"] for x in lives),
        "slices_left": sum(fault.startswith(("left in the cloud", "clean left", "stop left")) for fault in wrong),
        "others_changed": sum(fault.startswith("of somebody else") for fault in wrong),
        "wrong_records": sum(fault.startswith(("the final record", "the last state")) for fault in wrong),
        "stuck": sum(fault.startswith("stuck") or "did not finish" in fault for fault in wrong),
        "wrong": sum(bool(x["faults"]) for x in lives),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("live", "train"):
        living = verbs.add_parser(verb)
        living.add_argument("seeds", nargs="*" if verb == "live" else "+")
        living.add_argument("--rows", type=Path, required=True)
        if verb == "live":
            living.add_argument("--on", choices=("tpu-vm", "gke"), default="tpu-vm")
            living.add_argument("--lives", type=int, default=0, help="so many, from the seed --first on")
            living.add_argument("--first", type=int, default=7000)
            living.add_argument("--out", type=Path, help="counts of these lives in one JSON")
    adding = verbs.add_parser("table")
    adding.add_argument("rows", type=Path, nargs="+")
    adding.add_argument("--out", type=Path)
    args = parser.parse_args()
    from lab.cloud import missing

    if args.verb != "table" and (reason := missing()):
        parser.error(reason)
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)  # an object that is not there is no error
    if args.verb == "live":
        more = [f"{args.first}-{args.first + args.lives - 1}"] if args.lives else []
        return live([*args.seeds, *more], args.rows, args.on, args.out)
    if args.verb == "train":
        return train(args.seeds, args.rows)
    rows = [json.loads(line) for path in args.rows for line in path.read_text().splitlines()]
    lives = list({(row["trainer"], row["seed"]): row for row in rows}.values())
    (cloud,) = {row["cloud"] for row in rows}
    of = Counter(f"{row['commit']}{' with changes' if row['dirty'] else ''}" for row in lives)
    return keep({**stamp(__file__), "lives_by_commit": dict(of), **summary(lives, cloud)}, args.out)


if __name__ == "__main__":
    sys.exit(main())
