"""tunix's models of actor, reference and rollout, which are one model on one mesh in a recipe."""

from __future__ import annotations

import ast
from typing import Any

from podwright.errors import UserError
from podwright.recipe import models
from podwright.recipe.load import Raw
from podwright.recipe.tunix_file import ROLES
from podwright.recipe.tunix_keys import CHOICES, NOTHING, Settings, assign, chosen

_OF_MODEL = {
    "model_path": "model.source says where the weights are",
    "model_download_path": "weights of the hub are in its own cache",
    "intermediate_ckpt_dir": "weights are read from the checkpoint as they are",
    "model_display": "a plan shows the parameters",
    "use_flash_attention": "the kernel is chosen by the accelerator",
    "flash_attention_block_size": "the kernel is chosen by the accelerator",
    "param_dtype": "weights that are trained are float32",
    "mesh.allocation_policy": "there is one mesh over all devices",
    "same_mesh_as": "there is one mesh over all devices",
    "lora_config.module_path": "adapters are on every matrix of every layer",
    "lora_config.tile_size": "it belongs to quantized weights",
}
_AXES = {"fsdp": "fsdp", "tp": "tensor", "tensor": "tensor", "dp": "data", "data": "data"}


def note(key: str, rest: str, values: Settings, raw: Raw) -> str:
    """A key of the actor's model, of the reference's or of the rollout's: here they are one model on one mesh."""
    value = values[key]
    for role in ROLES:
        other = values.get(f"{role}.{rest}", value)
        if other != value and not rest.startswith("mesh"):
            what = f"{key}={value!r:.40} and {role}.{rest}={other!r:.40} differ: policy, reference and rollout are one model here"
            raise UserError(what, "write the same in both")
    if rest in _OF_MODEL:
        return NOTHING + _OF_MODEL[rest]
    if rest in ("dtype", "remat"):
        return chosen(key, value, *CHOICES[rest], raw)
    if rest in ("mesh.shape", "mesh.axis_names"):
        return _mesh(key, values, raw)
    if rest == "model_id":
        return assign(raw, "model.source", value)
    if rest == "model_name":
        if not isinstance(value, str):
            raise UserError(f"{key}={value!r:.40} is no name", "write qwen3-1.7b")
        known = value in models.MODELS
        note = "" if known else "; dimensions are read from the config.json of the checkpoint, which has to be a Qwen3"
        return assign(raw, "model.name", value) + note
    if rest == "model_source":
        return _source(key, value)
    if rest == "rng_seed":
        return assign(raw, "seed", value)
    if rest == "lora_config" and value in (None, {}):
        return f"{NOTHING}all parameters are trained"
    if rest in ("lora_config.rank", "lora_config.alpha"):
        return assign(raw, f"model.lora_{rest.rpartition('.')[2]}", value)
    if rest == "lora_config.weight_qtype":
        return "frozen weights are not quantized, but have model.compute_dtype; to check the memory, type podwright plan RECIPE --on SLICE"
    if rest == "mesh" and value in (None, {}):
        return f"{NOTHING}it is empty"
    fix = "take it out; `podwright recipes show` lists ours"
    raise UserError(f"{key} is no key of tunix that is known here", fix)


def _source(key: str, value: Any) -> str:
    if value in ("huggingface", "", None):
        return f"{NOTHING}model.source is a directory or an id of the Hugging Face hub"
    if value in ("kaggle", "gcs", "internal", "maxtext"):
        return f"weights are read in Hugging Face's layout; type model.source=DIRECTORY of such a checkpoint, in place of {value}"
    raise UserError(f"{key}={value!r:.40} is no source", "write huggingface")


def _mesh(key: str, values: Settings, raw: Raw) -> str:
    role = key.partition(".")[0]
    owner = next(r for r in ("actor_model_config", *ROLES) if f"{r}.mesh.shape" in values or r == role)
    sizes, raw["mesh"] = _sizes(role, values), _sizes(owner, values)
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
        raise UserError(what, "write shape: \"(4,4)\" and axis_names: \"('fsdp','tp')\"")
    sizes = {"data": 1, "fsdp": 1, "tensor": 1}
    for size, name in zip(shape, names, strict=True):
        if name not in _AXES or size < 1:
            what = f"{role}.mesh: axis {name!r} of size {size} has no counterpart"
            raise UserError(what, f"axes are {', '.join(_AXES)}, of size 1 or more")
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
        raise UserError(f"{key}={value!r:.40} is no tuple", f"write {example}")
    return tuple(parsed)
