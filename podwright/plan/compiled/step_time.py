"""Decides how long a training step and the whole run will take and what the run will cost, from the predicted time of each program.

Counted is what train/grpo/loop.py has the devices do, with the most tokens: rollout, scores and updates of every step, the supervised
steps before, the tests. Left out: what the host does meanwhile, checkpoints, compiling, loading.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from podwright.accelerators import CPU
from podwright.plan.checks.meshes import resolved, shards
from podwright.plan.compiled.compile import Compiled
from podwright.plan.compiled.costs import ProgramCost
from podwright.recipe.kinds import JaxRecipe
from podwright.recipe.models import Qwen3Dims, step_flops
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import Slice


def runs(recipe: GrpoRecipe) -> dict[str, int]:
    """How often a training step runs each program."""
    scores = {"score": recipe.grpo.num_scores} if recipe.grpo.num_scores else {}
    return {"rollout": 1, **scores, "update": recipe.grpo.num_iterations}


def document(
    compiled: list[Compiled],
    recipe: GrpoRecipe,
    dims: Qwen3Dims,
    where: Slice,
    num_test: int | None,
    price: float | None,
) -> dict[str, Any]:
    """The entry `step` of a plan; {} when a program of the step has no predicted time. `num_test`: test questions, if known."""
    costs = {one.name: one.cost for one in compiled if one.cost is not None}
    if runs(recipe).keys() - costs.keys():
        return {}
    programs: list[dict[str, Any]] = [
        {"name": name, "runs": n, "seconds": n * costs[name].predicted_s, "bound": costs[name].bound}
        for name, n in runs(recipe).items()
    ]
    step_s = sum(p["seconds"] for p in programs)
    completions = recipe.batch_size * recipe.grpo.num_generations
    new_tokens = completions * recipe.rollout.total_generation_steps
    flops = step_flops(dims, recipe, recipe.batch_size * recipe.rollout.max_prompt_length, new_tokens)
    return {
        "programs": programs,
        "step_s": step_s,
        "prompts_per_s": recipe.batch_size / step_s,
        "completions_per_s": completions / step_s,
        "tokens_per_s_per_device": new_tokens / step_s / where.num_devices,
        "mfu": mfu(flops / step_s, where),
        "run": _run(costs, recipe, where, step_s, num_test, price),
        "notes": [*_notes(costs, recipe, num_test), *notes_of(compiled, runs(recipe))],
    }


def mfu(flops_per_s: float, where: Slice) -> float | None:
    """Share of the slice's peak; None for a CPU, which has no data sheet to go by."""
    return None if where.accelerator is CPU else flops_per_s / (where.accelerator.bf16_flops * where.num_devices)


def num_evaluations(recipe: JaxRecipe) -> int:
    """Before, every so many steps, and after."""
    every = recipe.evaluation.every_n_steps
    return 2 + ((recipe.training.max_steps - 1) // every if every else 0)


def _run(
    costs: dict[str, ProgramCost],
    recipe: GrpoRecipe,
    where: Slice,
    step_s: float,
    num_test: int | None,
    price: float | None,
) -> dict[str, Any]:
    seconds = {"steps_s": recipe.training.max_steps * step_s, "evaluations_s": None, "warm_start_s": None}
    if num_test and "evaluate" in costs:
        parts = shards(recipe, resolved(recipe, where))
        rows = -(-min(recipe.evaluation.batch_size, num_test) // parts) * parts
        batches = -(-num_test // rows)
        seconds["evaluations_s"] = num_evaluations(recipe) * batches * costs["evaluate"].predicted_s
    if recipe.warm_start and "warm_start" in costs:
        seconds["warm_start_s"] = recipe.warm_start.max_steps * costs["warm_start"].predicted_s
    return {
        "steps": recipe.training.max_steps,
        "evaluations": num_evaluations(recipe) if seconds["evaluations_s"] is not None else None,
        **seconds,
        **bill(sum(s for s in seconds.values() if s is not None) / 3600, where, price),
    }


def bill(hours: float, where: Slice, price: float | None) -> dict[str, Any]:
    """What so many hours come to; None where there are no chips or no price."""
    chip_hours = None if where.accelerator is CPU else hours * where.num_chips
    cost = None if price is None or chip_hours is None else chip_hours * price
    return {"hours": hours, "chip_hours": chip_hours, "price": price, "cost": cost}


def _notes(costs: dict[str, ProgramCost], recipe: GrpoRecipe, num_test: int | None) -> list[str]:
    most = recipe.rollout.total_generation_steps
    notes = [
        f"every completion is counted with rollout.total_generation_steps={most} tokens, the most; shorter ones take less time"
    ]
    if more := recipe.grpo.dynamic_sampling:
        added = more * costs["rollout"].predicted_s
        notes.append(
            f"grpo.dynamic_sampling={more} may add up to {added:.3g} s of further rollouts to a step; none is counted"
        )
    if not num_test:
        notes.append("evaluations are not counted: how many test questions there are is known when the run starts")
    return notes


def notes_of(compiled: list[Compiled], names: Collection[str]) -> list[str]:
    """What the programs in `names` leave out, each with the programs that do."""
    said: dict[str, list[str]] = {}
    for one in compiled:
        for note in one.notes if one.name in names else ():
            said.setdefault(note, []).append(one.name)
    return [f"{', '.join(names)}: {note}" for note, names in said.items()]
