"""Whether the model and the data that a recipe names are there, as far as this machine can tell."""

from __future__ import annotations

import re
from pathlib import Path

from podwright.errors import UserError, nearest
from podwright.plan.findings import Finding
from podwright.recipe import hf_config, hf_weights
from podwright.recipe.hf_weights import Shapes
from podwright.recipe.models import MODELS, Qwen3Dims, check_name, find
from podwright.recipe.schema import GrpoData, GrpoModel

DIRECTORY = "give model.source as a directory with a config.json"
"""what to type where the dimensions of a model are not known here"""
WEIGHTS = f"put {hf_weights.SINGLE} there, or shards with their index, or type model.source=random"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def model(section: GrpoModel, cwd: Path) -> tuple[list[Finding], Qwen3Dims | None]:
    """Findings, and the dimensions when they are known: of random weights by name, of a checkpoint by its config.json."""
    try:
        findings, dims = ([], find(section.name)) if section.source == "random" else _checkpoint(section, cwd)
    except UserError as e:
        return [_error("model", e.what, e.fix)], None
    if dims is not None:
        findings += _sizes(section, dims)
    return findings, dims


def _sizes(section: GrpoModel, dims: Qwen3Dims) -> list[Finding]:
    what, rank = f"{section.name} has {dims.num_params() / 1e6:,.1f} M parameters", section.lora_rank
    if not rank:
        return [Finding("model", "info", what)]
    if rank > dims.hidden_size:
        wrong = f"model.lora_rank={rank} is more than the hidden size of {section.name}, {dims.hidden_size}"
        return [_error("model", wrong, "type model.lora_rank=16, or 0 to train all parameters")]
    return [
        Finding(
            "model", "info", f"{what}; {dims.num_lora_params(rank) / 1e6:,.1f} M in adapters are trained beside them"
        )
    ]


def _checkpoint(section: GrpoModel, cwd: Path) -> tuple[list[Finding], Qwen3Dims | None]:
    directory = cwd / Path(section.source).expanduser()
    if not directory.exists():
        return [elsewhere("model", section.source, ["random"])], MODELS.get(section.name)
    try:
        dims = hf_config.qwen3(hf_config.read(directory))
        check_name(section.name, section.source, dims)
        return weights(section.source, directory, hf_weights.qwen3(dims)), dims
    except UserError as e:
        raise in_source(section.source, directory, e) from e


def in_source(source: str, directory: Path, error: UserError, key: str = "model.source") -> UserError:
    """With the key that names the checkpoint, where the error does not say which it is."""
    named = str(directory) in error.what or error.what.startswith(f"{key}=")
    return error if named else UserError(f"{key}={source}: {error.what}", error.fix)


def weights(source: str, directory: Path, wanted: Shapes) -> list[Finding]:
    """What the headers of its files say of the weights in a model's directory; UserError where training would refuse them, or
    the tokenizer is missing."""
    if not hf_weights.present(directory):
        what = f"model.source={source} has a config.json and no weights, which a run needs"
        return [Finding("model", "inconclusive", what, WEIGHTS)]
    hf_weights.check(directory, wanted)
    if not (directory / "tokenizer.json").is_file():
        raise UserError(
            f"{directory} has no tokenizer.json", "give a Hugging Face directory that was saved with a fast tokenizer"
        )
    return []


def to_start(source: str, cwd: Path) -> list[Finding]:
    """What stands against starting a run from a model that could be planned."""
    directory = cwd / Path(source).expanduser()
    if source == "random" or not directory.is_dir() or hf_weights.present(directory):
        return []
    return [_error("model", f"model.source={source} has a config.json and no weights", WEIGHTS)]


def data(section: GrpoData, cwd: Path) -> list[Finding]:
    if section.source == "arithmetic":
        return []
    path = cwd / Path(section.source).expanduser()
    if not path.exists():
        return [elsewhere("data", section.source, ["arithmetic"])]
    if path.is_dir() and not any(path.glob("*.jsonl")) and not any(path.rglob("*.parquet")):
        return [
            _error(
                "data",
                f"data.source={section.source} is a directory without .jsonl files",
                "give one that holds train.jsonl and test.jsonl",
            )
        ]
    if path.is_file() and path.stat().st_size == 0:
        return [
            _error("data", f"data.source={section.source} is empty", "give a file of examples, one JSON object a line")
        ]
    return []


def elsewhere(check: str, source: str, words: list[str]) -> Finding:
    """About a source that is not a path on this machine: a hub id, or a slip."""
    guess = nearest(source, words)
    if guess:
        return _error(check, f"there is no {check}.source={source}", f"did you mean {check}.source={guess}?")
    if is_hub_id(source):
        return Finding(
            check,
            "inconclusive",
            f"{check}.source={source} is taken as a Hugging Face hub id; whether it is there is seen when the run starts",
        )
    return _error(check, f"{check}.source={source} is not there", "check the path")


def is_hub_id(source: str) -> bool:
    """As far as its look says."""
    return bool(_HUB_ID.fullmatch(source)) and Path(source).suffix not in (".jsonl", ".json")


def _error(check: str, message: str, fix: str) -> Finding:
    return Finding(check, "error", message, fix)
