"""One of several processes over gloo, `together.py RUN CASE`: sums and sleeps through the course of a run, in which one lags."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from podwright.recipe.load import load
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import RunDir, write_json
from podwright.train.emit import Emitter
from podwright.train.multimodal import course
from podwright.train.multimodal.data.batches import Order
from podwright.train.multimodal.processes.world import World, join
from podwright.train.watchdog import Patience

SHORT = Patience(first_s=60.0, least_s=2.0, most_s=2.0, grace_s=4.0)


class Sums:
    """A sum over all processes a step. The last of them sleeps forever in step 6 ("hangs"), or longer in each ("lags"); all are slow ("stopped")."""

    max_steps = 90
    order = Order([1] * 400, 1, 1, 0, 2, 0)

    def __init__(self, run: RunDir, case: str, world: World):
        found = load("phase2-tiny", ["checkpoint.every_n_steps=100", "evaluation.every_n_steps=0"])
        assert isinstance(found, MultimodalRecipe)
        self.at, self.recipe, self.case, self.world = run, found, case, world

    def step(self, number: int) -> dict[str, Any]:
        lags = self.world.rank == self.world.size - 1
        if lags and self.case == "hangs" and number == 5:
            forever()
        begin = time.perf_counter()
        time.sleep(0.1 if self.case == "stopped" else 0.03 if lags and self.case == "lags" else 0.01)
        own = time.perf_counter() - begin
        loss = float(self.world.summed(torch.ones(())))
        return {
            "loss": loss,
            "grad_norm": 1.0,
            "learning_rate": 1e-3,
            "data_wait_s": 0.0,
            "own_s": own,
            "step_s": time.perf_counter() - begin,
        }

    def test(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return {}, []

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None: ...

    def result(self) -> tuple[Path, Any]:
        return self.at.weights, {}


def forever() -> None:
    time.sleep(3600)


def main() -> None:
    run, world = RunDir(Path(sys.argv[1])), join(os.environ)
    training = Sums(run, sys.argv[2], world)
    outcome = course.follow(
        training, Emitter(run, 1, world.rank == 0), world, course.PATIENCE if sys.argv[2] == "lags" else SHORT
    )
    write_json(run.exit(1, world.rank), {"ending": outcome.ending, "detail": outcome.detail})


if __name__ == "__main__":
    main()
