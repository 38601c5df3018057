"""Everything that can be said about a recipe on a target without jax: the static part of a plan."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright.errors import UserError, nearest
from podwright.plan.checks import contrastive, multimodal, pretrain
from podwright.plan.checks.inputs import data, model
from podwright.plan.checks.meshes import axes, legal, mesh, place, resolved, shards
from podwright.plan.checks.rewards import rewards, thoughts
from podwright.plan.checks.sufficiency import context, epochs
from podwright.plan.compiled.compile import programs
from podwright.plan.estimates import memory, memory_grpo, memory_pretrain
from podwright.plan.findings import Finding
from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.dimensions import Dims, find
from podwright.recipe.kinds import JaxRecipe, Recipe, TorchRecipe
from podwright.recipe.models import Qwen3Dims
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe
from podwright.slices import Slice

CHECKS = ("packages", "slice", "mesh", "batch", "model", "data", "rewards", "context", "memory", "target", "trackers")
"""the parts of a static plan, as findings and `--only` name them"""


def only(names: str, findings: list[Finding]) -> list[Finding]:
    """The findings of the checks in `names`, a list with commas; all of them for ""."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in CHECKS:
            guess = nearest(name, list(CHECKS))
            raise UserError(
                f"--only {name} is no check", f"type --only {guess}" if guess else f"there are {', '.join(CHECKS)}"
            )
    return [f for f in findings if not wanted or f.check in wanted]


def check(recipe: Recipe, where: Slice | None, cwd: Path) -> list[Finding]:
    """`where` is None where only the machine itself knows its devices; relative paths start at `cwd`."""
    if isinstance(recipe, MultimodalRecipe):
        return multimodal.check(recipe, where, cwd)
    if isinstance(recipe, ContrastiveRecipe):
        return contrastive.check(recipe, where, cwd)
    if isinstance(recipe, PretrainRecipe):
        return pretrain.check(recipe, where, cwd)
    findings, dims = model(recipe.model, cwd)
    if where is not None:
        findings = place(where, recipe) + findings
    findings += data(recipe.data, cwd)
    for reward in recipe.rewards:
        findings += rewards(reward.function, cwd)
        findings += thoughts(reward.function, recipe.data)
    findings += mesh(recipe, dims, where)
    if dims is not None:
        findings += context(recipe.rollout, dims)
    return findings + epochs(recipe, cwd)


def slice_entry(recipe: Recipe, where: Slice, cwd: Path) -> dict[str, Any]:
    """What `podwright plan --json` says about the devices: their numbers, their names, and every mesh of them that works."""
    if isinstance(recipe, TorchRecipe):
        return where.document() | {"meshes": []}
    shapes = legal(recipe, dimensions(recipe, cwd), where)
    return where.document() | {"meshes": [dict(zip(axes(recipe), shape, strict=True)) for shape in shapes]}


def dimensions(recipe: JaxRecipe, cwd: Path) -> Dims | None:
    """Of the recipe's model; None where they are not known here."""
    if isinstance(recipe, GrpoRecipe):
        return model(recipe.model, cwd)[1]
    try:
        return find(recipe.model.name, recipe.model.gate, recipe.model.kda)
    except UserError:
        return None


def estimated(findings: list[Finding], recipe: Recipe, where: Slice | None, cwd: Path) -> list[dict[str, Any]]:
    """What `podwright plan --json` says of memory without a compiler, a program an entry, in GiB per device.

    [] where nothing can be said: no such mesh, unknown dimensions, devices without memory of their own, PyTorch.
    """
    unsound = any(f.level == "error" and f.check in ("mesh", "batch", "model") for f in findings)
    if where is None or not where.accelerator.hbm_bytes or unsound or isinstance(recipe, TorchRecipe):
        return []
    dims = dimensions(recipe, cwd)
    if dims is None:
        return []
    at = resolved(recipe, where), where.accelerator, programs(recipe)
    if isinstance(recipe, PretrainRecipe):
        found = memory_pretrain.estimates(recipe, dims, *at)
    else:
        assert isinstance(dims, Qwen3Dims)
        found = memory_grpo.estimates(recipe, dims, *at)
    return [memory.entry(one, where.accelerator.hbm_bytes) for one in found]


def memory_findings(entries: list[dict[str, Any]], recipe: Recipe, where: Slice) -> list[Finding]:
    return (
        [] if isinstance(recipe, TorchRecipe) else memory.findings(entries, lambda name: smaller(name, recipe, where))
    )


def smaller(name: str, recipe: JaxRecipe, where: Slice) -> str:
    """What to type when program `name` is too large."""
    parts = shards(recipe, resolved(recipe, where))
    return (
        pretrain.smaller(name, recipe, parts)
        if isinstance(recipe, PretrainRecipe)
        else memory_grpo.smaller(name, recipe, parts)
    )


def document(findings: list[Finding], estimated: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """What `podwright plan --json` prints and plan.json keeps. Programs and step are for those who compile."""
    refused = any(f.level == "error" for f in findings)
    unsure = any(f.check == "memory" and f.level == "warning" for f in findings)
    ok = False if refused else None if unsure else True
    return {"ok": ok, "findings": [asdict(f) for f in findings], "memory": estimated or [], "programs": [], "step": {}}


def refuse(document: dict[str, Any]) -> None:
    """Raise the first error of a plan as a UserError, if there is one."""
    errors = [f for f in document["findings"] if f["level"] == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: `podwright plan` shows all)" if len(errors) > 1 else ""
        raise UserError(errors[0]["message"] + more, errors[0]["fix"])
