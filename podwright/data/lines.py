"""Which lines a run trains on and which it holds out, and the tokens they need. Without PyTorch, so that a plan can count them too.

Nothing is ever cut: a budget that cannot hold a prompt with its response is refused.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from podwright.data import annotated, line_files, synthetic_images
from podwright.data.annotated import AnnotatedExample, learned, prompt_ids, response_ids
from podwright.data.line_files import LineFile, LineReader, ValidLine
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, counted, expanded
from podwright.recipe import hf_weights
from podwright.recipe.contrastive import Pairs
from podwright.recipe.multimodal import MultimodalData, MultimodalRecipe
from podwright.recipe.paths import require_root

_COUNTED = 4000  # lines, in two seconds
_DRAWN = 4000  # generated lines that stand for all: there are fewer than 1,000 different answers
_MOST_HELD_OUT = 200
LEAST_HELD_OUT = 2  # lines of Phase 1: retrieval among fewer is always right

T = TypeVar("T", bound=ValidLine)


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Of the lines that need most."""

    tokens: int
    response: int
    known: bool
    """False where neither lines nor tokenizer are here, and the budget of the recipe stands for them"""


def lengths(recipe: MultimodalRecipe) -> Lengths:
    """Of the longest line to train on, where lines and tokenizer are on this machine; UserError as training would have it."""
    directory = None if recipe.model.source == "random" else expanded(recipe.model.source)
    is_drawn = recipe.data.source == "drawn"
    if not (is_drawn or expanded(recipe.data.source).exists()) or not (directory is None or _has_tokenizer(directory)):
        return Lengths(recipe.data.max_text_length, recipe.data.max_text_length, known=False)
    lines = drawn(recipe) if is_drawn else split(expanded(recipe.data.source), recipe.data, reader(recipe.data))
    return longest(lines, recipe, directory)


def _has_tokenizer(directory: Path) -> bool:
    """Or should have: one that holds weights is a whole checkpoint."""
    return (directory / "tokenizer.json").is_file() or hf_weights.present(directory)


def longest(lines: Split[AnnotatedExample], recipe: MultimodalRecipe, directory: Path | None) -> Lengths:
    """`directory`: of the tokenizer; None for one that is learned from the lines."""
    tokenizer = learned(lines.training, recipe) if directory is None else Tokenizer.load(directory)
    prompts, responses = _longest(lines.training, tokenizer, recipe.data)
    _longest(lines.held_out, tokenizer, recipe.data)  # refused where they do not fit
    tokens = max(len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True))
    return Lengths(tokens, max(map(len, responses)), known=True)


def drawn(recipe: MultimodalRecipe) -> Split[AnnotatedExample]:
    """Lines as a run generates them, of many some that stand for all; without their files."""
    with tempfile.TemporaryDirectory() as folder:
        num_train, num_test = (min(n, _DRAWN) for n in (recipe.data.num_train, recipe.data.num_test))
        synthetic_images.write(Path(folder), num_train, num_test, recipe.seed, files=False)
        return split(Path(folder), recipe.data, reader(recipe.data))


def _longest(
    examples: Sequence[AnnotatedExample], tokenizer: Tokenizer, data: MultimodalData
) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and responses of those that are longest as text, which takes seconds where all would take minutes."""

    def size(example: AnnotatedExample) -> int:
        answer = "".join(map(str, example.answer.values()))
        return len((example.instruction + answer).encode())

    try:
        return tokenized(sorted(examples, key=size)[-_COUNTED:], tokenizer, data)
    except UserError:
        tokenized(examples, tokenizer, data)  # says of how many lines it is true
        raise


def tokenized(
    examples: Sequence[AnnotatedExample], tokenizer: Tokenizer, data: MultimodalData
) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and responses; UserError when the budget cannot hold one with its response, because nothing is ever cut."""
    tokenizer.require_messages(data.system_prompt)
    tokenizer.require_known(e.instruction for e in examples)
    prompts = [prompt_ids(tokenizer, data.system_prompt, e.instruction) for e in examples]
    schema = data.schema_of_answers
    responses = [response_ids(tokenizer, e.answer, schema) for e in examples]
    needed = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    over = [i for i, tokens in enumerate(needed) if tokens > data.max_text_length]
    if over:
        worst = max(over, key=lambda i: needed[i])
        need = needed[worst]
        what = (
            f"data.max_text_length={data.max_text_length} cannot hold {len(over)} of {len(examples)} lines; line {examples[worst].line} "
            f"needs {len(prompts[worst])} tokens for its prompt and {len(responses[worst])} for its response"
        )
        raise UserError(what, f"type data.max_text_length={need}", "too-long")
    return prompts, responses


