"""How long a step of a MaxText recipe takes: the work of each resource, at the shares of their peaks that published runs reach.

seconds = sum over resources of cost x work, times a factor for what the formula leaves out. The costs (1 is the data sheet's peak) are
fitted by least squares of relative errors over the published runs (recipe/maxtext/published.py), drawn to a prior where they say little.
The factor is the product of what is left of the runs' errors by chip, by kind of model, by model and by its precision, each drawn to 1
by the number of runs behind it. A published run is never used for the prediction of a recipe that has its arguments.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from podwright import slices
from podwright.errors import UserError, counted
from podwright.plan.compiled.step_time import bill
from podwright.plan.document import ProgramSeconds, RunTotals, StepEntry
from podwright.plan.estimates.maxtext_work import RESOURCES, StepWork, quantized_peak, work
from podwright.plan.findings import Finding
from podwright.recipe.maxtext import architectures, flops, published
from podwright.recipe.maxtext import arguments as arguments_of
from podwright.recipe.maxtext.arguments import Arguments
from podwright.recipe.maxtext.published import PublishedRun
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.slices import Slice

PRIORS = {
    "matmul": 1.4,
    "quantized": 1.7,
    "attention": 2.8,
    "elementwise": 1.3,
    "routing": 2.5,
    "links": 0.3,
    "network": 1.0,
}
"""costs before any run is looked at: 72 % of the peak for products, 36 % for attention, 80 % of memory bandwidth; links mostly hidden"""
_PRIOR_WEIGHT = 0.04  # of a cost that is off by its whole prior, against the square of one run's relative error
# by level of RunSample.groups: runs without an error of their own that a group is given; how little members differ beside how much groups do
_SHRINKAGE = (4.0, 2.0, 0.25, 0.1)


@dataclass(frozen=True)
class RunSample:
    """One run, published or to be predicted."""

    arguments: Arguments
    where: Slice
    work: StepWork

    @property
    def chip(self) -> str:
        return self.where.accelerator.name

    @property
    def model(self) -> str:
        return _model(self.arguments)

    @property
    def kind(self) -> str:
        """Of the model: dense or mixture of experts."""
        return "experts" if architectures.find(self.arguments).num_moe_layers else "dense"

    @property
    def precision(self) -> str:
        return self.arguments.get("quantization", "")

    @functools.cached_property
    def groups(self) -> tuple[str, ...]:
        """From the widest to the narrowest."""
        of_model = f"{self.chip} {self.model}"
        own = f"{of_model} {self.precision} {self.arguments.get('max_target_length', '')}"
        return (self.chip, f"{self.chip} {self.kind} {self.precision}", of_model, own)


@dataclass(frozen=True)
class RunCalibration:
    """What a set of published runs says."""

    costs: tuple[float, ...]
    """by RESOURCES"""
    factors: Mapping[str, float]
    """by group, as logarithms"""

    def seconds(self, sample: RunSample) -> float:
        return _priced(self.costs, sample.work) * math.exp(sum(self.factors.get(g, 0.0) for g in sample.groups))


@dataclass(frozen=True)
class StepTime:
    step_s: float
    bound: str
    """compute, hbm or links: what most of the time goes to"""
    runs: int
    """published runs that the figure rests on"""
    same_model: int
    """of them, those of its model on its chip"""
    median_error: float
    """of published runs predicted in the same way from the others"""
    range_s: tuple[float, float]
    """in which 8 of 10 of them would lie"""
    published: PublishedRun | None
    """the figure of the recipe itself, which was left out"""


@functools.cache
def samples() -> tuple[tuple[PublishedRun, RunSample], ...]:
    """Published runs that the formula covers."""
    covered = []
    for run in published.runs():
        if run.model not in architectures.WITHOUT_FORMULA:
            covered.append((run, sample(run.arguments, slices.parse(run.on))))
    return tuple(covered)


def sample(arguments: Arguments, where: Slice) -> RunSample:
    """UserError for what the formula does not cover."""
    return RunSample(arguments, where, work(arguments, where))


def predict(arguments: Arguments, where: Slice) -> StepTime:
    """UserError for a model without a formula, and for a chip without published runs."""
    wanted = sample(arguments, where)
    own = next((run for run, other in samples() if is_same(wanted, other)), None)
    others = [(run, other) for run, other in samples() if run is not own]
    if all(other.chip != wanted.chip for _, other in others):
        raise UserError(
            f"no MaxText run on {wanted.chip} is published", "its step time is measured, not predicted", "no-estimate"
        )
    calibration = calibrate(others)
    same_model = sum(other.chip == wanted.chip and other.model == wanted.model for _, other in others)
    errors = sorted((left_out() if same_model else models_left_out()).values())
    step_s = calibration.seconds(wanted)
    tenth = len(errors) // 10
    return StepTime(
        step_s=step_s,
        bound=_bound(calibration, wanted),
        runs=len(others),
        same_model=same_model,
        median_error=statistics.median(map(abs, errors)),
        range_s=(step_s / (1 + errors[-1 - tenth]), step_s / (1 + errors[tenth])),
        published=own,
    )


def check(recipe: MaxTextRecipe, where: Slice) -> list[Finding]:
    """Why no step time is predicted, where none is."""
    try:
        predict(recipe.arguments, where)
    except UserError as e:
        return [Finding("model", "info", f"step time not known: {e.what}; {e.fix}")]
    return []


def entry(recipe: MaxTextRecipe, where: Slice, price: float | None) -> StepEntry | None:
    """Of a step and of all steps, without the time of the first compilation; None for what the formula does not cover."""
    try:
        predicted = predict(recipe.arguments, where)
        steps = arguments_of.steps(recipe.arguments)
    except UserError:
        return None
    batch = arguments_of.batch(recipe.arguments)
    per_second = flops.per_device(architectures.find(recipe.arguments), batch) / predicted.step_s
    steps_s = steps * predicted.step_s
    return StepEntry(
        estimated=True,
        programs=(ProgramSeconds(name="step", runs=1, seconds=predicted.step_s, bound=predicted.bound),),
        step_s=predicted.step_s,
        range_s=predicted.range_s,
        tokens_per_s_per_device=batch.tokens_per_device / predicted.step_s,
        tflops_per_device=per_second / 1e12,
        mfu=per_second / (quantized_peak(recipe.arguments, where.accelerator) or where.accelerator.bf16_flops),
        run=RunTotals(
            steps=steps, evaluations=None, steps_s=steps_s, evaluations_s=None, **bill(steps_s / 3600, where, price)
        ),
        notes=tuple(_notes(recipe, predicted, where)),
    )


def _notes(recipe: MaxTextRecipe, predicted: StepTime, where: Slice) -> list[str]:
    chip = where.accelerator.name
    model = _model(recipe.arguments)
    number = counted(predicted.same_model, "run") if predicted.same_model else "none"
    own = f"{number} of {model} on {chip} among them"
    low, high = predicted.range_s
    notes = [
        f"from the published step times of {predicted.runs} other runs, {own}; in the median such a prediction is off by "
        f"{100 * predicted.median_error:.1f} %, and 8 of 10 lie within {low:.3g} to {high:.3g} s"
    ]
    if predicted.published:
        figure = predicted.published
        notes.append(f"published for this recipe: {figure.step_s:g} s a step ({figure.source}), not used here")
    return notes


def is_same(a: RunSample, b: RunSample) -> bool:
    """Whether two runs do the same work on the same slice."""
    return (a.where, a.model, a.precision, a.work) == (b.where, b.model, b.precision, b.work)


@functools.cache
def left_out() -> Mapping[str, float]:
    """The relative error of every published run's prediction from all the others, by recipe."""
    return _errors(lambda run, other: run is other)


