"""One answer to one picture, sound or video, by the model that a run has trained; and the file that tells of it."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import torch

from podwright.data import media
from podwright.data.annotated import AnnotatedExample, prompt_ids
from podwright.errors import UserError
from podwright.recipe.answers import AnswerSchema
from podwright.rundir import RunDir, write_json
from podwright.train.multimodal.data import features
from podwright.train.multimodal.inference import trained
from podwright.train.multimodal.inference.decode import Grammar, answered


def predict(path: Path, files: dict[str, Path], instruction: str, out: Path | None) -> dict[str, Any]:
    """The document that is written to `out`, or into the run's folder results/."""
    opened = trained.open_(path)
    run, recipe = opened.run, opened.recipe
    schema = recipe.data.schema_of_answers
    example = AnnotatedExample(0, instruction or _instruction(run, schema), {}, files)
    prompt = prompt_ids(opened.tokenizer, recipe.data.system_prompt, example.instruction)
    if len(prompt) >= recipe.data.max_text_length:
        what = f"the prompt has {len(prompt)} tokens, and prompt and answer share data.max_text_length={recipe.data.max_text_length}"
        raise UserError(what, "give a shorter --text", "too-long")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    opened.model.to(device)
    grammar = Grammar(opened.tokenizer, schema, recipe.evaluation.max_new_tokens)
    try:
        values, present = features.one_line(example, features.sight(recipe), device)
    except media.Unreadable as e:
        raise UserError(
            f"{', '.join(map(str, files.values()))} cannot be used: {e}",
            "give a file that can be decoded",
            "undecodable-files",
        ) from e
    (text,) = answered(opened.model, grammar, recipe, [prompt], values.to(device), present.to(device), texts=True)
    document = _document(opened, files, text)
    kind = document["input_type"]
    place = out or run.path / "results" / f"inference_{kind}_{datetime.datetime.now():%Y%m%d_%H%M%S}.json"
    write_json(place, document)
    return document | {"written_to": str(place)}


def _instruction(run: RunDir, schema: AnswerSchema) -> str:
    """That of the first training line, where the lines are at hand: a model that was asked one thing is asked that."""
    lines_path = run.path / "data" / "train.jsonl"
    try:
        with lines_path.open() as f:
            return str(json.loads(f.readline())["instruction"])
    except (OSError, ValueError, KeyError):
        return schema.instruction


def _document(opened: trained.Trained, files: dict[str, Path], text: str) -> dict[str, Any]:
    answer = json.loads(text)
    schema = opened.recipe.data.schema_of_answers
    faults = [f"{field} {message}" for field, message in schema.answer_faults(answer)]
    return {
        "timestamp": datetime.datetime.now().isoformat(),
        "input_type": "video" if "video" in files else "_".join(files) or "text",
        "model_checkpoint": str(opened.file),
        "metadata": {"model_version": opened.name, "phase": "phase2", "schema_version": schema.version},
        "input_file": ", ".join(map(str, files.values())) or None,
        "analysis": answer | {"raw_model_output": text, "parsing_note": "; ".join(faults)},
    }
