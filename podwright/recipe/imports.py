"""Configuration of other frameworks as a recipe: which framework a file belongs to, and what an import leaves behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.recipe import purrsight_files, tunix_file
from podwright.recipe.yaml_file import read

IMPORTABLE = f"{purrsight_files.IMPORTABLE}; or an override file of tunix, with lines such as 'grpo_config:'"


@dataclasses.dataclass(frozen=True)
class Imported:
    recipe: dict[str, Any]
    notes: dict[str, str]
    """key of the file -> its key and value in the recipe, what to type instead, or why nothing is needed"""
    target: list[str]
    """words to type for the cluster, [] where the file names none"""
    argv: list[str] = dataclasses.field(default_factory=list)
    """the words of `xpk workload create`, [] where the file is no launch script"""


def imported(path: Path, phase: int | None = None, overrides: Sequence[str] = ()) -> Imported:
    """The recipe of a file of PurrSight or tunix, recognised by its keys.

    `phase`: of PurrSight. `overrides`: `key=value` of tunix, as its command line takes them. UserError for a file that is neither.
    """
    from podwright.recipe import purrsight, tunix

    raw = read(path, IMPORTABLE)
    if tunix_file.recognised(raw) and purrsight_files.recognised(raw):
        raise UserError(f"{path} has settings of tunix and of PurrSight", "split it into two files, and import each")
    if tunix_file.recognised(raw):
        if phase is not None:
            raise UserError(f"{path} is a file of tunix, which has no phases", f"leave --phase {phase} out")
        recipe, notes = tunix.converted(path, tunix_file.settings(path, raw, overrides))
        return Imported(recipe, notes, [])
    if overrides:
        raise UserError(
            f"{overrides[0]}: keys are typed after a file of tunix only", "change the recipe that is written"
        )
    return Imported(*purrsight.converted(path, raw, phase))
