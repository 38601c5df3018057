"""A script file run in the sandbox as an import runs it, with the files beside it."""

from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from podwright.recipe.maxtext import tree
from podwright.sandbox import evaluation, stage
from podwright.sandbox.evaluation import Evaluated
from podwright.sandbox.stage import Script, Surroundings
from podwright.shell import Shell

AT_S = 1_767_225_600
"""2026-01-01, the time that `date` tells"""


def evaluate(
    script: Path,
    values: Mapping[str, str],
    *,
    limit_s: float = evaluation.SECONDS,
    user: str = "user",
    home: str = "",
) -> Evaluated:
    """What `script` does with `values` that were typed, for a user with that home (below /home, if none is given)."""
    source = Script(script, stage.read(script), tree.siblings(script))
    seen = Surroundings(user, home or f"/home/{user}", AT_S, "UTC")
    with mock.patch.object(evaluation, "SECONDS", limit_s):
        return evaluation.run(source, values, Shell(), seen)
