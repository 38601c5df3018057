"""What is known of the run behind a log: from its recipe and its slice, else from the configuration that the log printed. Nothing is guessed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from podwright import slices
from podwright.accelerators import Accelerator, by_device_kind
from podwright.errors import UserError
from podwright.recipe import hybrid
from podwright.recipe.kinds import Recipe
from podwright.recipe.maxtext import architectures, arguments, flops, published
from podwright.report.words import Sentence
from podwright.rundir import Record
from podwright.slices import Slice
from podwright.watch.maxtext_lines import SetUp


@dataclasses.dataclass(frozen=True)
class ProfiledSteps:
    """Of each attempt: `num` steps from the step number `skip` of the attempt on, and again every `period` steps (0: once)."""

    skip: int
    num: int
    period: int = 0

    def steps(self, first: int, last: int) -> Iterator[int]:
        """Those of an attempt with the steps `first` to `last`. The step after the traced ones is among them: it waits until the
        trace is written."""
        begin = first + self.skip
        while begin <= last:
            yield from range(begin, min(begin + self.num, last) + 1)
            if not self.period:
                return
            begin += self.period


@dataclasses.dataclass(frozen=True)
class RunFacts:
    name: str = ""
    recipe: str | None = None
    model: str | None = None
    precision: str | None = None
    slice: Slice | None = None
    accelerator: Accelerator | None = None
    devices: int | None = None
    steps_planned: int | None = None
    sequence_length: int | None = None
    batch_size: int | None = None
    """sequences of a step, over all devices"""
    flops_per_token: float | None = None
    """forward and backward, by the architecture"""
    flops_source: Sentence | None = None
    of_another: bool = False
    """a recipe is named, and the log is probably of another model or length"""
    num_params: int | None = None
    """by the dimensions of a hybrid model, where Podwright knows them"""
    num_active_params: int | None = None
    """those of them that a token meets"""
    profiled: ProfiledSteps | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    data: str | None = None
    conflicts: tuple[Sentence, ...] = ()
    """what log and recipe say differently"""

    @property
    def devices_per_chip(self) -> int | None:
        return self.accelerator.devices_per_chip if self.accelerator else None

    @property
    def chips(self) -> int | None:
        each = self.devices_per_chip
        return self.devices // each if self.devices and each else None

    @property
    def tokens_per_step(self) -> int | None:
        return self.batch_size * self.sequence_length if self.batch_size and self.sequence_length else None

    def tokens_per_s(self, step_s: float | None) -> float | None:
        """Of a device, by the batch of the recipe."""
        if not (self.tokens_per_step and self.devices and step_s):
            return None
        return self.tokens_per_step / self.devices / step_s

    def per_chip(self, per_device: float | None) -> float | None:
        each = self.devices_per_chip
        return None if per_device is None or each is None else per_device * each

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of a device in the run's precision; in the fastest one that could be meant where it is not known."""
        row = self.accelerator
        if row is None or not row.bf16_flops:
            return None
        if self.precision is None:
            return max(row.bf16_flops, row.fp8_flops)
        return (row.fp8_flops or row.bf16_flops) if self.precision.startswith("fp8") else row.bf16_flops

    @property
    def peak_precision(self) -> str | None:
        """Of `peak_flops`; None where that of the run is not known and the chip has several."""
        row = self.accelerator
        if row is None or (self.precision is None and row.fp8_flops > row.bf16_flops):
            return None
        return "fp8" if (self.precision or "").startswith("fp8") and row.fp8_flops else "bf16"

    def without_architecture(self) -> RunFacts:
        """Without the FLOPs of the recipe's architecture and length, which are probably not the log's."""
        return dataclasses.replace(self, flops_per_token=None, flops_source=None, of_another=True)

    @property
    def config(self) -> str:
        """Sequence length, precision and slice in a word, as folders of tpu-recipes are named."""
        length = self.sequence_length
        tokens = None if length is None else f"{length // 1024}k" if length % 1024 == 0 else str(length)
        return "-".join(part for part in (tokens, self.precision, self.slice.name if self.slice else None) if part)