def reader(data: MultimodalData) -> LineReader[AnnotatedExample]:
    return annotated.reader(data.schema_of_answers, data.root, data.columns)


class Split(NamedTuple, Generic[T]):
    training: list[T]
    held_out: list[T]
    read: dict[str, int]
    """lines of each file"""


class SampledSplit(NamedTuple, Generic[T]):
    """What a plan reads of a source."""

    lines: Split[T]
    num_training: int
    num_held_out: int
    """lines that training has; estimates where a file was too large to read all of it"""
    files: list[LineFile[T]]


def split(
    source: Path, data: MultimodalData | Pairs, reader: LineReader[T], began: Mapping[str, int] = MappingProxyType({})
) -> Split[T]:
    """Of a directory its train.jsonl and val.jsonl; without that, the last lines are held out. `began`: the lines that a run has begun
    with, the last of which are; what was appended since is trained on."""
    return _divided([file.good for file in _files(source, data, reader)], data, began)


def sampled(data: MultimodalData | Pairs, reader: LineReader[T]) -> SampledSplit[T]:
    """As `split`, of large files by a sample, with the sizes that training has."""
    files = _files(expanded(data.source), data, reader, is_sample=True)
    parts = [file.good for file in files]
    if all(file.complete for file in files):
        lines = _divided(parts, data)
        return SampledSplit(lines, len(lines.training), len(lines.held_out), files)
    total = files[0].total
    if len(files) > 1:
        held_out = min(data.num_test or files[1].total, files[1].total)
    else:
        held_out = _num_held_out(data, total, total)
        total -= held_out
    return SampledSplit(Split(parts[0], parts[-1], {}), min(data.num_train or total, total), held_out, files)


def _files(
    source: Path, data: MultimodalData | Pairs, reader: LineReader[T], is_sample: bool = False
) -> list[LineFile[T]]:
    """Those of a source, without a bad line."""
    require_root("data.root", data.root, Path())
    paths = line_files.files(data.source, source)
    return [line_files.require_good(line_files.read(path, reader, is_sample), data.check_options) for path in paths]


def _divided(
    parts: Sequence[list[T]], data: MultimodalData | Pairs, began: Mapping[str, int] = MappingProxyType({})
) -> Split[T]:
    """`parts`: the lines of the file to train on and of the held-out one, if there is one."""
    training = parts[0]
    held_out = parts[1] if len(parts) > 1 else []
    read = {"train": len(training), "val": len(held_out)}
    held_out = held_out[: began.get("val")]
    if not held_out:
        first = began.get("train", len(training))
        count = _num_held_out(data, len(training), first)
        training, held_out = training[: first - count] + training[first:], training[first - count : first]
    return Split(training[: data.num_train or None], held_out[: data.num_test or None], read)


def _num_held_out(data: MultimodalData | Pairs, lines: int, first: int) -> int:
    """Of a file without a held-out one beside it: the last of its `first` lines, a tenth where `data.num_test` does not say."""
    least = LEAST_HELD_OUT if isinstance(data, Pairs) else 1
    count = data.num_test or min(_MOST_HELD_OUT, max(least, first // 10))
    if lines > 1 and count < lines:
        return count
    what = f"data.source={data.source} has {counted(lines, 'line')} that can be used, which leaves none to train on"
    if lines < 2 * least:
        raise UserError(what, f"give a file with at least {2 * least} lines", "held-out")
    raise UserError(what, f"type data.num_test={max(least, lines // 10)}", "held-out")
