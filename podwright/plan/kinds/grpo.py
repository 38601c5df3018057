"""What a plan says of GRPO."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from podwright.plan.checks import (
    clipping,
    examples,
    inputs,
    meshes,
    rewards,
    this_machine,
    token_lengths,
    unused_keys,
)
from podwright.plan.compiled import step_time
from podwright.plan.document import StepEntry
from podwright.plan.estimates import memory_grpo
from podwright.plan.findings import Finding, of_error
from podwright.plan.kinds import CompiledPrograms, PlanPart
from podwright.plan.options import PlanOptions
from podwright.plan.settings import Overrides
from podwright.recipe import positions
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.paths import looks_like_path
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import Slice


class GrpoPlan(PlanPart[GrpoRecipe]):
    packages = ("jax",)
    hub_sections = ("model", "data")
    unused_keys = unused_keys.GRPO
    closed_form = memory_grpo
    searches = True

    def checks(self, recipe: GrpoRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        findings, dims = inputs.model(recipe.model, cwd)
        if where is not None:
            findings = meshes.place(where, recipe) + findings
        for reward in recipe.rewards:
            findings += rewards.rewards(reward.function, cwd)
            findings += rewards.thoughts(reward.function, recipe.data)
        findings += clipping.check(recipe, dims) + meshes.mesh(recipe, dims, where)
        if dims is not None:
            refused = positions.exceeded(recipe.rollout, dims.max_positions)
            if refused:
                findings.append(of_error("context", refused))
        return token_lengths.of_prompts(recipe, findings + examples.check(recipe, cwd), cwd)

    def here(self, recipe: GrpoRecipe) -> list[Finding]:
        modules = ["jax", "optax", "orbax", "safetensors", "tokenizers"]
        if recipe.data.source != "arithmetic" and not looks_like_path(recipe.data.source, Path()):
            modules.append("datasets")
        return this_machine.packages(dict(zip(modules, modules, strict=True)), "jax")

    def to_start(self, recipe: GrpoRecipe, cwd: Path) -> list[Finding]:
        return inputs.to_start(recipe.model.source, cwd)

    def dimensions(self, recipe: GrpoRecipe, cwd: Path) -> Qwen3Dims | None:
        return inputs.model(recipe.model, cwd)[1]

    def programs(self, recipe: GrpoRecipe) -> list[str]:
        score = bool(recipe.grpo.num_scores)
        warm_start = recipe.warm_start is not None
        return ["update", *["score"] * score, "rollout", "evaluate", *["warm_start"] * warm_start]

    def takes(self, recipe: GrpoRecipe, mesh: Mapping[str, int | str], shards: int) -> bool:
        return recipe.warm_start is None or recipe.warm_start.batch_size % shards == 0

    def test_rows(self, recipe: GrpoRecipe) -> int:
        return recipe.evaluation.batch_size

    def offloaded(self, recipe: GrpoRecipe) -> Overrides:
        held = recipe.grpo.beta > 0 and not recipe.model.lora_rank and not recipe.grpo.offload_reference
        return {"grpo.offload_reference": True} if held else {}

    def with_adapters(self, recipe: GrpoRecipe) -> Iterator[Overrides]:
        """By themselves, then with completions of half the length, and of half of that."""
        tokens = recipe.rollout.total_generation_steps
        if not recipe.model.lora_rank:
            yield {"model.lora_rank": 16}
            while (tokens := tokens // 2) >= _FEWEST_TOKENS:
                yield {"model.lora_rank": 16, "rollout.total_generation_steps": tokens}

    def irrelevant(self, program: str) -> Collection[str]:
        return _IRRELEVANT[program]

    def step(self, recipe: GrpoRecipe, where: Slice, cwd: Path, price: float | None) -> StepEntry | None:
        from podwright.plan.estimates import (
            step_time_estimate,
        )  # only where a time is estimated: it takes long to import

        dims = self.dimensions(recipe, cwd)
        if dims is None or not step_time_estimate.is_rated(recipe.model.compute_dtype, where.accelerator):
            return None
        seconds = step_time_estimate.step_seconds(recipe, dims, meshes.resolved(recipe, where), where)
        return step_time.estimated_grpo(seconds, examples.in_steps(recipe, cwd), dims, where, price)

    def step_seconds(self, recipe: GrpoRecipe, dims: Qwen3Dims, where: Slice) -> float:
        from podwright.plan.estimates import step_time_estimate

        return sum(step_time_estimate.step_seconds(recipe, dims, meshes.resolved(recipe, where), where).values())

    def compiled(self, recipe: GrpoRecipe, where: Slice, options: PlanOptions) -> CompiledPrograms:
        from podwright.plan.compiled import verdict  # only where something is compiled: it takes long to import

        dims = self.dimensions(recipe, options.cwd)
        if dims is None:
            raise verdict.unknown_dimensions(recipe.model.source)
        recipe = examples.in_steps(recipe, options.cwd)
        compiled = verdict.compile_programs(self, recipe, dims, where, options)
        num_test = examples.num_test_examples(recipe, options.cwd)
        step = step_time.compiled_grpo(compiled, recipe, dims, where, num_test, options.price)
        return verdict.results(compiled, where, step)


_FEWEST_TOKENS = 64  # of a completion that a search proposes
_HOST = ("grpo.dynamic_sampling", "grpo.mask_truncated", "grpo.overlong_buffer", "evaluation.every_n_steps")
_STEP = (*_HOST, "evaluation", "warm_start")  # of what has the recipe's batch
_LOSS = tuple(f"grpo.{key}" for key in ("num_iterations", "loss", "epsilon", "epsilon_high", "kl", "importance_cap"))
_DRAWN = tuple(f"rollout.{key}" for key in ("top_k", "top_p", "min_p"))
_IRRELEVANT = {
    "update": (*_STEP, *_DRAWN, "seed"),
    "score": (*_STEP, *_DRAWN, *_LOSS, "optimizer", "training", "seed"),
    "rollout": (*_STEP, *_LOSS, "optimizer", "training", "model.remat"),
    "evaluate": (
        *(*_HOST, *_DRAWN, *_LOSS, "optimizer", "training", "warm_start", "model.remat"),
        *("batch_size", "grpo.num_generations", "rollout.temperature"),
    ),
    "warm_start": (
        *(*_HOST, *_DRAWN, *_LOSS, "evaluation", "training", "seed"),
        *("batch_size", "grpo.num_generations", "rollout.temperature", "optimizer.learning_rate"),
    ),
}
"""of the recipe by program: what train/grpo/program.py builds it without"""

PLAN = GrpoPlan()
