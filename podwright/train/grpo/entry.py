"""GRPO in the compute half: training, tests and exports of what it trained."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.errors import UserError
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record, RunDir
from podwright.train.emit import TrainingOutcome
from podwright.train.entry import Stopping, TrainerEntry, in_jax
from podwright.train.grpo.reward_process import RewardProcess
from podwright.train.run_storage import AttemptStart

if TYPE_CHECKING:
    from jax import Device

    from podwright.train.program import Program

_STOP_IDS = (0, 1)  # of programs that are only compiled, where their number alone matters


class GrpoEntry(TrainerEntry):
    kind = "grpo"

    def train(self, run: RunDir, start: AttemptStart, stopping: Stopping) -> TrainingOutcome:
        with (
            contextlib.closing(RewardProcess(stopping)) as rewards,
            in_jax(run, GrpoRecipe, start, stopping) as (recipe, emit),
        ):
            from podwright.train.grpo import loop

            return loop.train(
                run, recipe, emit, stopping, functools.partial(rewards.load, limit_s=recipe.rewards_timeout)
            )

    def evaluate(self, path: Path, source: str, limit: int, overrides: Sequence[str]) -> Record:
        from podwright.train.grpo import standalone

        return standalone.evaluate(path, source, limit, overrides)

    def export(self, path: Path, out: Path, onnx: bool) -> Record:
        if onnx:
            raise UserError(
                "--onnx is for multimodal runs: it writes their aligner and projector", "leave --onnx out", "wrong-kind"
            )
        from podwright.train.grpo import standalone

        return standalone.export(path, out)

    def check(self, recipe: GrpoRecipe, without: Sequence[str]) -> list[Record]:
        from podwright.train.grpo import data_check

        return data_check.findings(recipe, without)

    def programs(self, recipe: GrpoRecipe, dims: Record, devices: list[Device]) -> dict[str, Program]:
        from podwright.train.grpo import program
        from podwright.train.mesh import make_mesh

        mesh = make_mesh(recipe.mesh, devices)
        return program.programs(program.GrpoSetup(recipe, Qwen3Dims(**dims), mesh, _STOP_IDS, 0))


ENTRY = GrpoEntry()
