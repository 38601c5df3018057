"""The kinds of recipe: one row each, with everything that is asked of a kind or the place where the answer is written.

The answers of the plan, of the report and of the trainer are named as text, `package.module:NAME` or `package.module`, and imported when they are asked for.
So both halves ask a kind through this table, and neither of them imports what the other one answers with.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from podwright.errors import UserError, nearest
from podwright.recipe import smoke
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.rundir import TRAIN_COMMAND

JaxRecipe = GrpoRecipe | PretrainRecipe
"""what is compiled before it runs, over a mesh"""
TorchRecipe = MultimodalRecipe | ContrastiveRecipe
"""what takes a process for each device"""
Recipe = JaxRecipe | TorchRecipe | MaxTextRecipe


@dataclass(frozen=True)
class PreparedRecipe:
    """A recipe whose variables have the values that were typed."""

    kept: Recipe
    """as the run keeps it: what the target gives is still to be filled in"""
    planned: Recipe
    """with what the target gives now, for a plan"""
    added: Mapping[str, str] = field(default_factory=dict)
    """arguments that the recipe does not have"""


@dataclass(frozen=True)
class RecipeKind:
    """One kind of recipe."""

    name: str
    """what `kind:` of a recipe says; also the stage of its steps in metrics.jsonl"""
    schema: type[Recipe]
    smoke: Callable[[Any, int], smoke.Changes]
    """how a recipe is cut down to so many steps for a smoke run"""
    plan: str
    """a podwright.plan.kinds.PlanPart"""
    report: str
    """a podwright.report.kinds.ReportPart"""
    trainer: str = ""
    """a podwright.train.entry.TrainerEntry; "" where the trainer is not ours"""
    command: tuple[str, ...] = TRAIN_COMMAND
    """starts an attempt: the words of an argv, in which the target fills {python}, {run_dir}, {attempt} and {storage}; () where the image of
    the recipe brings its program"""
    starts_on: tuple[Literal["hosts", "pods"], ...] = ("hosts",)
    """on which sort of machines a target can start it: hosts that run our trainer, or pods of a cluster"""
    prepare: str = ""
    """a function of recipe, settings of the target, its name, and typed values of variables that gives a PreparedRecipe; "" where a recipe
    has no variables"""
    follow: str = ""
    """a function of RunDir that brings new steps from the logs to metrics.jsonl; "" where the trainer writes them"""
    outcome: str = ""
    """a function of RunDir, attempt, Polled and whether a stop was wanted that says how an attempt ended by its log, or None; "" where the
    trainer writes that"""
    held_out: str = "data.num_test=0"
    """the override with which a recipe holds out what is usual for the size of the data; "" where it holds nothing out"""
    first_step: int = 1
    """the number of the first step in metrics.jsonl"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """variables of every process of an attempt"""
    traced: bool = False
    """whether jax's profiler can trace its steps"""
    one_gpu_each: bool = False
    """whether each of its processes uses one GPU, not all of its host"""
    uses_storage: bool = False
    """whether its trainer keeps checkpoints and records in the storage of a target that has one"""


KINDS: dict[str, RecipeKind] = {
    kind.name: kind
    for kind in (
        RecipeKind(
            "grpo",
            GrpoRecipe,
            smoke.grpo,
            "podwright.plan.kinds.grpo:PLAN",
            "podwright.report.kinds.grpo",
            "podwright.train.grpo.entry:ENTRY",
            starts_on=("hosts", "pods"),
            traced=True,
            uses_storage=True,
        ),
        RecipeKind(
            "pretrain",
            PretrainRecipe,
            smoke.pretrain,
            "podwright.plan.kinds.pretrain:PLAN",
            "podwright.report.kinds.pretrain",
            "podwright.train.pretrain.entry:ENTRY",
            held_out="evaluation.num_batches=1",
            starts_on=("hosts", "pods"),
            traced=True,
            uses_storage=True,
        ),
        RecipeKind(
            "multimodal",
            MultimodalRecipe,
            smoke.media,
            "podwright.plan.kinds.multimodal:PLAN",
            "podwright.report.kinds.multimodal",
            "podwright.train.multimodal.entry:MULTIMODAL",
            one_gpu_each=True,
        ),
        RecipeKind(
            "contrastive",
            ContrastiveRecipe,
            smoke.media,
            "podwright.plan.kinds.contrastive:PLAN",
            "podwright.report.kinds.contrastive",
            "podwright.train.multimodal.entry:CONTRASTIVE",
            one_gpu_each=True,
        ),
        RecipeKind(
            "maxtext",
            MaxTextRecipe,
            smoke.maxtext,
            "podwright.plan.kinds.maxtext:PLAN",
            "podwright.report.kinds.maxtext",
            command=(),
            starts_on=("pods",),
            prepare="podwright.targets.gke.attempt:prepared",
            follow="podwright.watch.maxtext_log:follow",
            outcome="podwright.watch.maxtext_ending:outcome",
            held_out="",
            first_step=0,
        ),
    )
}


def find(name: object) -> RecipeKind:
    """The kind of that name; UserError for a kind that this version does not know."""
    if name is None:
        raise UserError("the recipe has no key kind", f"write kind: grpo; known: {', '.join(KINDS)}", "unknown-kind")
    if not isinstance(name, str) or name not in KINDS:
        guess = nearest(name, list(KINDS)) if isinstance(name, str) else None
        fix = f"did you mean {guess}?" if guess else f"known: {', '.join(KINDS)}"
        raise UserError(f"kind={name!r} is not a kind of recipe", fix, "unknown-kind")
    return KINDS[name]


def resolve(place: str) -> Any:
    """The object NAME of `package.module:NAME`, or a module."""
    module, _, name = place.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, name) if name else loaded
