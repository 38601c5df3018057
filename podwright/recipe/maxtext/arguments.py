"""What MaxText takes from the arguments of a run: batch, mesh, precision, profiler. Defaults are those of its base.yml.

Source: src/maxtext/configs/base.yml of MaxText e591f30 (2026-08-22).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from podwright.errors import UserError
from podwright.recipe.maxtext import argument_types

Arguments = Mapping[str, str]
"""of MaxText, by key"""
AXES = (
    "diloco",
    "data",
    "pipeline",
    "fsdp",
    "fsdp_transpose",
    "context",
    "context_usp_ulysses",
    "context_autoregressive",
    "tensor",
    "tensor_sequence",
    "expert",
    "autoregressive",
)
"""of the mesh, in MaxText's order (mesh_axes), as its keys `ici_AXIS_parallelism` and `dcn_AXIS_parallelism` call them"""
_AXES_OF_MODEL = {
    "deepseek3-671b-2dfsdp": ("diloco", "data", "pipeline", "fsdp", "fsdp_transpose", "expert", "context")
}
"""models whose yml has mesh_axes of its own"""
BATCH_AXES = ("diloco", "data", "pipeline", "fsdp", "fsdp_transpose", "expert")
"""that split rows of the batch; the context axes split sequences"""
FREE = -1
"""size of the axis that takes all devices that are left"""


@dataclass(frozen=True)
class RunBatch:
    """Sequences of one step. `per_device` may be a fraction: several devices then share a sequence."""

    per_device: float
    length: int
    """tokens of a sequence"""
    micro_batches: int
    """gradient_accumulation_steps"""

    @property
    def tokens_per_device(self) -> float:
        return self.per_device * self.length * self.micro_batches

    def rows(self, num_devices: int) -> float:
        """Sequences of one step on all devices."""
        return self.per_device * num_devices * self.micro_batches


def batch(arguments: Arguments) -> RunBatch:
    """UserError for a value that is no number."""
    return RunBatch(
        number(arguments, "per_device_batch_size", 12.0, most=1e6),
        integer(arguments, "max_target_length", 2048, most=100_000_000),
        integer(arguments, "gradient_accumulation_steps", 1, most=1_000_000),
    )


def steps(arguments: Arguments) -> int:
    """Of the run; -1 stands for learning_rate_schedule_steps. UserError for what is no whole number above 0."""
    key = "learning_rate_schedule_steps"
    return integer(
        arguments, key if arguments.get("steps") == "-1" and key in arguments else "steps", 150_001, example=30
    )


def precision(arguments: Arguments) -> str:
    """Of the products: bf16, or that of quantized ones, such as fp8 and int8."""
    quantization = arguments.get("quantization", "")
    return next((kind for kind in ("fp8", "int8") if quantization.startswith(kind)), quantization or "bf16")


def axes(arguments: Arguments) -> tuple[str, ...]:
    """Of the mesh, in the order in which they are laid over the links."""
    return _AXES_OF_MODEL.get(arguments.get("model_name", ""), AXES)


def ici(arguments: Arguments) -> dict[str, int]:
    """The mesh inside a slice as the arguments have it, by axis; FREE for an axis that takes the rest."""
    return _mesh(arguments, "ici", "fsdp")


def dcn(arguments: Arguments) -> dict[str, int]:
    """The mesh over slices as the arguments have it."""
    return _mesh(arguments, "dcn", "data")


def filled(mesh: Mapping[str, int], product: int) -> dict[str, int] | None:
    """`mesh` over so many devices or slices, with a number for FREE; None where it does not come out."""
    free = [axis for axis, n in mesh.items() if n == FREE]
    fixed = math.prod(n for n in mesh.values() if n != FREE)
    if len(free) > 1 or fixed < 1 or product % fixed or (not free and fixed != product):
        return None
    return {axis: product // fixed if n == FREE else n for axis, n in mesh.items()}


def flag(arguments: Arguments, key: str, default: bool = False) -> bool:
    """UserError for what is neither true nor false."""
    value = argument_types.truth(arguments.get(key, str(default)))
    if value is None:
        raise UserError(
            f"{key}={arguments[key]} is neither true nor false",
            f"type arguments.{key}=true or arguments.{key}=false",
            "not-a-truth-value",
        )
    return value


def number(arguments: Arguments, key: str, default: float, most: float = 1e9) -> float:
    """UserError for what is no number above 0 and up to `most`."""
    text = arguments.get(key, str(default))
    value = argument_types.number(text)
    if value is None or not 0 < value <= most:
        what = f"{key}={text:.60} is not a number above 0 and up to {most:,.0f}"
        raise UserError(what, f"type arguments.{key}={default:g}", "not-a-number")
    return value


def integer(
    arguments: Arguments, key: str, default: int, least: int = 1, most: int = 1_000_000_000, example: int = 0
) -> int:
    """UserError for what is no whole number of at least `least` and up to `most`: it says to type `example`, 0 for the default."""
    text = arguments.get(key, str(default))
    value = argument_types.number(text)
    fix = f"type arguments.{key}={example or max(default, least)}"
    if value is None or not value.is_integer() or not least <= value <= most:
        what = f"{key}={text:.60} is not a whole number of at least {least} and up to {most:,}"
        raise UserError(what, fix, "not-a-number")
    return int(value)


def _mesh(arguments: Arguments, network: str, free: str) -> dict[str, int]:
    mesh = {}
    for axis in AXES:
        key = f"{network}_{axis}_parallelism"
        if argument_types.number(arguments.get(key, "")) == FREE or (key not in arguments and axis == free):
            mesh[axis] = FREE
        else:
            mesh[axis] = integer(arguments, key, 1)
    return mesh