def gathered(known: SetUp, recipe: Recipe | None, on: str) -> RunFacts:
    """Of a log, and of a recipe and a slice where they are named. UserError for a slice that does not exist."""
    settings = {key: _plain(value) for key, value in known.settings.items()}
    given = _arguments(recipe) | settings
    place = ran_on(on) if on else _slice(recipe)
    row = place.accelerator if place else by_device_kind(known.device_kind or "")
    devices = known.devices or (place.num_devices if place else None)
    conflicts = []
    if place and known.devices and known.devices != place.num_devices:
        text = "{n} devices in the log, {num_devices} in {slice}"
        conflicts.append(Sentence(text, n=known.devices, num_devices=place.num_devices, slice=place.name))
    differing = _differing(settings, recipe)
    for key in differing:
        text = "{key} is {logged} in the log and {stated} in the recipe: probably another recipe"
        conflicts.append(Sentence(text, key=key, logged=settings[key], stated=_arguments(recipe)[key]))
    length = _positive(given, "max_target_length") or getattr(recipe, "sequence_length", None)
    flops_per_token, source = _flops(recipe, _arguments(recipe) or given, length)
    dims = _hybrid(recipe, _arguments(recipe) or given)
    facts = RunFacts(
        name=given.get("run_name", "") if "${" not in given.get("run_name", "") else "",
        recipe=recipe.name if recipe else None,
        model=_model(recipe) or given.get("model_name"),
        precision=_precision(recipe, given),
        slice=place,
        accelerator=row,
        devices=devices,
        steps_planned=_positive(given, "steps") or _inner(recipe, "training", "max_steps"),
        sequence_length=length,
        batch_size=_batch(given, devices) or _inner(recipe, "batch_size"),
        flops_per_token=flops_per_token,
        flops_source=source,
        num_params=dims.num_params() if dims else None,
        num_active_params=dims.num_active_params() if dims else None,
        profiled=_profiled(given),
        versions=_versions(recipe) | known.versions,
        data=given.get("dataset_type") or _inner(recipe, "data", "source"),
        conflicts=tuple(conflicts),
    )
    return facts.without_architecture() if "model_name" in differing else facts


def ran_on(name: str) -> Slice:
    try:
        return slices.parse(name)
    except slices.UnknownSlice as e:
        guess = re.fullmatch(r"did you mean --on (?!local)\S+", e.fix)
        fix = e.fix if guess else f"type --on with the slice that it ran on, such as {slices.EXAMPLES}"
        raise UserError(f"--on {name} is no slice", fix) from e


def _plain(value: str) -> str:
    """A value as an argument has it: newer releases print QuantizationType.FP8_FULL for fp8_full, and NONE for nothing."""
    enum = re.fullmatch(r"[A-Z]\w*\.([A-Z0-9_]+)", value)
    plain = enum[1].lower() if enum else value
    return "" if plain in ("none", "None") else plain


def _arguments(recipe: Recipe | None) -> dict[str, str]:
    """MaxText's arguments of a recipe; {} of another kind."""
    given = getattr(recipe, "arguments", None)
    return dict(given) if isinstance(given, dict) else {}


_COMPARED = ("model_name", "steps", "max_target_length", "per_device_batch_size", "quantization")


def require_maxtext(recipe: Recipe) -> None:
    """UserError for a recipe that no log of MaxText is of: neither of kind maxtext nor of a model that a fork of MaxText trains."""
    if recipe.kind != "maxtext" and _inner(recipe, "model", "name") not in hybrid.MODELS:
        what = f"--recipe {recipe.name} is of kind {recipe.kind}, and the log is one of MaxText"
        raise UserError(what, "name the recipe that podwright recipe import wrote, or leave --recipe out")


def _differing(settings: dict[str, str], recipe: Recipe | None) -> list[str]:
    given = _arguments(recipe)
    return [key for key in _COMPARED if key in settings and key in given and not _equal(settings[key], given[key])]


