"""Annotated lines, each an instruction, its answer and what it is about, and the tokens that they need.

What an answer may hold is decided in recipe/answers.py, what a file holds in media.py.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from podwright.data import layouts
from podwright.data.layouts import NO_COLUMNS, Columns
from podwright.data.line_files import LineReader, Row
from podwright.data.tokenizer import Tokenizer
from podwright.recipe import answers, llm
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.multimodal import MultimodalRecipe

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class AnnotatedExample:
    """A valid line."""

    line: int
    instruction: str
    answer: dict[str, Any]
    """dotted fields in the order in which they are written"""
    paths: dict[str, Path]
    """of image, audio or video"""

    @property
    def identity(self) -> tuple[str, ...]:
        return self.instruction, *(f"{name} {path}" for name, path in self.paths.items())


Budget = Callable[[AnnotatedExample], tuple[int, int]]
"""tokens of prompt and of response"""


def reader(schema: AnswerSchema, root: str = "", columns: Columns = NO_COLUMNS) -> LineReader[AnnotatedExample]:
    example = functools.partial(_example, schema=schema)
    return LineReader(layouts.with_response, schema.line_faults, example, root, columns, _repeated)


def is_annotated(row: Row) -> bool:
    """Whether a row is meant for Phase 2, whose answers GRPO has too, but no pictures and sounds."""
    if "text" in row:
        return False
    of_grpo = "output" in row or ("response" not in row and layouts.is_question(row))
    names = row if of_grpo else layouts.with_files(row)
    wanted = answers.MEDIA if of_grpo else (*answers.MEDIA, "instruction", "response")
    return any(name in names for name in wanted)


def _example(number: int, folder: Path, fields: dict[str, Any], schema: AnswerSchema) -> AnnotatedExample:
    paths = {name: folder / fields[name] for name in answers.MEDIA if name in fields}
    return AnnotatedExample(number, fields["instruction"], schema.flattened(json.loads(fields["response"])), paths)


def _repeated(line: AnnotatedExample, earlier: AnnotatedExample) -> str:
    if line.answer == earlier.answer:
        return f"repeats line {earlier.line}"
    return f"asks what line {earlier.line} asks, and has another response"


def learned(training: list[AnnotatedExample], recipe: MultimodalRecipe) -> Tokenizer:
    """That of random weights."""
    schema = recipe.data.schema_of_answers
    texts = ["".join(text for _, text in schema.pieces(e.answer)) for e in training]
    size = min(llm.find(recipe.model.name).vocab_size, 4096)
    return Tokenizer.train([recipe.data.system_prompt, *(e.instruction for e in training), *texts], size)


def budget(tokenizer: Tokenizer, system_prompt: str, schema: AnswerSchema) -> Budget:
    return lambda example: (
        len(prompt_ids(tokenizer, system_prompt, example.instruction)),
        len(response_ids(tokenizer, example.answer, schema)),
    )


def prompt_ids(tokenizer: Tokenizer, system_prompt: str, instruction: str) -> list[int]:
    """In the tokenizer's own chat format, the assistant to speak next."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    messages = [*system, {"role": "user", "content": instruction}]
    return tokenizer.encode(tokenizer.render(messages, add_generation_prompt=True, enable_thinking=True))


def response_ids(tokenizer: Tokenizer, answer: dict[str, Any], schema: AnswerSchema) -> list[int]:
    """In the pieces in which decoding writes it, so that a value is the same tokens wherever it is written; then the end of the turn."""
    ids = [i for _, text in schema.pieces(answer) for i in tokenizer.encode(text)]
    return [*ids, tokenizer.stop_ids[0]]
