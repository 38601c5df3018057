"""A Program is one jitted step with the abstract shapes of its arguments: the loop runs it, the plan compiles it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

RATE = jax.ShapeDtypeStruct((), jnp.float32)
"""of the learning rate of an update, which is that of the step's number; np.float32 when it is called"""


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    step: Callable[..., Any]
    """a jitted function"""
    arguments: tuple[Any, ...]
    """ShapeDtypeStructs with shardings, one tree per argument"""
    resident: dict[str, Any] = dataclasses.field(default_factory=dict)
    """what else the loop keeps on the devices while this program runs, as ShapeDtypeStructs"""

    def __call__(self, *arguments: Any) -> Any:
        return self.step(*arguments)

    def trace(self) -> jax.stages.Traced:
        return self.step.trace(*self.arguments)  # type: ignore[attr-defined]

    def lower(self) -> jax.stages.Lowered:
        return self.trace().lower()
