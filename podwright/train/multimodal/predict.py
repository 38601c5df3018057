"""One answer to one picture, sound or video, by the model that a run has trained; and the file that tells of it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import torch

from podwright.data import media
from podwright.data.annotated import Example, prompt_ids
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import ethogram
from podwright.recipe.load import parse
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.rundir import RunDir, write_json
from podwright.train.multimodal import features, inputs, model
from podwright.train.multimodal.decode import Grammar, answers
from podwright.train.multimodal.loop import WEIGHTS

INSTRUCTION = "Describe the state of this cat."


def predict(path: Path, files: dict[str, Path], instruction: str, out: Path | None) -> dict[str, Any]:
    """The document that is written to `out`, or into the run's folder results/."""
    run = RunDir(path)
    recipe, state, name = _trained(run)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    built = model.build(recipe, inputs.weights(recipe.model.source))
    built.load_trained(state)
    built.to(device)
    tokenizer = Tokenizer.load(run.tokenizer)
    grammar = Grammar(tokenizer, recipe.evaluation.max_new_tokens)
    asked = Example(0, instruction or _instruction(run), {}, files)
    try:
        values, present = features.one_line(asked, features.sight(recipe), device)
    except media.Unreadable as e:
        raise UserError(f"{', '.join(map(str, files.values()))} cannot be used: {e}", "give a file that can be decoded") from e
    prompt = prompt_ids(tokenizer, recipe.data.system_prompt, asked.instruction)
    (text,) = answers(built, grammar, recipe, [prompt], values.to(device), present.to(device), texts=True)
    document = _document(run, name, files, text)
    kind = document["input_type"]
    place = out or run.path / "results" / f"inference_{kind}_{datetime.datetime.now():%Y%m%d_%H%M%S}.json"
    write_json(place, document)
    return document | {"written_to": str(place)}


def _trained(run: RunDir) -> tuple[MultimodalRecipe, dict[str, torch.Tensor], str]:
    """The recipe and what was trained, by model.pt alone."""
    place = run.path / WEIGHTS
    if not place.is_file():
        raise UserError(f"{run.path} has no {WEIGHTS}: the run has not finished", f"type podwright resume {run.typed}")
    try:
        found = torch.load(place, map_location="cpu", weights_only=True)
        recipe, state, name = parse(found["config"]), found["model_state_dict"], found["run_id"]
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"{place} cannot be read ({type(e).__name__})", "train again, or copy it again") from e
    assert isinstance(recipe, MultimodalRecipe)
    return recipe, state, name


def _instruction(run: RunDir) -> str:
    """That of the first training line, where the lines are at hand: a model that was asked one thing is asked that."""
    made = run.path / "data" / "train.jsonl"
    try:
        with made.open() as f:
            return str(json.loads(f.readline())["instruction"])
    except (OSError, ValueError, KeyError):
        return INSTRUCTION


def _document(run: RunDir, name: str, files: dict[str, Path], text: str) -> dict[str, Any]:
    answer = json.loads(text)
    faults = [f"{field} {message}" for field, message in ethogram.answer_faults(answer)]
    return {
        "timestamp": datetime.datetime.now().isoformat(),
        "input_type": "video" if "video" in files else "_".join(files) or "text",
        "model_checkpoint": str(run.path / WEIGHTS),
        "metadata": {"model_version": name, "phase": "phase2", "schema_version": ethogram.VERSION},
        "input_file": ", ".join(map(str, files.values())) or None,
        "analysis": answer | {"raw_model_output": text, "parsing_note": "; ".join(faults)},
    }
