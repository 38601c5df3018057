"""Decides how long a training step and the whole run will take and what the run will cost, from the predicted time of each program.

Counted is what train/grpo/loop.py has the devices do, with the most tokens: rollout, scores and updates of every step, the supervised
steps before, the tests. Left out: what the host does meanwhile, checkpoints, compiling, loading.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from podwright.accelerators import CPU
from podwright.plan.checks.meshes import resolved, shards
from podwright.plan.document import ProgramSeconds, RunTotals, StepEntry
from podwright.recipe.dimensions import Dims
from podwright.recipe.kinds import JaxRecipe
from podwright.recipe.models import Qwen3Dims, step_flops
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import Record
from podwright.slices import Slice

if TYPE_CHECKING:  # the compiler takes long to import
    from podwright.plan.compiled.compile import Compiled
    from podwright.plan.compiled.costs import ProgramCost


def _in_closed_form(where: Slice, what: str) -> str:
    """The note of an estimate without `what`; for GPUs no compiler reads the times from the programs."""
    compiles = "" if where.accelerator.node else "; --compile reads the times from the programs"
    return f"estimated in closed form, without {what}{compiles}"


def runs(recipe: GrpoRecipe) -> dict[str, int]:
    """How often a training step runs each program."""
    scores = {"score": recipe.grpo.num_scores} if recipe.grpo.num_scores else {}
    return {"rollout": 1, **scores, "update": recipe.grpo.num_iterations}


def compiled_grpo(
    compiled: list[Compiled],
    recipe: GrpoRecipe,
    dims: Qwen3Dims,
    where: Slice,
    num_test: int | None,
    price: float | None,
) -> StepEntry | None:
    """From compiled programs; None when one of the step has no predicted time. `num_test`: test questions, if known."""
    costs = _costs(compiled)
    if runs(recipe).keys() - costs.keys():
        return None
    programs = tuple(
        ProgramSeconds(name=name, runs=n, seconds=n * costs[name].predicted_s, bound=costs[name].bound)
        for name, n in runs(recipe).items()
    )
    totals = _run(costs, recipe, where, sum(p.seconds for p in programs), num_test, price)
    notes = (*_notes(costs, recipe, num_test), *notes_of(compiled, runs(recipe)))
    return _entry(programs, where, totals, notes, **_grpo(programs, recipe, dims))


def estimated_grpo(
    seconds: Mapping[str, float], recipe: GrpoRecipe, dims: Qwen3Dims, where: Slice, price: float | None
) -> StepEntry:
    """From the closed form of each program's `seconds` in a step; tests and supervised steps are not counted."""
    programs = tuple(
        ProgramSeconds(name=name, runs=n, seconds=seconds[name], bound=None) for name, n in runs(recipe).items()
    )
    totals = _run({}, recipe, where, sum(seconds.values()), None, price)
    notes = (_in_closed_form(where, "tests and supervised steps"), _longest(recipe))
    return _entry(programs, where, totals, notes, **_grpo(programs, recipe, dims), estimated=True)


def _grpo(programs: tuple[ProgramSeconds, ...], recipe: GrpoRecipe, dims: Qwen3Dims) -> Record:
    step_s = sum(p.seconds for p in programs)
    completions = recipe.batch_size * recipe.grpo.num_generations
    new_tokens = completions * recipe.rollout.total_generation_steps
    return {
        "tokens": new_tokens,
        "flops": step_flops(dims, recipe, recipe.batch_size * recipe.rollout.max_prompt_length, new_tokens),
        "prompts_per_s": recipe.batch_size / step_s,
        "completions_per_s": completions / step_s,
    }


def _entry(
    programs: tuple[ProgramSeconds, ...],
    where: Slice,
    totals: RunTotals | None,
    notes: tuple[str, ...],
    *,
    tokens: int,
    flops: float,
    estimated: bool = False,
    **more: float,
) -> StepEntry:
    step_s = sum(p.seconds for p in programs)
    return StepEntry(
        estimated=estimated,
        programs=programs,
        step_s=step_s,
        tokens_per_s_per_device=tokens / step_s / where.num_devices,
        mfu=mfu(flops / step_s, where),
        run=totals,
        notes=notes,
        **more,
    )


def _costs(compiled: list[Compiled]) -> dict[str, ProgramCost]:
    return {program.name: program.cost for program in compiled if program.cost is not None}


