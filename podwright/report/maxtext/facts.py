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
from podwright.recipe.maxtext.published import PublishedRun
from podwright.report.words import Sentence
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
    def peak_precision(self) -> str | None:
        """Of `peak_flops`; None where that of the run is not known and the chip has several."""
        row = self.accelerator
        if row is None or (self.precision is None and row.fp8_flops > row.bf16_flops):
            return None
        return self.precision if self.precision and row.peak_flops(self.precision) else "bf16"

    @property
    def peak_flops(self) -> float | None:
        """FLOP/s of a device in the run's precision; in the fastest one that could be meant where it is not known."""
        row = self.accelerator
        if row is None or not row.bf16_flops:
            return None
        precision = self.peak_precision
        return row.peak_flops(precision) if precision else max(row.bf16_flops, row.fp8_flops)

    def without_architecture(self) -> RunFacts:
        """Without the FLOPs of the recipe's architecture and length, which are probably not the log's."""
        return dataclasses.replace(self, flops_per_token=None, flops_source=None, of_another=True)

    def counted(self, flops_per_token: float, model: str) -> RunFacts:
        text = "{model}, forward and backward, causal attention over {length} tokens"
        source = Sentence(text, model=model, length=self.sequence_length)
        return dataclasses.replace(self, flops_per_token=flops_per_token, flops_source=source)

    @property
    def config(self) -> str:
        """Sequence length, precision and slice in a word, as folders of tpu-recipes are named."""
        length = self.sequence_length
        tokens = None if length is None else f"{length // 1024}k" if length % 1024 == 0 else str(length)
        slice_name = self.slice.name if self.slice else None
        return "-".join(part for part in (tokens, self.precision, slice_name) if part)


def gathered(known: SetUp, recipe: Recipe | None, on: str) -> RunFacts:
    """Of a log, and of a recipe and a slice where they are named. UserError for a slice that does not exist."""
    settings = {key: _plain(value) for key, value in known.settings.items()}
    stated = _arguments(recipe)
    given = stated | settings
    slice_ = ran_on(on) if on else _slice(recipe)
    devices = known.devices
    accelerator = by_device_kind(known.device_kind or "")
    conflicts = []
    if slice_:
        accelerator = slice_.accelerator
        devices = devices or slice_.num_devices
        if devices != slice_.num_devices:
            text = "{n} devices in the log, {num_devices} in {slice}"
            conflicts.append(Sentence(text, n=devices, num_devices=slice_.num_devices, slice=slice_.name))
    differing = [
        key for key in _COMPARED if key in settings and key in stated and not _equal(settings[key], stated[key])
    ]
    for key in differing:
        text = "{key} is {logged} in the log and {stated} in the recipe: probably another recipe"
        conflicts.append(Sentence(text, key=key, logged=settings[key], stated=stated[key]))
    length = _integer(given, "max_target_length") or getattr(recipe, "sequence_length", None)
    name = _inner(recipe, "model", "name") or hybrid.of_maxtext(stated or given)
    dims = hybrid.find(name, _inner(recipe, "model", "gate") or "") if name in hybrid.MODELS else None
    run_name = given.get("run_name", "")
    stated_versions = getattr(recipe, "versions", ())  # pairs of name and value
    profiled = None
    if given.get("profiler"):
        profiled = ProfiledSteps(*(_integer(_PROFILER | given, key, least=0) or 0 for key in _PROFILER))
    facts = RunFacts(
        name="" if "${" in run_name else run_name,
        recipe=recipe.name if recipe else None,
        model=getattr(recipe, "model_name", None) or _inner(recipe, "model", "name") or given.get("model_name"),
        precision=_precision(recipe, given),
        slice=slice_,
        accelerator=accelerator,
        devices=devices,
        steps_planned=_integer(given, "steps") or _inner(recipe, "training", "max_steps"),
        sequence_length=length,
        batch_size=_batch(given, devices) or _inner(recipe, "batch_size"),
        num_params=dims.num_params() if dims else None,
        num_active_params=dims.num_active_params() if dims else None,
        profiled=profiled,
        versions={name: value for name, value in stated_versions if value} | known.versions,
        data=given.get("dataset_type") or _inner(recipe, "data", "source"),
        conflicts=tuple(conflicts),
    )
    if "model_name" in differing:
        return facts.without_architecture()
    if not length:
        return facts
    if dims is not None:
        return facts.counted(3 * dims.forward_flops(1, length / 2), name)
    try:
        model = architectures.find({key: value for key, value in (stated or given).items() if value})
    except UserError:
        return facts
    return facts.counted(flops.per_token(model, length).total, (stated or given)["model_name"])


