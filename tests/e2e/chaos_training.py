"""Lives in which the real trainer trains: the tiny GRPO recipe as four processes on hosts that share nothing but an emulated bucket."""

import contextlib
import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from lab.bucket import EmulatedBucket
from lab.gcloud.control import Gcloud
from podwright.rundir import RunDir, read_jsonl
from podwright.storage.base import COMMITTED
from tests.e2e import trainer
from tests.e2e.chaos import Disturbed, Setting
from tests.e2e.chaos_life import Life
from tests.e2e.chaos_phases import Observer
from tests.e2e.chaos_script import Script
from tests.e2e.chaos_vms import VmCloud, clouds, on_hosts
from tests.e2e.test_tpu_training import PATIENCE, STEPS, TRAINED, TrainingBench

LIFE_LIMIT_S = 1500.0
STAGE, WARM_STEPS = "grpo", 3
"""whose steps are saved; those of the warm start are taken again where no checkpoint followed them"""


@dataclass(frozen=True)
class Trained:
    """What a run came to: every figure that does not depend on the clock, and the bytes of its weights."""

    figures: dict[str, list[dict[str, Any]]]
    weights: bytes


class TrainingFacts:
    """What the trainer has done, from the disks of first hosts, which outlive them, and from the bucket; a step of an attempt that was preempted
    may be in no other record."""

    def __init__(self, gcloud: Gcloud, bucket: EmulatedBucket) -> None:
        self._gcloud, self._bucket = gcloud, bucket
        self.taken: dict[int, set[tuple[str, int]]] = {}
        """by attempt: stage and step"""
        self.complete: dict[int, int] = {}
        """the newest complete checkpoint that there was while an attempt was the newest"""

    def committed(self) -> bool:
        """Whether a checkpoint is complete."""
        return bool(self._checkpoints()[1])

    def __call__(self) -> list[dict[str, Any]]:
        facts: list[dict[str, Any]] = []
        unfinished, complete = self._checkpoints()
        for run in on_hosts(self._gcloud.root, "r", "*-w-0"):
            for record in read_jsonl(run / "metrics.jsonl"):
                self.taken.setdefault(record["attempt"], set()).add((record["stage"], record["step"]))
            for folder in sorted((run / "attempts").glob("[0-9]*"), key=lambda path: int(path.name)):
                number = int(folder.name)
                if any(record["attempt"] == number for record in read_jsonl(run / "events.jsonl")):
                    facts.append({"attempt": number, "what": "saving" if unfinished else "started", "step": 0})
                if (folder / "exit.json").exists():
                    facts.append({"attempt": number, "what": "ended", "step": 0})
        if facts:
            self.complete[max(fact["attempt"] for fact in facts)] = max(complete, default=0)
        return facts

    def _checkpoints(self) -> tuple[set[int], set[int]]:
        """The steps of those that are being written, and of those that are complete."""
        parts = [name.partition("/checkpoints/")[2].split("/") for name in self._bucket.names("runs/")]
        complete = {int(part[0]) for part in parts if part[0].isdigit() and part[1:] == [COMMITTED]}
        return {int(part[0]) for part in parts if part[0].isdigit()} - complete, complete

    def judge(self, run: RunDir, life: Life) -> None:
        """Each attempt continues from the newest checkpoint before it or a newer one, and no step is taken again without need."""
        for record in read_jsonl(run.metrics):
            self.taken.setdefault(record["attempt"], set()).add((record["stage"], record["step"]))
        taken = [pair for pairs in self.taken.values() for pair in pairs]
        life.recomputed = len(taken) - len(set(taken))
        resumed = {r["attempt"]: r["step"] for r in read_jsonl(run.events) if r["event"] == "resumed"}
        for before, after in itertools.pairwise(sorted(self.taken)):
            begins, kept = resumed.get(after, 0), self.complete.get(before, 0)
            done = max((step for stage, step in self.taken[before] if stage == STAGE), default=begins)
            if begins < kept:
                life.faults.append(f"attempt {after} began at step {begins} although that of {kept} was saved")
            life.explained += max(0, done - kept) + (WARM_STEPS if not kept else 0)
        interruptions = life.verbs.count("stop") + sum(kind.startswith("preemption") for kind in life.disturbances)
        if len(self.taken) - 1 > interruptions:
            life.faults.append(f"{len(self.taken)} attempts trained, with {interruptions} interruptions")
        if life.recomputed > life.explained:
            life.faults.append(f"{life.recomputed} steps were recomputed, of which {life.explained} may be")


def train(script: Script, folder: Path, expected: Trained | None = None) -> tuple[Life, Trained | None]:
    """One life; what the run came to must be `expected`, if that is given."""
    life, outcome = Life(script, "GRPO"), None
    with contextlib.ExitStack() as stack:
        gcloud, bucket = clouds(stack, folder, True)
        assert bucket
        stack.enter_context(mock.patch.dict(os.environ, bucket.environment))
        bench = TrainingBench(folder, bucket)
        facts = TrainingFacts(gcloud, bucket)
        run, own = RunDir(bench.path()), VmCloud(gcloud)
        observer = Observer(run, own, facts)
        setting = Setting(bench, TRAINED, STEPS, PATIENCE, bucket, observer, LIFE_LIMIT_S, facts.committed, own)
        Disturbed(life, setting).run()
        if not life.faults:
            outcome = Trained(trainer.figures(run), trainer.weights(run))
            facts.judge(run, life)
            if expected and outcome.figures != expected.figures:
                life.faults.append("the final record has other figures than that of an undisturbed run")
            if expected and outcome.weights != expected.weights:
                life.faults.append("the last state is not bit for bit that of an undisturbed run")
    return life, outcome
