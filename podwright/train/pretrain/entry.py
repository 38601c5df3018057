"""Pretraining in the compute half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright.recipe import dimensions
from podwright.recipe.pretrain import PretrainRecipe
from podwright.rundir import Record, RunDir
from podwright.train.emit import TrainingOutcome
from podwright.train.entry import Stopping, TrainerEntry, in_jax
from podwright.train.run_storage import AttemptStart

if TYPE_CHECKING:
    from jax import Device

    from podwright.train.program import Program


class PretrainEntry(TrainerEntry):
    kind = "pretrain"

    def train(self, run: RunDir, start: AttemptStart, stopping: Stopping) -> TrainingOutcome:
        with in_jax(run, PretrainRecipe, start, stopping) as (recipe, emit):
            from podwright.train.pretrain import loop

            return loop.train(run, recipe, emit, stopping)

    def check(self, recipe: PretrainRecipe, without: Sequence[str]) -> list[Record]:
        from podwright.train.pretrain import data_check

        return data_check.findings(recipe)

    def programs(self, recipe: PretrainRecipe, dims: Record, devices: list[Device]) -> dict[str, Program]:
        from podwright.train.mesh import make_mesh
        from podwright.train.pretrain import program

        known = dimensions.find(recipe.model.name, recipe.model.gate, recipe.model.kda)
        return program.programs(program.PretrainSetup(recipe, known, make_mesh(recipe.mesh, devices)))


ENTRY = PretrainEntry()
