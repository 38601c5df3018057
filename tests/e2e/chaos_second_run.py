"""Another run beside that of a life, on the same target: nobody disturbs its launchers, and it has to come to its own end."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from podwright.counted_steps import read_steps
from podwright.run import journal
from podwright.rundir import RunDir, read_jsonl
from tests.e2e import chaos_trainer
from tests.e2e.chaos_launchers import CODES, Launchers

NAME = "s"
MOST_STARTS = 12
LIMIT_S = 150.0
"""until it must have ended, once the run of the life has"""
PAUSE_S = 1.5
"""before somebody types the next verb"""


class SecondRun:
    def __init__(self, launchers: Launchers, run: Sequence[str], steps: int, environment: Mapping[str, str]) -> None:
        self._launchers, self._words, self._steps = launchers, run, steps
        facts = Path(environment["CHAOS_FACTS"])
        own = {"CHAOS_FACTS": str(facts.with_name(f"{NAME}-{facts.name}"))}
        self._folder = launchers.folder
        own["PODWRIGHT_TARGETS"] = str(self._folder / "targets.yaml")
        own["PYTHONPATH"] = str(Path(__file__).parents[2])
        self._environment = {**os.environ, **environment, **own}
        self._run = RunDir(self._folder / "runs" / NAME)
        self._starts, self._ended, self._finished = 0, 0.0, False
        self._start()

    def _start(self) -> None:
        argv = ["resume", NAME] if self._run.journal.exists() and self._run.journal.stat().st_size else []
        argv = argv or ["run", *self._words, f"training.max_steps={self._steps}", "--name", NAME, "--force"]
        self._out = self._folder / f"second-{self._starts}.txt"
        self._process, self._ended = self._launchers.started(argv, self._folder, self._environment, self._out), 0.0
        self._starts += 1

    def tend(self) -> None:
        """Resume it where its launcher has ended before the run."""
        if self._finished or self._process.poll() is None:
            return
        self._ended = self._ended or time.monotonic()
        self._finished = self._process.returncode == 0
        if not self._finished and self._starts < MOST_STARTS and time.monotonic() - self._ended > PAUSE_S:
            self._start()

    def faults(self) -> list[str]:
        """Of the run once it has ended."""
        limit = time.monotonic() + LIMIT_S
        while not self._finished and time.monotonic() < limit:
            self.tend()
            time.sleep(0.1)
        out = self._out.read_text()
        if not self._finished:
            self.end()
            return [f"the second run did not finish with {self._starts} launchers: {out[-600:]}"]
        wrong = [f"traceback of the second run: {out[-900:]}"] if "Traceback" in out else []
        steps = [record["step"] for record in read_steps(self._run, "grpo")]
        chains = {r["step"]: r["chain"] for r in read_jsonl(self._run.events) if r["event"] == "chain"}
        if steps != list(range(1, self._steps + 1)):
            wrong.append(f"the final record of the second run has steps {steps}")
        if chains.get(self._steps) != chaos_trainer.chain_after(self._steps):
            wrong.append(f"the last state of the second run is {chains.get(self._steps)}")
        if not journal.read(self._run).report_final or self._process.returncode not in CODES:
            wrong.append(f"the second run ended with {self._process.returncode} and its report is not the last")
        return wrong

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
