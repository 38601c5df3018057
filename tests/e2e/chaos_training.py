"""Lives in which the real trainer trains: the tiny GRPO recipe as four processes on hosts that share nothing but an emulated bucket."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from podwright.rundir import RunDir, read_jsonl
from tests.bucket import EmulatedBucket
from tests.e2e import trainer
from tests.e2e.chaos import Disturbed, Life, Setting, clouds
from tests.e2e.chaos_phases import Observer
from tests.e2e.chaos_script import Script
from tests.e2e.test_tpu_training import PATIENCE, STEPS, TRAINED, TrainingBench
from tests.lab.gcloud.control import Gcloud

LIFE_LIMIT_S = 1500.0


@dataclass(frozen=True)
class Trained:
    """What a run came to: every figure that does not depend on the clock, and the bytes of its weights."""

    figures: dict[str, list[dict[str, Any]]]
    weights: bytes


class BucketFacts:
    """What the trainer of the newest attempt has done, from the disk of the first host and from the bucket."""

    def __init__(self, gcloud: Gcloud, bucket: EmulatedBucket) -> None:
        self._gcloud, self._bucket = gcloud, bucket

    def committed(self) -> bool:
        """Whether a checkpoint is complete."""
        return bool(self._checkpoints()[1])

    def __call__(self) -> list[dict[str, Any]]:
        facts: list[dict[str, Any]] = []
        unfinished, _ = self._checkpoints()
        for run in (self._gcloud.root / "disks").glob("*-w-0/.podwright/*/*/runs/r"):
            for folder in sorted((run / "attempts").glob("[0-9]*"), key=lambda path: int(path.name)):
                number = int(folder.name)
                if any(record["attempt"] == number for record in read_jsonl(run / "events.jsonl")):
                    facts.append({"attempt": number, "what": "saving" if unfinished else "started", "step": 0})
                if (folder / "exit.json").exists():
                    facts.append({"attempt": number, "what": "ended", "step": 0})
        return facts

    def _checkpoints(self) -> tuple[set[str], set[str]]:
        """The steps of those that are being written, and of those that are complete."""
        parts = [name.partition("/checkpoints/")[2].split("/") for name in self._bucket.names("runs/")]
        complete = {part[0] for part in parts if part[1:] == ["commit_success.txt"]}
        return {part[0] for part in parts if part[0]} - complete, complete


def train(script: Script, folder: Path, expected: Trained | None = None) -> tuple[Life, Trained | None]:
    """One life; what the run came to must be `expected`, if that is given."""
    life, began = Life(script, "GRPO"), time.monotonic()
    outcome = None
    with contextlib.ExitStack() as stack:
        gcloud, bucket = clouds(stack, folder, True)
        assert bucket
        stack.enter_context(mock.patch.dict(os.environ, bucket.environment))
        bench = TrainingBench(folder, bucket)
        facts = BucketFacts(gcloud, bucket)
        run = RunDir(bench.path())
        setting = Setting(
            bench, TRAINED, STEPS, PATIENCE, bucket, Observer(run, gcloud, facts), LIFE_LIMIT_S, facts.committed
        )
        Disturbed(life, setting, gcloud).run()
        if not life.faults:
            outcome = Trained(trainer.figures(run), trainer.weights(run))
            life.recomputed = _recomputed(run)
            if expected and outcome.figures != expected.figures:
                life.faults.append("the final record has other figures than that of an undisturbed run")
            if expected and outcome.weights != expected.weights:
                life.faults.append("the last state is not bit for bit that of an undisturbed run")
    life.seconds = time.monotonic() - began
    return life, outcome


def _recomputed(run: RunDir) -> int:
    taken = [(record["stage"], record["step"]) for record in read_jsonl(run.metrics)]
    return len(taken) - len(set(taken))
