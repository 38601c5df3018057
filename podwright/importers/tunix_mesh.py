"""tunix's meshes of actor, reference and rollout, which are one mesh in a recipe."""

from __future__ import annotations

import ast
from typing import Any

from podwright.errors import UserError
from podwright.importers.key_table import NOTHING, Settings
from podwright.importers.tunix_file import ROLES
from podwright.recipe.load import Raw

_AXES = {"fsdp": "fsdp", "tp": "tensor", "tensor": "tensor", "dp": "data", "data": "data"}


def note(key: str, values: Settings, raw: Raw) -> str:
    """What became of `ROLE.mesh.shape` or `ROLE.mesh.axis_names`; the recipe has the mesh of the actor, where that has one."""
    role = key.partition(".")[0]
    roles = ("actor_model_config", *ROLES)
    owner = next(r for r in roles if f"{r}.mesh.shape" in values or r == role)
    sizes = _sizes(role, values)
    raw["mesh"] = _sizes(owner, values)
    shown = " ".join(f"mesh.{axis}={size}" for axis, size in sizes.items())
    if role == owner:
        return f"it is {shown}, for rollout, scores and updates; for another number of devices type mesh.fsdp=-1"
    if sizes == raw["mesh"]:
        return f"{NOTHING}it is the mesh of {owner}"
    return f"it would be {shown}; rollout, scores and updates have one mesh here, that of {owner}: to take this one, type {shown}"


def _sizes(role: str, values: Settings) -> dict[str, int]:
    """Devices by axis of the recipe's mesh."""
    shape = _tuple(f"{role}.mesh.shape", values.get(f"{role}.mesh.shape", "(2,2)"), int)
    names = _tuple(f"{role}.mesh.axis_names", values.get(f"{role}.mesh.axis_names", "('fsdp','tp')"), str)
    if len(shape) != len(names):
        what = f"{role}.mesh has {len(shape)} sizes and {len(names)} names of axes"
        raise UserError(what, "write shape: \"(4,4)\" and axis_names: \"('fsdp','tp')\"", "unknown-mesh")
    sizes = {"data": 1, "fsdp": 1, "tensor": 1}
    for size, name in zip(shape, names, strict=True):
        if name not in _AXES or size < 1:
            what = f"{role}.mesh: axis {name!r} of size {size} has no counterpart"
            raise UserError(what, f"axes are {', '.join(_AXES)}, of size 1 or more", "unknown-mesh")
        sizes[_AXES[name]] *= size
    return sizes


def _tuple(key: str, value: Any, kind: type) -> tuple[Any, ...]:
    """A tuple that is written as a text, or a list."""
    parsed = value
    if isinstance(value, str):
        try:
            parsed = ast.literal_eval(value[:200])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            parsed = None
    if not isinstance(parsed, list | tuple) or not all(type(x) is kind for x in parsed) or not parsed:
        example = '"(4,4)"' if kind is int else "\"('fsdp','tp')\""
        raise UserError(f"{key}={value!r:.40} is no tuple", f"write {example}", "unknown-mesh")
    return tuple(parsed)
