"""A throw-away kind of recipe whose trainer is not ours: a script that counts. All that it takes is here and a row in KINDS."""

import sys
from pathlib import Path
from typing import Literal

from pydantic import Field

from podwright.plan.findings import Finding
from podwright.plan.kinds import PlanPart
from podwright.recipe.kinds import RecipeKind
from podwright.recipe.schema import Checkpoint, Expect, PositiveInt, Section
from podwright.report import timing
from podwright.report.kinds import KindFacts
from podwright.report.records import Records, Result
from podwright.rundir import Record
from podwright.slices import Slice

SCRIPT = """
import json, os, pathlib, sys, time
run, attempt = pathlib.Path(sys.argv[1]), int(sys.argv[2])
recipe = json.loads((run / "recipe.json").read_text())
for step in range(1, recipe["training"]["max_steps"] + 1):
    record = {"stage": "counting", "step": step, "unit": os.environ["COUNTED"], "time": time.time(), "attempt": attempt, "count": step * recipe["by"], "step_s": 0.1}
    with (run / "metrics.jsonl").open("a") as f:
        f.write(json.dumps(record) + chr(10))
ending = {"ending": "FINISHED", "detail": "", "fix": "", "step": step}
(run / "attempts" / str(attempt) / "exit.json").write_text(json.dumps(ending))
"""


class CountingTraining(Section):
    max_steps: PositiveInt


class CountingEvaluation(Section):
    every_n_steps: int = 0


class CountingRecipe(Section):
    kind: Literal["counting"]
    name: str
    description: str
    expect: Expect
    by: PositiveInt = Field(description="what is added in a step")
    training: CountingTraining
    evaluation: CountingEvaluation = CountingEvaluation()
    checkpoint: Checkpoint = Checkpoint()
    trackers: tuple[str, ...] = ()
    seed: int = 0


class CountingPlan(PlanPart[CountingRecipe]):
    def checks(self, recipe: CountingRecipe, where: Slice | None, cwd: Path) -> list[Finding]:
        if recipe.by > 100:
            return [Finding("data", "error", f"by={recipe.by} is more than 100", "type by=100")]
        return [Finding("data", "info", f"counts to {recipe.by * recipe.training.max_steps}")]


class CountingReport:
    FACTS = KindFacts(step="step", steady={"step_s": ("step", "s")})
    PLOTS = ()

    def figures(self, records: Records, tests: list[Record]) -> Result:
        return {"count": timing.last(records.steps(), "count"), "units": {}}

    def breakdown(self, records: Records) -> dict[str, float]:
        return {}

    def say(self, result: Result) -> str:
        return f"It counted to {result['count']:g}."

    def also(self, result: Result) -> str:
        return ""


PLAN, REPORT = CountingPlan(), CountingReport()
ROW = RecipeKind(
    "counting",
    CountingRecipe,
    lambda recipe, steps: {"training.max_steps": steps},
    "tests.unit.counting_kind:PLAN",
    "tests.unit.counting_kind:REPORT",
    command=(sys.executable, "-c", SCRIPT, "{run_dir}", "{attempt}"),
    environment={"COUNTED": "sheep"},
)
