"""Whether the model that a recipe names is there and what it is, as far as this machine can tell."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from podwright.errors import UserError, abbreviated, expanded, nearest
from podwright.plan.checks import hub, patience
from podwright.plan.findings import Finding, of_error
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.models import MODELS, Qwen3Dims, check_name, find
from podwright.recipe.paths import looks_like_path, missing, require_directory
from podwright.recipe.schema import GrpoModel

DIRECTORY = "give model.source as a directory with a config.json"
"""what to type where the dimensions of a model are not known here"""


def model(section: GrpoModel, cwd: Path) -> tuple[list[Finding], Qwen3Dims | None]:
    """Findings, and the dimensions when they are known: of random weights by name, of a checkpoint by its config.json."""
    try:
        findings, dims = ([], find(section.name)) if section.source == "random" else _checkpoint(section, cwd)
    except UserError as e:
        return [of_error("model", e)], None
    if dims is not None:
        findings += _sizes(section, dims)
    return findings, dims


def _sizes(section: GrpoModel, dims: Qwen3Dims) -> list[Finding]:
    what, rank = f"{section.name} has {abbreviated(dims.num_params())} parameters", section.lora_rank
    if not rank:
        return [Finding("model", "info", what)]
    if refused := lora_rank(section.name, rank, dims.hidden_size):
        return refused
    return [Finding("model", "info", f"{what}; {abbreviated(dims.num_lora_params(rank))} trainable in adapters")]


def lora_rank(name: str, rank: int, hidden_size: int) -> list[Finding]:
    """An error for adapters of a higher rank than the products have that they are added to."""
    if rank <= hidden_size:
        return []
    wrong = f"model.lora_rank={rank} is more than the hidden size of {name}, {hidden_size}"
    fix = f"type model.lora_rank={min(16, hidden_size)}, or 0 to train all parameters"
    return [Finding("model", "error", wrong, fix, "rank-too-large")]


def _checkpoint(section: GrpoModel, cwd: Path) -> tuple[list[Finding], Qwen3Dims | None]:
    directory = cwd / expanded(section.source)
    if not os.path.exists(directory):  # Path.exists raises for a name that no file can have
        return _of_hub(section, cwd)
    require_directory(f"model.source={section.source}", directory)
    try:
        dims = hf_config.qwen3(hf_config.read(directory))
        check_name(section.name, section.source, dims)
        return lora_rank(section.name, section.lora_rank, dims.hidden_size), dims
    except UserError as e:
        raise in_source(section.source, directory, e) from e


def in_source(source: str, directory: Path, error: UserError) -> UserError:
    """With the key that names the checkpoint, where the error does not say which it is."""
    named = str(directory) in error.what or error.what.startswith("model.source=")
    return error if named else UserError(f"model.source={source}: {error.what}", error.fix, error.code)


def to_start(source: str, cwd: Path, key: str = "model.source") -> list[Finding]:
    """What stands against starting a run from a model that could be planned."""
    directory = cwd / expanded(source)
    if source == "random" or not directory.is_dir() or hf_weights.present(directory):
        return []
    fix = f"put {hf_weights.SINGLE} there, or shards with their index, or type {key}=random"
    return [Finding("model", "error", f"{key}={source} has a config.json and no weights", fix, "no-weights")]


def _of_hub(section: GrpoModel, cwd: Path) -> tuple[list[Finding], Qwen3Dims | None]:
    """By its config.json where the hub gives it, else by the id's own name where that is a row of our table."""
    if error := missing_source(section.source, cwd):
        raise error
    if patience.left_out(patience.WEIGHTS):
        known = _known(section)
        if known:
            return [], known
    finding, config = hub.model(section.source)
    if config is not None:
        try:
            dims = hf_config.qwen3(config)
        except UserError as e:
            raise UserError(f"model.source={section.source}: {e.what}", e.fix, e.code) from e
        check_name(section.name, section.source, dims)
        return [finding], dims
    known = _known(section)
    if known is None and finding.level != "error":
        what = f"the dimensions of model.source={section.source} are not known here: mesh and context were not checked against them"
        return [finding, Finding("model", "inconclusive", what, DIRECTORY, "unknown-dimensions")], None
    return [finding], known


def _known(section: GrpoModel) -> Qwen3Dims | None:
    """Dimensions by the id's own name, where that is a row of our table. model.name may be the recipe's, of which another source was typed."""
    row = name_of_id(section.source, MODELS)
    if not row:
        return None
    check_name(section.name, section.source, MODELS[row])
    return MODELS[row]


def name_of_id(source: str, rows: Iterable[str]) -> str:
    """The row of a table that an id is named after: exactly, or as Qwen's own variants of a size are; "" for none."""
    owner, _, name = source.lower().rpartition("/")
    alike = [row for row in rows if name == row or (owner == "qwen" and name.startswith(f"{row}-"))]
    return max(alike, key=len, default="")


def missing_source(source: str, cwd: Path) -> UserError | None:
    """Of a model.source with nothing on this machine: a word that is misspelt, or a path; None for what may be a hub id."""
    if guess := nearest(source, ["random"]):
        return UserError(f"there is no model.source={source}", f"did you mean model.source={guess}?", "no-such-file")
    return missing("model.source", source, cwd) if looks_like_path(source, cwd) else None
