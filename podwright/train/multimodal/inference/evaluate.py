"""What the model answers to held-out lines: how often it parses, how many fields are right, and how many without picture or sound.

The measure to beat is the answer that training lines give most often.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from podwright.data.annotated import AnnotatedExample
from podwright.recipe import answers
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import updates
from podwright.train.multimodal.data import batches
from podwright.train.multimodal.data.batches import LineBatches
from podwright.train.multimodal.inference.decode import Grammar, answered
from podwright.train.multimodal.networks.model import MODALITIES, Phase2
from podwright.train.multimodal.processes.world import World

Record = dict[str, Any]
_SAMPLES = 6


def loss(model: Phase2, lines: LineBatches, recipe: MultimodalRecipe, world: World, pad_id: int) -> float:
    """Nats a response token, over all lines. StopAsked where that is asked for on the way."""
    was_training = model.training
    model.eval()
    total = torch.zeros((), device=world.device)
    order = sorted(range(len(lines)), key=lines.lengths.__getitem__)
    with torch.no_grad(), updates.autocast(recipe, world.device):
        for part in _own(order, recipe, world):
            total += model(batches.collated(lines, part, pad_id).to(world.device))
    model.train(was_training)
    return float(world.summed(total)) / lines.num_targets(range(len(lines)))


def _own(rows: Sequence[int], recipe: MultimodalRecipe, world: World) -> Iterator[list[int]]:
    """This process's rows, a batch at a time. All processes come here equally often."""
    own = list(rows[world.rank :: world.size])
    size = recipe.evaluation.batch_size
    for start in range(0, -(-len(rows) // world.size), size):
        world.require_going_on()
        if part := own[start : start + size]:
            yield part


def grade(
    model: Phase2,
    lines: LineBatches,
    training: Sequence[AnnotatedExample],
    grammar: Grammar,
    recipe: MultimodalRecipe,
    world: World,
) -> tuple[Record, list[Record]]:
    """Figures of an evaluation, and a few answers. Every process answers its share; without `training` there is no answer to beat.
    StopAsked where that is asked for on the way."""
    texts = _answered(model, lines, grammar, recipe, world, texts=True)
    schema = grammar.schema
    given = [_parsed(text, schema) for text in texts]
    valid = [answer is not None for answer in given]
    fields = _right(given, lines, schema)
    figures = {
        "json_valid": sum(valid) / len(valid),
        "accuracy": _mean(fields),
        "fields": _short(fields),
    }
    if training:
        majority = {}
        for field in schema.fields:
            counts = collections.Counter(example.answer[field] for example in training)
            most = counts.most_common(1)[0][0]
            majority[field] = sum(example.answer[field] == most for example in lines.examples) / len(lines)
        figures["majority"] = _mean(majority)
        figures["majority_fields"] = _short(majority)
    for n, modality in enumerate(MODALITIES):
        rows = [i for i in range(len(lines)) if bool(lines.present[i].all())]
        if rows:
            figures[f"without_{modality}"] = _without(n, model, lines.take(rows), grammar, recipe, world)
    return figures, [
        _sample(e, text, answer, schema)
        for e, text, answer in list(zip(lines.examples, texts, given, strict=True))[:_SAMPLES]
    ]


def _without(
    n: int, model: Phase2, lines: LineBatches, grammar: Grammar, recipe: MultimodalRecipe, world: World
) -> Record:
    """The same lines with modality `n` taken away."""
    present = lines.present.clone()
    present[:, n] = False
    blind = LineBatches(lines.examples, lines.prompts, lines.responses, lines.features * present[..., None], present)
    schema = grammar.schema
    given = [_fields(text, schema) for text in _answered(model, blind, grammar, recipe, world, texts=False)]
    accuracies = _right(given, lines, schema)
    return {"accuracy": _mean(accuracies), "fields": _short(accuracies)}


def _answered(
    model: Phase2, lines: LineBatches, grammar: Grammar, recipe: MultimodalRecipe, world: World, *, texts: bool
) -> list[str]:
    own: list[tuple[int, str]] = []
    for part in _own(range(len(lines)), recipe, world):
        prompts = [lines.prompts[i] for i in part]
        features, present = lines.features[part].to(world.device), lines.present[part].to(world.device)
        own += zip(part, answered(model, grammar, recipe, prompts, features, present, texts=texts), strict=True)
    return [text for _, text in sorted(answer for process in world.gathered(own) for answer in process)]


def _parsed(text: str, schema: AnswerSchema) -> Record | None:
    """The fields of a valid answer."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return None if list(schema.answer_faults(answer)) else schema.flattened(answer)


def _fields(text: str, schema: AnswerSchema) -> Record | None:
    """Those of an answer that ends right after its last field."""
    try:
        return schema.flattened(json.loads(text + schema.closing), texts=False)
    except (ValueError, KeyError, TypeError):
        return None


def _right(given: Sequence[Record | None], lines: LineBatches, schema: AnswerSchema) -> dict[str, float]:
    right = dict.fromkeys(schema.fields, 0)
    for answer, example in zip(given, lines.examples, strict=True):
        for field in schema.fields:
            right[field] += answer is not None and answer[field] == example.answer[field]
    return {field: count / len(lines.examples) for field, count in right.items()}


def _short(accuracies: dict[str, float]) -> dict[str, float]:
    """By the last word of each field."""
    return {field.rpartition(".")[2]: share for field, share in accuracies.items()}


def _mean(accuracies: dict[str, float]) -> float:
    return sum(accuracies.values()) / len(accuracies)


def _sample(example: Any, text: str, answer: Record | None, schema: AnswerSchema) -> Record:
    named = ", ".join(f"{name}: {path.parent.name}/{path.name}" for name, path in example.paths.items())
    right = answer is not None and all(answer[f] == example.answer[f] for f in schema.fields)
    wanted = json.dumps(answers.nested(example.answer), ensure_ascii=False)
    return {
        "question": f"{example.instruction} ({named})",
        "answer": wanted,
        "completion": text,
        "extracted": None,
        "correct": right,
    }
