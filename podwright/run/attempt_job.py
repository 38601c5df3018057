"""The job of an attempt, for its submission and for a dry run."""

from __future__ import annotations

from pathlib import Path

from podwright.recipe.kinds import RecipeKind
from podwright.rundir import STORAGE_OPTION, Record
from podwright.targets.base import Job


def job_of(
    kind: RecipeKind,
    recipe: Record,
    run_dir: Path,
    number: int,
    cwd: Path,
    created: float | None,
    *,
    storage: str,
    allocation: str,
    takeover: bool = False,
    exclude: tuple[str, ...] = (),
) -> Job:
    """Attempt `number` of a run that was created at Unix time `created` (None: a dry run) and is kept at the URL `storage`: "" for its directory.

    `recipe`: what recipe.json holds. `allocation`: the name of its machines, "" where they need no request.
    `takeover`: nothing of an earlier attempt is left that could still write to the storage.
    """
    command = (*kind.command, *_storage_options(storage, allocation, takeover))
    environment, each = kind.environment, kind.one_gpu_each
    return Job(run_dir, number, cwd, created, command, environment, storage, exclude, allocation, recipe, each)


def _storage_options(storage: str, allocation: str, takeover: bool) -> tuple[str, ...]:
    """Words of the trainer's command."""
    if not storage:
        return ()
    named = ("--allocation", allocation) if allocation else ()
    return *STORAGE_OPTION, *named, *(("--takeover",) if takeover else ())