def ran_on(name: str) -> Slice:
    try:
        return slices.parse(name)
    except slices.UnknownSlice as e:
        fix = f"type --on with the slice that it ran on, such as {slices.EXAMPLES}"
        raise UserError(f"--on {name} is no slice", fix, "unknown-slice") from e


def _plain(value: str) -> str:
    """A value as an argument has it: newer releases print QuantizationType.FP8_FULL for fp8_full, and NONE for nothing."""
    enum = re.fullmatch(r"[A-Z]\w*\.([A-Z0-9_]+)", value)
    plain = enum[1].lower() if enum else value
    return "" if plain in ("none", "None") else plain


def _arguments(recipe: Recipe | None) -> dict[str, str]:
    """MaxText's arguments of a recipe; {} of another kind."""
    given = getattr(recipe, "arguments", None)
    return dict(given) if isinstance(given, dict) else {}


_DTYPES = {"bfloat16": "bf16", "float32": "fp32"}
_PROFILER = {"skip_first_n_steps_for_profiler": "1", "profiler_steps": "5", "profile_periodically_period": "0"}
"""MaxText's keys of `ProfiledSteps` in their order, with its defaults"""
_COMPARED = ("model_name", "steps", "max_target_length", "per_device_batch_size", "quantization")


def require_maxtext(recipe: Recipe) -> None:
    """UserError for a recipe that no log of MaxText is of: neither of kind maxtext nor of a model that a fork of MaxText trains."""
    if recipe.kind != "maxtext" and _inner(recipe, "model", "name") not in hybrid.MODELS:
        what = f"--recipe {recipe.name} is of kind {recipe.kind}, and the log is one of MaxText"
        raise UserError(what, "name the recipe that podwright recipe import wrote, or leave --recipe out", "wrong-kind")


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


def _precision(recipe: Recipe | None, given: dict[str, str]) -> str | None:
    if given.get("quantization"):
        return arguments.precision(given)
    if dtype := given.get("dtype"):
        return _DTYPES.get(dtype, dtype)
    return getattr(recipe, "precision", None) or _DTYPES.get(str(_inner(recipe, "model", "compute_dtype")))


def _batch(given: dict[str, str], devices: int | None) -> int | None:
    if total := _integer(given, "global_batch_size_to_train_on"):
        return total
    if not devices or "per_device_batch_size" not in given:
        return None
    try:
        return round(arguments.batch(given).rows(devices))
    except UserError:
        return None


def published_run(facts: RunFacts) -> PublishedRun | None:
    """What the authors of a public recipe measured with the same model, batch, length, precision and slice; None where nobody did."""
    if facts.of_another or facts.slice is None or facts.model is None or facts.batch_size is None:
        return None
    ours = (facts.model, facts.slice, facts.sequence_length, facts.batch_size, facts.precision)
    for run in published.runs():
        theirs = slices.parse(run.on)
        batch = arguments.batch(run.arguments)
        precision = arguments.precision(run.arguments)
        if ours == (run.model, theirs, batch.length, batch.rows(theirs.num_devices), precision):
            return run
    return None


def _integer(given: dict[str, str], key: str, least: int = 1) -> int | None:
    """None for what is absent, or no whole number of at least `least`."""
    try:
        return arguments.integer(given, key, least, least) if key in given else None
    except UserError:
        return None


def _inner(value: Any, *names: str) -> Any:
    for name in names:
        value = getattr(value, name, None)
    return value
