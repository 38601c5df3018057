"""What trainers answer in `python -m podwright.train check`: one record a finding, and what is said of the weights of any model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from podwright import extras
from podwright.data.rows import MissingPackage
from podwright.errors import UserError, expanded
from podwright.recipe import hf_weights
from podwright.recipe.hf_weights import Shapes
from podwright.recipe.location import Unreachable
from podwright.rundir import Record


def record(check: str, level: str, message: str, fix: str = "", code: str = "") -> Record:
    return {"check": check, "level": level, "code": code, "message": message, "fix": fix}


def collected(check: str, ask: Callable[[], Iterable[Record]], extra: str = "torch") -> list[Record]:
    """What is answered, until something is refused or cannot be looked at. `extra`: brings packages that no list names."""
    records: list[Record] = []
    try:
        for each in ask():
            records.append(each)
    except MissingPackage as e:
        records.append(record(check, "inconclusive", e.what, e.fix, "missing-package"))
    except Unreachable as e:  # the machine that trains may well reach it
        records.append(record(check, "inconclusive", f"{check} was not checked: {e.what}", e.fix, "unreachable"))
    except UserError as e:
        records.append(record(check, "error", e.what, e.fix, e.code))
    except ImportError as e:
        fix = extras.install(extras.of(e.name or "") or extra)
        records.append(record(check, "inconclusive", f"{check} was not checked: {e}", fix, "missing-package"))
    return records


def without_weights(source: str, wanted: Shapes, by_transformers: bool = False) -> list[Record]:
    """That the directory of a model has no weights yet; [] where it has, and UserError for weights that training refuses."""
    directory = expanded(source)
    if not hf_weights.present(directory):
        hf_weights.refuse_other_layouts(directory)
        what = f"model.source={source} has a config.json and no weights, which a run needs"
        fix = f"put {hf_weights.SINGLE} there, or shards with their index, or type model.source=random"
        return [record("model", "inconclusive", what, fix, "no-weights")]
    hf_weights.check(directory, wanted, by_transformers)
    return []