def _equal(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return a == b


def _slice(recipe: Recipe | None) -> Slice | None:
    """The slice that a recipe is for: its topology, else the hardware that it expects where that is the name of one."""
    if (topology := getattr(recipe, "topology", None)) is not None:
        place = slices.parse(topology)
        return dataclasses.replace(place, num_slices=place.num_slices * getattr(recipe, "num_slices", 1))
    try:
        return slices.parse(str(_inner(recipe, "expect", "hardware") or ""))
    except UserError:
        return None


def _model(recipe: Recipe | None) -> str | None:
    return getattr(recipe, "model_name", None) or _inner(recipe, "model", "name")


def _precision(recipe: Recipe | None, arguments: dict[str, str]) -> str | None:
    quantization = arguments.get("quantization", "")
    if quantization:
        return "fp8" if quantization.startswith("fp8") else quantization
    if arguments.get("dtype"):
        return {"bfloat16": "bf16", "float32": "fp32"}.get(arguments["dtype"], arguments["dtype"])
    if (stated := getattr(recipe, "precision", None)) is not None:
        return str(stated)
    return {"bfloat16": "bf16", "float32": "fp32"}.get(str(_inner(recipe, "model", "compute_dtype")))


def _batch(arguments: dict[str, str], devices: int | None) -> int | None:
    if total := _positive(arguments, "global_batch_size_to_train_on"):
        return total
    each = _number(arguments.get("per_device_batch_size"))
    parts = _int(arguments, "gradient_accumulation_steps") or 1
    return round(each * devices * parts) if each and each > 0 and devices else None


def _profiled(arguments: dict[str, str]) -> ProfiledSteps | None:
    if not arguments.get("profiler"):
        return None
    skip, num = _int(arguments, "skip_first_n_steps_for_profiler"), _int(arguments, "profiler_steps")
    period = _int(arguments, "profile_periodically_period") or 0
    return ProfiledSteps(1 if skip is None else skip, 5 if num is None else num, max(0, period))


def _versions(recipe: Recipe | None) -> dict[str, str]:
    stated = getattr(recipe, "versions", None)
    return {name: value for name, value in stated.model_dump().items() if value} if stated else {}


def _flops(recipe: Recipe | None, given: dict[str, str], length: int | None) -> tuple[float | None, Sentence | None]:
    """FLOPs of a token by the architecture, and how they were counted."""
    if not length:
        return None, None
    if (dims := _hybrid(recipe, given)) is not None:
        name = _inner(recipe, "model", "name") or hybrid.of_maxtext(given)
        return 3 * dims.forward_flops(1, length / 2), _counted(name, length)
    try:
        model = architectures.find({key: value for key, value in given.items() if value})
    except UserError:
        return None, None
    return flops.per_token(model, length).total, _counted(given["model_name"], length)


def _hybrid(recipe: Recipe | None, given: dict[str, str]) -> hybrid.HybridDims | None:
    """The dimensions of a model with KDA or MLA that Podwright knows; None of another one."""
    name = _inner(recipe, "model", "name") or hybrid.of_maxtext(given)
    return hybrid.find(name, _inner(recipe, "model", "gate") or "") if name in hybrid.MODELS else None


def _counted(model: str, length: int) -> Sentence:
    text = "{model}, forward and backward, causal attention over {length} tokens"
    return Sentence(text, model=model, length=length)


def published_row(facts: RunFacts) -> Record | None:
    """What the authors of a public recipe measured with the same model, batch, length, precision and slice; None where nobody did."""
    if facts.of_another or facts.slice is None or facts.model is None or facts.batch_size is None:
        return None
    for run in published.runs():
        place, batch = slices.parse(run.on), arguments.batch(run.arguments)
        precision = "fp8" if run.arguments.get("quantization", "").startswith("fp8") else "bf16"
        theirs = (run.model, place, batch.length, batch.rows(place.num_devices), precision)
        if theirs == (facts.model, facts.slice, facts.sequence_length, facts.batch_size, facts.precision):
            return {
                "recipe": run.recipe,
                "source": run.source,
                "step_s": run.step_s,
                "tflops_per_chip": run.tflops_per_chip,
                "tokens_per_s_per_chip": run.tokens_per_s_per_chip,
            }
    return None


def _int(arguments: dict[str, str], key: str) -> int | None:
    value = _number(arguments.get(key))
    return None if value is None or value != int(value) else int(value)


def _positive(arguments: dict[str, str], key: str) -> int | None:
    value = _int(arguments, key)
    return value if value and value > 0 else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def _inner(value: Any, *names: str) -> Any:
    for name in names:
        value = getattr(value, name, None)
    return value
