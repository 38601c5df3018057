"""What trainers answer in `python -m podwright.train check`: one record a finding, and what is said of the weights of any model."""

from __future__ import annotations

from podwright.errors import expanded
from podwright.recipe import hf_weights
from podwright.recipe.hf_weights import Shapes
from podwright.rundir import Record


def record(check: str, level: str, message: str, fix: str = "", code: str = "") -> Record:
    return {"check": check, "level": level, "code": code, "message": message, "fix": fix}


def without_weights(source: str, wanted: Shapes) -> list[Record]:
    """That the directory of a model has no weights yet; [] where it has, and UserError for weights that training refuses."""
    directory = expanded(source)
    if not hf_weights.present(directory):
        hf_weights.refuse_other_layouts(directory)
        what = f"model.source={source} has a config.json and no weights, which a run needs"
        fix = f"put {hf_weights.SINGLE} there, or shards with their index, or type model.source=random"
        return [record("model", "inconclusive", what, fix, "no-weights")]
    hf_weights.check(directory, wanted)
    return []
