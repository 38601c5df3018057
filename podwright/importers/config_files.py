"""Which program a configuration file belongs to, and what an import of it leaves behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.importers import purrsight, purrsight_files, tunix, tunix_file
from podwright.recipe.yaml_file import read

IMPORTABLE = f"{purrsight_files.IMPORTABLE}; or a file of tunix, with 'grpo_config:'"


@dataclasses.dataclass(frozen=True)
class Imported:
    recipe: dict[str, Any]
    notes: dict[str, str]
    """key of the file -> its key and value in the recipe, what to type instead, or why nothing is needed"""
    target: list[str]
    """words to type for the cluster, [] where the file names none"""
    argv: list[str] = dataclasses.field(default_factory=list)
    """the words of `xpk workload create`, [] where the file is no launch script"""


def owners_of(raw: dict[Any, Any]) -> list[str]:
    """The programs that a file has settings of."""
    return [name for name, file in (("tunix", tunix_file), ("PurrSight", purrsight_files)) if file.recognised(raw)]


def require_single_owner(path: Path, owners: Sequence[str]) -> None:
    """UserError for a file with settings of several: which of them is meant, only its user knows."""
    if len(owners) > 1:
        raise UserError(
            f"{path} has settings of {' and of '.join(owners)}",
            "split it into two files, and import each",
            "several-programs",
        )


def imported(path: Path, phase: int | None = None, overrides: Sequence[str] = ()) -> Imported:
    """The recipe of a file of PurrSight or tunix, recognised by its keys.

    `phase`: of PurrSight. `overrides`: `key=value` of tunix, as its command line takes them. UserError for a file that is neither.
    """
    raw = read(path, IMPORTABLE)
    owners = owners_of(raw)
    require_single_owner(path, owners)
    if owners == ["tunix"]:
        if phase is not None:
            raise UserError(
                f"{path} is a file of tunix, which has no phases", f"leave --phase {phase} out", "unknown-option"
            )
        return Imported(*tunix.converted(path, tunix_file.settings(path, raw, overrides)), [])
    if overrides:
        raise UserError(
            f"{overrides[0]}: keys are typed after a file of tunix only",
            "change the recipe that is written",
            "not-an-override",
        )
    return Imported(*purrsight.converted(path, raw, phase))
