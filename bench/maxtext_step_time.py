"""Predicted against published step times of public MaxText recipes, each without its own figure.

python bench/maxtext_step_time.py predict --out bench/results/maxtext_step_time_predictions-DATE.json
python bench/maxtext_step_time.py compare bench/results/maxtext_step_time_predictions-DATE.json --out bench/results/maxtext_step_time-DATE.json

python bench/maxtext_step_time.py tree TPU_RECIPES

`predict` writes no published figure, so that predictions can be committed before they are compared. `others`: from all other published
runs, the same model on another topology among them. `other_models`: without any run of that model. `compare` adds the published step
time, the errors and their median; a model without a formula stays in the table and counts as the largest error. `tree` imports the launch scripts of a checkout of
tpu-recipes and says whether each does the work of the published run of its folder, so that a plan of it leaves that run out.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from stamp import keep, stamp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from podwright.plan.checks import maxtext
from podwright.plan.estimates import maxtext_step_time as step_time
from podwright.recipe import load
from podwright.recipe.maxtext import published, tree
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.sandbox import read

WAYS = ("others", "other_models")


def predictions() -> dict[str, Any]:
    rows = []
    covered = {run.recipe: own for run, own in step_time.samples()}
    for run in published.runs():
        row: dict[str, Any] = {"recipe": run.recipe, "on": run.on}
        if own := covered.get(run.recipe):
            others = [(r, s) for r, s in step_time.samples() if r is not run]
            row["others"] = round(step_time.calibrate(others).seconds(own), 4)
            strangers = [(r, s) for r, s in others if s.model != own.model]
            row["other_models"] = round(step_time.calibrate(strangers).seconds(own), 4)
        rows.append(row)
    costs = step_time.calibrate(step_time.samples()).costs
    return {"costs_of_all": dict(zip(step_time.RESOURCES, (round(c, 3) for c in costs), strict=True)), "rows": rows}


def comparison(predicted: dict[str, Any]) -> dict[str, Any]:
    runs = {run.recipe: run for run in published.runs()}
    rows = []
    for row in predicted["rows"]:
        run = runs[row["recipe"]]
        new = row | {"published": run.step_s, "source": run.source}
        for way in WAYS:
            new[f"error_{way}"] = round(row[way] / run.step_s - 1, 4) if way in row else None
        rows.append(new)
    summary = {}
    for group in ("ironwood", "trillium", "v5p", ""):
        members = [row for row in rows if row["recipe"].startswith(group)]
        summary[group or "all"] = {"recipes": len(members)} | {way: errors(members, way) for way in WAYS}
    return {"predictions": predicted["commit"], "summary": summary, "rows": rows}


def errors(rows: list[dict[str, Any]], way: str) -> dict[str, float]:
    absolute = [math.inf if row[f"error_{way}"] is None else abs(row[f"error_{way}"]) for row in rows]
    known = [value for value in absolute if value < math.inf]
    return {
        "median": round(statistics.median(absolute), 4),
        "largest": max(known),
        "without_formula": len(absolute) - len(known),
    }


def same_work(checkout: Path) -> dict[str, Any]:
    """By recipe folder, whether its own script has the arguments that its published figure is kept with."""
    rows = {}
    published_runs = {run.recipe: (run, own) for run, own in step_time.samples()}
    for path in tree.scripts(checkout / "training" / "ironwood")[0]:
        folder = path.parent if path.parent.name != "xpk" else path.parent.parent
        result = read.read(path, tree.text_of(path), {"USER": "user"}, datetime.now().astimezone(), tree.siblings(path))
        recipe = load.require(load.parse(result.recipe), MaxTextRecipe)
        row = published_runs.get(str(folder.relative_to(checkout / "training")))
        if row:
            rows[row[0].recipe] = step_time.is_same(
                step_time.sample(recipe.arguments, maxtext.written_for(recipe)), row[1]
            )
    return {"same": sum(rows.values()), "rows": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "compare", "tree"])
    parser.add_argument("path", nargs="?", type=Path, help="predictions, or a checkout")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if chosen.what == "predict":
        return keep(stamp(__file__) | predictions(), chosen.out)
    if chosen.what == "tree":
        return keep(stamp(__file__) | same_work(chosen.path), chosen.out)
    return keep(stamp(__file__) | comparison(json.loads(chosen.path.read_text())), chosen.out)


if __name__ == "__main__":
    raise SystemExit(main())
