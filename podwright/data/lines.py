"""Which lines a run trains on and which it holds out, and the tokens they need. Without PyTorch, so that a plan can count them too.

Nothing is ever cut: a budget that cannot hold a prompt with its response is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from podwright.data import annotated, synthetic_images
from podwright.data.annotated import AnnotatedExample, Record, learned, prompt_ids, response_ids
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe import hf_weights, pairs, sampled_files
from podwright.recipe.contrastive import Pairs
from podwright.recipe.multimodal import MultimodalData, MultimodalRecipe
from podwright.recipe.paths import require_no_dead_link, require_root

_COUNTED = 4000  # lines, in two seconds
_DRAWN = 4000  # generated lines that stand for all: there are fewer than 1,000 different answers

T = TypeVar("T")
Reader = Callable[[Path], tuple[list[T], list[Record]]]
"""of the good lines and the faults of a file"""


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
    with tempfile.TemporaryDirectory() as folder:
        source = expanded(recipe.data.source)
        if recipe.data.source == "drawn":
            source = Path(folder)
            num_train, num_test = (min(n, _DRAWN) for n in (recipe.data.num_train, recipe.data.num_test))
            synthetic_images.write(source, num_train, num_test, recipe.seed, files=False)
        if not source.exists() or not (directory is None or _has_tokenizer(directory)):
            return Lengths(recipe.data.max_text_length, recipe.data.max_text_length, known=False)
        training, held_out, _ = split(source, recipe.data, annotated_lines(recipe.data))
    tokenizer = learned(training, recipe) if directory is None else Tokenizer.load(directory)
    training_ids, _ = (_longest(part, tokenizer, recipe.data) for part in (training, held_out))
    return Lengths(
        max(len(p) + len(r) for p, r in zip(*training_ids, strict=True)), max(map(len, training_ids[1])), known=True
    )


def _has_tokenizer(directory: Path) -> bool:
    """Or should have: one that holds weights is a whole checkpoint."""
    return (directory / "tokenizer.json").is_file() or hf_weights.present(directory)


def _longest(
    examples: list[AnnotatedExample], tokenizer: Tokenizer, data: MultimodalData
) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts and responses of those that are longest as text, which takes seconds where all would take minutes."""
    size = lambda example: len((example.instruction + "".join(map(str, example.answer.values()))).encode())  # noqa: E731
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
    over = [i for i in range(len(examples)) if len(prompts[i]) + len(responses[i]) > data.max_text_length]
    if over:
        worst = max(over, key=lambda i: len(prompts[i]) + len(responses[i]))
        need = len(prompts[worst]) + len(responses[worst])
        what = (
            f"data.max_text_length={data.max_text_length} cannot hold {len(over)} of {len(examples)} lines; line {examples[worst].line} "
            f"needs {len(prompts[worst])} tokens for its prompt and {len(responses[worst])} for its response"
        )
        raise UserError(what, f"type data.max_text_length={need}")
    return prompts, responses


def annotated_lines(data: MultimodalData) -> Reader[AnnotatedExample]:
    return functools.partial(annotated.read, schema=data.schema_of_answers, root=data.root)


class Split(NamedTuple, Generic[T]):
    training: list[T]
    held_out: list[T]
    read: dict[str, int]
    """lines of each file"""


def split(
    source: Path, data: MultimodalData | Pairs, read: Reader[T], began: Mapping[str, int] = MappingProxyType({})
) -> Split[T]:
    """Of a directory its train.jsonl and val.jsonl; without that, the last lines are held out. `began`: the lines that a run has begun
    with, the last of which are; what was appended since is trained on."""
    require_root("data.root", data.root, Path())
    if not source.exists():
        raise UserError(
            f"data.source={source} is not there",
            "check the path, or type data.source=drawn data.num_train=2000 data.num_test=200",
        )
    training = read_all(source / "train.jsonl" if source.is_dir() else source, read, data.check_options)
    has_val = source.is_dir() and os.path.lexists(source / "val.jsonl")
    held_out = read_all(source / "val.jsonl", read, data.check_options) if has_val else []
    sizes = {"train": len(training), "val": len(held_out)}
    held_out = held_out[: began.get("val")]
    if not held_out:
        first = began.get("train", len(training))
        count = pairs.num_held_out(first, data.num_test)
        if len(training) < 2 or count >= len(training):
            raise pairs.none_left(str(source), len(training), pairs.LEAST_HELD_OUT if isinstance(data, Pairs) else 1)
        held_out = training[first - count : first]
        training = training[: first - count] + training[first:]
    return Split(training[: data.num_train or None], held_out[: data.num_test or None], sizes)


def read_all(path: Path, read: Reader[T], options: str = "") -> list[T]:
    """Every line; UserError when one is bad. `options` of the verb that lists all that is wrong."""
    require_no_dead_link(path)
    if not path.is_file():
        raise UserError(f"there is no {path}", "a directory of data holds train.jsonl and perhaps val.jsonl")
    sampled_files.require_utf8(path, sampled_files.all_lines(path))
    good, faults = read(path)
    if faults:
        lines = len({f["line"] for f in faults})
        raise UserError(
            f"{path} has {lines} bad line{'s' if lines > 1 else ''}, such as {faults[0]['message']}",
            f"type podwright data check {path} --fix{options}"
            if good
            else "give a file with lines that `podwright plan` takes",
        )
    return good