@functools.cache
def models_left_out() -> Mapping[str, float]:
    """The same without any run of its model."""
    return _errors(lambda run, other: _model(run.arguments) == _model(other.arguments))


def _errors(hidden: Callable[[PublishedRun, PublishedRun], bool]) -> dict[str, float]:
    errors = {}
    for run, own in samples():
        others = [(other, sample) for other, sample in samples() if not hidden(run, other)]
        errors[run.recipe] = calibrate(others).seconds(own) / run.step_s - 1
    return errors


def calibrate(runs: Sequence[tuple[PublishedRun, RunSample]]) -> RunCalibration:
    """Costs and factors that fit `runs`; twins that differ in the size of the slice alone share the weight of one run."""
    twins = Counter(own.groups[-1] for _, own in runs)
    weights = [1.0 / twins[own.groups[-1]] for _, own in runs]
    rows = [[seconds / run.step_s for seconds in own.work.values()] for run, own in runs]
    costs = _least_squares(rows, weights, [PRIORS[name] for name in RESOURCES])
    left = [math.log(run.step_s / _priced(costs, own.work)) for run, own in runs]
    factors: dict[str, float] = {}
    for level, added in enumerate(_SHRINKAGE):
        members: dict[str, list[int]] = {}
        for i, (_, own) in enumerate(runs):
            members.setdefault(own.groups[level], []).append(i)
        for group, indices in members.items():
            total = sum(weights[i] for i in indices)
            factors[group] = sum(left[i] * weights[i] for i in indices) / (total + added)
            for i in indices:
                left[i] -= factors[group]
    return RunCalibration(costs, factors)


