"""Everything that can be said about a recipe on a target without jax: the static part of a plan."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.plan.findings import Finding
from podwright.plan.inputs import data, model
from podwright.plan.meshes import mesh, shards
from podwright.plan.rewards import rewards, thoughts
from podwright.plan.sufficiency import context, epochs
from podwright.recipe.schema import Recipe


def check(recipe: Recipe, num_devices: int | None, cwd: Path) -> list[Finding]:
    """`num_devices` is None where only the machine itself knows; relative paths start at `cwd`."""
    findings, dims = model(recipe.model, cwd)
    findings += data(recipe.data, cwd)
    for reward in recipe.rewards:
        findings += rewards(reward.function, cwd)
        findings += thoughts(reward.function, recipe.data)
    findings += mesh(recipe, num_devices)
    if dims is not None:
        findings += shards(recipe.mesh.tensor, dims)
        findings += context(recipe.rollout, dims)
    return findings + epochs(recipe, cwd)


def document(findings: list[Finding]) -> dict[str, Any]:
    """What `podwright plan --json` prints and plan.json keeps. Programs and step are for those who compile."""
    ok = not any(f.level == "error" for f in findings)
    return {"ok": ok, "findings": [asdict(f) for f in findings], "programs": [], "step": {}}


def refuse(document: dict[str, Any]) -> None:
    """Raise the first error of a plan as a UserError, if there is one."""
    errors = [f for f in document["findings"] if f["level"] == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: `podwright plan` shows all)" if len(errors) > 1 else ""
        raise UserError(errors[0]["message"] + more, errors[0]["fix"])
