"""How long a run goes on after it was asked to stop, by kind and phase: real runs on this machine, stopped by `podwright stop`.

    python bench/stop_seconds.py [--out bench/results/FILE.json] [--only grpo]

A phase is entered when the run's events say so; of a first step, no figures are there yet. Seconds are from the signal that the trainer gets
to its own last record, by the run's journal; beside them those of an ordinary step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_check.kinds import SETTINGS
from stamp import keep, stamp

PATIENCE_S = 120
# Evaluations and warm starts are made long, so that a stop that waited for their end would show.
LONG = {
    "grpo": (
        "warm_start.max_steps=200",
        "evaluation.every_n_steps=4",
        "data.num_test=400",
        "checkpoint.every_n_steps=1",
    ),
    "pretrain": ("evaluation.every_n_steps=4", "evaluation.num_batches=100", "checkpoint.every_n_steps=1"),
    "phase1": ("evaluation.every_n_steps=4", "data.num_test=200", "checkpoint.every_n_steps=1"),
    "phase2": (
        "evaluation.every_n_steps=4",
        "data.num_test=60",
        "evaluation.max_new_tokens=64",
        "checkpoint.every_n_steps=1",
    ),
}
PHASES = {
    "grpo": ("loading", "warm_start", "first step", "step", "evaluation"),
    "pretrain": ("loading", "first step", "step", "evaluation"),
    "phase1": ("loading", "step", "evaluation"),
    "phase2": ("loading", "step", "evaluation"),
}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


def reached(folder: Path, kind: str, phase: str) -> Callable[[], bool]:
    """Whether the run is in the phase, by its own records."""

    def now() -> bool:
        phases = [e["phase"] for e in lines(folder / "events.jsonl") if e.get("event") == "phase"]
        stage = "grpo" if kind == "grpo" else ""
        steps = [m["step"] for m in lines(folder / "metrics.jsonl") if not stage or m.get("stage") == stage]
        if phase == "first step":
            return bool(phases) and phases[-1] not in ("loading", "warm_start", "evaluation") and not steps
        if phase == "step":
            return bool(steps) and steps[-1] >= 2
        # the evaluation before training is the same code
        return bool(phases) and phases[-1].startswith(phase)

    return now


def stopped(kind: str, phase: str, runs: Path) -> dict[str, Any]:
    recipe, *settings = SETTINGS[kind]
    name = f"{kind}-{phase.replace(' ', '-')}"
    # Programs are compiled anew: a first step from the cache is over before it is seen.
    environment = os.environ | {"PODWRIGHT_RUNS": str(runs), "PODWRIGHT_CACHE": str(runs / f"{name}-cache")}
    podwright = [sys.executable, "-m", "podwright"]
    if phase == "first step":
        settings = [s for s in settings if not s.startswith("warm_start.")]
        settings += ["warm_start=null"] if kind == "grpo" else []
    else:
        settings += LONG[kind]
    settings.append("training.max_steps=2000")
    settings = list({setting.partition("=")[0]: setting for setting in settings}.values())  # the last of each key
    argv = [*podwright, "run", recipe, *settings, "--on", "local", "--name", name, "--detach"]
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    folder, deadline = runs / name, time.monotonic() + PATIENCE_S
    now = reached(folder, kind, phase)
    while not now():
        if time.monotonic() > deadline:
            return {"kind": kind, "phase": phase, "seconds": None, "why": "the phase did not come"}
        time.sleep(0.01)
    subprocess.run([*podwright, "stop", name], env=environment, stdout=subprocess.DEVNULL, check=False)
    signalled = next(e["time"] for e in lines(folder / "journal.jsonl") if e["event"] == "signalled")
    end = json.loads((folder / "attempts/1/exit.json").read_text())
    took = [m["step_s"] for m in lines(folder / "metrics.jsonl") if "step_s" in m]
    return {
        "kind": kind,
        "phase": phase,
        "seconds": round(end["time"] - signalled, 2),
        "ending": end["ending"],
        "step_s": round(sorted(took)[len(took) // 2], 3) if took else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, phases in PHASES.items():
            for phase in phases:
                if options.only in f"{kind} {phase}":
                    results.append(stopped(kind, phase, Path(folder)))
                    print(results[-1], file=sys.stderr, flush=True)
    return keep({**stamp(__file__), "stops": results}, options.out)


if __name__ == "__main__":
    sys.exit(main())