def _model(arguments: Arguments) -> str:
    """MaxText's name of the model; one that differs in its sharding alone has the same."""
    return arguments["model_name"].removesuffix("-2dfsdp")


def _priced(costs: Sequence[float], step: StepWork) -> float:
    return sum(cost * seconds for cost, seconds in zip(costs, step.values(), strict=True))


def _bound(calibration: RunCalibration, wanted: RunSample) -> str:
    priced = dict(
        zip(RESOURCES, (c * s for c, s in zip(calibration.costs, wanted.work.values(), strict=True)), strict=True)
    )
    by_bound = {
        "compute": priced["matmul"] + priced["quantized"] + priced["attention"],
        "hbm": priced["elementwise"] + priced["routing"],
        "links": priced["links"] + priced["network"],
    }
    return max(by_bound, key=lambda name: by_bound[name])


def _least_squares(
    rows: Sequence[Sequence[float]], weights: Sequence[float], priors: Sequence[float]
) -> tuple[float, ...]:
    """Costs c >= 0 that minimise sum w (row . c - 1)^2 + _PRIOR_WEIGHT sum (c / prior - 1)^2."""
    num = len(priors)
    products = [[0.0] * num for _ in range(num)]
    targets = [0.0] * num
    for row, weight in zip(rows, weights, strict=True):
        for j in range(num):
            targets[j] += weight * row[j]
            for k in range(num):
                products[j][k] += weight * row[j] * row[k]
    for k, prior in enumerate(priors):
        products[k][k] += _PRIOR_WEIGHT / prior**2
        targets[k] += _PRIOR_WEIGHT / prior
    free = list(range(num))
    while True:  # what comes out below 0 has no cost, and the others are fitted without it
        matrix = [[products[j][k] for k in free] for j in free]
        solved = _solved(matrix, [targets[k] for k in free])
        negative = [k for k, cost in zip(free, solved, strict=True) if cost < 0]
        if not negative:
            costs = dict(zip(free, solved, strict=True))
            return tuple(costs.get(k, 0.0) for k in range(num))
        free = [k for k in free if k not in negative]


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """x of matrix x = right, by elimination; the matrix is positive definite."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k, pivot in enumerate(rows):
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    x = [0.0] * len(rows)
    for k in reversed(range(len(rows))):
        x[k] = (rows[k][-1] - sum(rows[k][j] * x[j] for j in range(k + 1, len(rows)))) / rows[k][k]
    return x