def compiled_pretrain(
    compiled: list[Compiled], recipe: PretrainRecipe, dims: Dims, where: Slice, price: float | None
) -> StepEntry | None:
    """From compiled programs; None when the update has no predicted time."""
    costs = _costs(compiled)
    if "update" not in costs:
        return None
    update, evaluations_s = costs["update"], None
    if "evaluate" in costs:
        evaluations_s = num_evaluations(recipe) * recipe.evaluation.num_batches * costs["evaluate"].predicted_s
    program = ProgramSeconds(name="update", runs=1, seconds=update.predicted_s, bound=update.bound)
    totals = _totals(recipe, program.seconds, evaluations_s, None, where, price)
    return _entry(
        (program,), where, totals, tuple(notes_of(compiled, ["update"])), **_pretrain(program, recipe, dims, where)
    )


def estimated_pretrain(
    seconds: float, recipe: PretrainRecipe, dims: Dims, where: Slice, price: float | None
) -> StepEntry:
    """From the closed form of an update's `seconds`; evaluations are not counted."""
    program = ProgramSeconds(name="update", runs=1, seconds=seconds, bound=None)
    totals = _totals(recipe, seconds, None, None, where, price)
    note = _in_closed_form(where, "evaluations")
    return _entry((program,), where, totals, (note,), **_pretrain(program, recipe, dims, where), estimated=True)


def _pretrain(update: ProgramSeconds, recipe: PretrainRecipe, dims: Dims, where: Slice) -> Record:
    tokens = recipe.batch_size * recipe.sequence_length
    # a token sees half of its sequence in the mean; a backward pass counts twice its forward pass
    flops = 3 * dims.forward_flops(tokens, recipe.sequence_length / 2)
    return {
        "tokens": tokens,
        "flops": flops,
        "tflops_per_device": flops / update.seconds / where.num_devices / 1e12,
    }


def mfu(flops_per_s: float, where: Slice) -> float | None:
    """Share of the slice's peak; None for a CPU, which has no data sheet to go by."""
    peak = where.accelerator.bf16_flops or where.accelerator.fp16_flops
    return None if where.accelerator is CPU else flops_per_s / (peak * where.num_devices)


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
) -> RunTotals | None:
    """None for a recipe whose steps are not counted yet."""
    if not recipe.training.max_steps:
        return None
    evaluations_s = warm_start_s = None
    if num_test and "evaluate" in costs:
        parts = shards(recipe, resolved(recipe, where))
        rows = -(-min(recipe.evaluation.batch_size, num_test) // parts) * parts
        batches = -(-num_test // rows)
        evaluations_s = num_evaluations(recipe) * batches * costs["evaluate"].predicted_s
    if recipe.warm_start and "warm_start" in costs:
        warm_start_s = recipe.warm_start.max_steps * costs["warm_start"].predicted_s
    return _totals(recipe, step_s, evaluations_s, warm_start_s, where, price)


def _totals(
    recipe: JaxRecipe,
    step_s: float,
    evaluations_s: float | None,
    warm_start_s: float | None,
    where: Slice,
    price: float | None,
) -> RunTotals:
    steps_s = recipe.training.max_steps * step_s
    return RunTotals(
        steps=recipe.training.max_steps,
        evaluations=num_evaluations(recipe) if evaluations_s is not None else None,
        steps_s=steps_s,
        evaluations_s=evaluations_s,
        warm_start_s=warm_start_s,
        **bill((steps_s + (evaluations_s or 0) + (warm_start_s or 0)) / 3600, where, price),
    )


def bill(hours: float, where: Slice, price: float | None) -> Record:
    """What so many hours come to; None where there are no chips or no price."""
    chip_hours = None if where.accelerator is CPU else hours * where.num_chips
    cost = None if price is None or chip_hours is None else chip_hours * price
    return {"hours": hours, "chip_hours": chip_hours, "price": price, "cost": cost}


def _notes(costs: dict[str, ProgramCost], recipe: GrpoRecipe, num_test: int | None) -> list[str]:
    notes = [_longest(recipe)]
    if more := recipe.grpo.dynamic_sampling:
        added = more * costs["rollout"].predicted_s
        notes.append(
            f"grpo.dynamic_sampling={more} may add up to {added:.3g} s of further rollouts to a step; none is counted"
        )
    if not num_test:
        notes.append("evaluations are not counted: how many test questions there are is known when the run starts")
    return notes


def _longest(recipe: GrpoRecipe) -> str:
    most = recipe.rollout.total_generation_steps
    return f"every completion is counted with rollout.total_generation_steps={most} tokens, the most; shorter ones take less time"


def notes_of(compiled: list[Compiled], names: Collection[str]) -> list[str]:
    """What the programs in `names` leave out, each with the programs that do."""
    names_by_note: dict[str, list[str]] = {}
    for program in compiled:
        for note in program.notes if program.name in names else ():
            names_by_note.setdefault(note, []).append(program.name)
    return [f"{', '.join(names)}: {note}" for note, names in names_by_note.items()]
