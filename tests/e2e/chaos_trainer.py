"""`chaos_trainer.py RUN --attempt N [--storage URL ...]`: a trainer without a model, which keeps its checkpoints where a real one does.

A step takes CHAOS_STEP_S seconds; every CHAOS_EVERY steps a checkpoint is saved, which takes CHAOS_SAVE_S. Each step extends a chain of hashes,
so that the last value proves that all were taken once and in order. What happened is also appended to the file CHAOS_FACTS, which every
host of the lab sees and which outlives it. It is killed by the file CHAOS_FACTS.crash, or ends with an exception, as the file says.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.rundir import RunDir, append_jsonl, write_json
from podwright.storage import open_storage
from podwright.storage.base import COMMITTED, StorageFailure
from podwright.train import run_storage
from podwright.train.emit import Emitter
from podwright.train.run_storage import AttemptStart, RunStorage

KEPT = 2
TICK_S = 0.02


def extended(chain: str, step: int) -> str:
    """The chain of hashes after `step`; "" before the first."""
    return hashlib.sha256(f"{chain} {step}".encode()).hexdigest()[:16]


def chain_after(steps: int) -> str:
    """Of an undisturbed run."""
    chain = ""
    for step in range(1, steps + 1):
        chain = extended(chain, step)
    return chain


def fact(attempt: int, what: str, step: int, **more: Any) -> None:
    """`what`: started (from `step`), step, saving, saved, crashed, ended."""
    append_jsonl(
        Path(os.environ["CHAOS_FACTS"]), {"time": time.time(), "attempt": attempt, "what": what, "step": step, **more}
    )


class Checkpoints:
    def __init__(self, storage: RunStorage, attempt: int) -> None:
        self.storage, self.attempt = storage, attempt
        self.save_s = float(os.environ["CHAOS_SAVE_S"])

    def restore(self) -> tuple[int, str]:
        """The newest step and its chain."""
        step = max(self.storage.steps(), default=0)
        if not step:
            return 0, ""
        if not self.storage.in_bucket:
            return step, Path(self.storage.root, "checkpoints", str(step), "state").read_text()
        there = open_storage(self.storage.url).read(f"checkpoints/{step}/state")
        assert there
        return step, there.data.decode()

    def save(self, step: int, chain: str) -> None:
        if step in self.storage.steps():
            return
        fact(self.attempt, "saving", step)
        self.storage.publish()
        name = f"checkpoints/{step}"
        self.storage.clear(name)
        if self.storage.in_bucket:
            bucket = open_storage(self.storage.url)
            bucket.write(f"{name}/state", chain.encode())
            time.sleep(self.save_s)
            self.storage.check()
            bucket.write(f"{name}/{COMMITTED}", b"")
        else:
            folder = Path(self.storage.root, f"{name}.unfinished")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "state").write_text(chain)
            time.sleep(self.save_s)
            folder.rename(Path(self.storage.root, name))
        fact(self.attempt, "saved", step)
        for old in self.storage.steps()[:-KEPT]:
            self.storage.clear(f"checkpoints/{old}")


def figures(stage: str, step: int) -> dict[str, float]:
    if stage == "pretrain":
        return {"loss": 5.0 / step, "tokens": 1000.0 * step, "tokens_per_s_per_device": 1000.0, "step_s": 0.02}
    return {"reward": 0.1 * step, "kl": 0.01, "tokens_per_s": 1000.0, "step_s": 0.02}


def crash(attempt: int, step: int) -> None:
    """If somebody wants that; once."""
    try:
        order = Path(f"{os.environ['CHAOS_FACTS']}.crash")
        by = order.read_text()
        order.unlink()
    except FileNotFoundError:
        return
    fact(attempt, "crashed", step, by=by)
    if by == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("this trainer was to crash")


def train(run: RunDir, start: AttemptStart) -> tuple[str, int]:
    """The ending and the last step. One signal has it save and leave after the step, a second one at once."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, _: signals.append(number))
    run_storage.remember(run, start.url)
    storage = RunStorage(run, start.url)
    storage.claim(start.number, start.allocation, start.takeover)
    start.storage = storage
    checkpoints, emitter = Checkpoints(storage, start.number), Emitter(run, start.number, True, storage)
    step, chain = checkpoints.restore()
    fact(start.number, "started", step)
    if step:
        emitter.event("resumed", step=step)
    recipe = json.loads(run.recipe.read_text())
    stage, last = recipe["kind"], recipe["training"]["max_steps"]
    emitter.event("phase", phase=stage)
    while step < last and not signals:
        end = time.monotonic() + float(os.environ["CHAOS_STEP_S"])
        while time.monotonic() < end and len(signals) < 2:
            crash(start.number, step)
            time.sleep(TICK_S)
        if len(signals) > 1:
            break
        step, chain = step + 1, extended(chain, step + 1)
        fact(start.number, "step", step)
        emitter.metrics(stage, step, figures(stage, step))
        emitter.event("chain", step=step, chain=chain)
        print(f"step {step} done", flush=True)
        if step % int(os.environ["CHAOS_EVERY"]) == 0:
            checkpoints.save(step, chain)
    if step:
        checkpoints.save(step, chain)
    return "FINISHED" if step == last else "STOPPED", step


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--attempt", type=int)
    parser.add_argument("--storage", default="")
    parser.add_argument("--allocation", default="")
    parser.add_argument("--takeover", action="store_true")
    args = parser.parse_args()
    run = RunDir(args.run)
    lock = run.lock.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    start = AttemptStart(args.attempt, args.storage or run.storage_url, args.allocation, args.takeover)
    try:
        ending, step = train(run, start)
        record = {"ending": ending, "detail": "", "fix": "", "step": step}
    except UserError as e:
        ending = "STORAGE_UNREACHABLE" if isinstance(e, StorageFailure) else "BAD_INPUT"
        record = {"ending": ending, "detail": e.what, "fix": e.fix, "step": None}
    write_json(run.exit(args.attempt), record)
    start.finish(0)
    fact(args.attempt, "ended", record["step"] or 0, ending=record["ending"], detail=record["detail"])
    return {"FINISHED": 0, "STOPPED": 3}.get(str(record["ending"]), 1)


if __name__ == "__main__":
    sys.exit(main())
