"""Annotated lines, each an instruction, its answer and what it is about: read, checked, repaired.

What an answer may hold is decided in recipe/answers.py, what a file holds in media.py.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from podwright.data import media
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, expanded
from podwright.recipe import answers, llm, sampled_files, text_lines
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.load import load, require
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.paths import media_folder, project_root

Record = dict[str, Any]
LISTED = 100
NO_MEDIA = "PIL and av, which decode files, are not installed"


@dataclasses.dataclass(frozen=True)
class AnnotatedExample:
    """A valid line."""

    line: int
    instruction: str
    answer: dict[str, Any]
    """dotted fields in the order in which they are written"""
    paths: dict[str, Path]
    """of image, audio or video"""


Budget = Callable[[AnnotatedExample], tuple[int, int]]
"""tokens of prompt and of response"""


def is_annotated(path: Path) -> bool:
    """Whether a .jsonl file holds such lines, by the first that is an object."""
    first = first_object(path)
    if "output" in first and not {"response", *answers.MEDIA} & first.keys():  # Alpaca: questions for GRPO
        return False
    return "text" not in first and bool({"instruction", "response", *answers.MEDIA} & first.keys())


def first_object(path: Path) -> Record:
    """Of a .jsonl file; {} where it has none."""
    lines = numbered(path) if path.suffix == ".jsonl" and path.is_file() else ()
    return next((parsed for _, parsed, _ in lines if isinstance(parsed, dict)), {})


def read(path: Path, schema: AnswerSchema, root: str = "") -> tuple[list[AnnotatedExample], list[Record]]:
    """The valid lines of a file and the faults of the others, lines that repeat or contradict an earlier one among them; media are
    not opened.
    """
    good, faults, repeats = [], [], answers.Repeats()
    folder = media_folder(path, root)
    for number, parsed, wrong in numbered(path):
        problems = [(None, wrong)] if wrong else list(schema.line_faults(parsed))
        if not problems and (repeated := repeats.fault(f"line {number}", parsed)):
            problems = [("line", repeated)]
        if problems:
            faults += [fault(number, field, message) for field, message in problems]
        else:
            good.append(_example(folder, number, parsed, schema))
    return good, faults


def check(
    path: Path, rules: LineRules, budget: Budget | None = None, max_text_length: int = 0
) -> tuple[Record, list[int]]:
    """{lines, valid, num_faults, faults, classes, warnings}, and the numbers of the good lines."""
    if not path.is_file():
        raise UserError(f"there is no {path}", "check the path")
    good, faults = read(path, rules.schema, rules.root)
    valid: list[AnnotatedExample] = []
    for example in good:
        problems = list(_media(example))
        if budget is not None and sum(lengths := budget(example)) > max_text_length:
            too_long = f"prompt and response need {lengths[0]} + {lengths[1]} tokens, max_text_length={max_text_length}"
            problems.append(("response", too_long))
        faults += [fault(example.line, field, message) for field, message in problems]
        if not problems:
            valid.append(example)
    lines = num_lines(path, [example.line for example in good], faults)
    balance = {field: _counts(example.answer[field] for example in valid) for field in rules.schema.fields}
    found_record = {
        "source": str(path),
        "lines": lines,
        "valid": len(valid),
        "num_faults": len(faults),
        "faults": faults[:LISTED],
    }
    named = [str(p) for example in good for p in example.paths.values()]
    warnings = [*other_root(path, rules.root, named), *_one_sided(balance, len(valid))]
    return found_record | {"classes": balance, "warnings": warnings}, [example.line for example in valid]


def num_lines(path: Path, good: Iterable[int], faults: list[Record]) -> int:
    """Of a file with lines of these numbers and such faults, which are then in order, and have that of a file without lines."""
    faults.sort(key=lambda f: f["line"])
    lines = len({f["line"] for f in faults if f["line"]}.union(good))
    if not lines and not faults:
        faults.append(fault(0, None, f"{path} holds no lines"))
    return lines


def other_root(path: Path, root: str, named: Sequence[str]) -> list[str]:
    """What to type where none of the files that lines name is there, but all are below another folder."""
    folder = media_folder(path, root)
    names = [os.path.relpath(name, folder) for name in named[:LISTED]]
    if not names or any(os.path.isfile(name) for name in named[:LISTED]):
        return []
    below = project_root(names, path, Path.cwd())
    if not below:
        return []
    return [
        f"the files that lines name are not below {folder}, but below {Path(below).resolve()}: type --root {shlex.quote(below)}"
    ]


@dataclasses.dataclass(frozen=True)
class LineRules:
    """What lines are judged by, besides their files."""

    schema: AnswerSchema
    root: str = ""
    """that their paths are relative to; "": the folder of their file"""


def checked(path: Path, recipe: str | None, repair: bool, schema: str | None = None, root: str | None = None) -> Record:
    """What `podwright data check` says. With a `recipe`, lengths are held against its budget, where its tokenizer is at hand; answers
    and paths against its schema and root, where none are given.
    """
    if repair:
        fixed_path(path)  # said before every file has been looked at
    loaded = require(load(recipe), MultimodalRecipe) if recipe else None
    data = loaded.data if loaded else None
    known = (
        answers.of(answers.content(schema))
        if schema
        else data.schema_of_answers
        if data
        else answers.of(answers.DEFAULT)
    )
    rules = LineRules(known, root if root is not None else data.root if data else "")
    record, good = check(path, rules, *(_of_recipe(loaded, rules, path) if loaded else ()))
    return record | ({"fixed": str(fix(path, good))} if repair else {})


def _of_recipe(recipe: MultimodalRecipe, rules: LineRules, path: Path) -> tuple[Budget, int]:
    """Of random weights the tokenizer is learned from the lines that a run trains on, here those of `path`."""
    source = expanded(recipe.model.source)
    if recipe.model.source != "random" and not source.is_dir():
        what = f"the tokenizer of model.source={recipe.model.source} is not on this machine: tokens cannot be counted"
        raise UserError(what, "leave --recipe out, or name a recipe whose model.source is random or a directory")
    is_random = recipe.model.source == "random"
    tokenizer = learned(read(path, rules.schema, rules.root)[0], recipe) if is_random else Tokenizer.load(source)
    return budget(tokenizer, recipe.data.system_prompt, rules.schema), recipe.data.max_text_length


def fix(path: Path, good: Sequence[int]) -> Path:
    """The good lines as they are, in a file beside `path`: what they name is found from there."""
    out = fixed_path(path)
    wanted = set(good)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    with path.open("rb") as f, part.open("wb") as g:
        g.writelines(
            line if line.endswith(b"\n") else line + b"\n" for number, line in enumerate(f, 1) if number in wanted
        )
    part.replace(out)
    return out


def fixed_path(path: Path) -> Path:
    """Where the good lines of `path` go; UserError where something is already."""
    out = path.with_name(f"{path.stem}.good.jsonl")
    if out.exists():
        raise UserError(
            f"{out} is there already",
            f"move it away, or leave --fix out; if it may go, type: rm {shlex.quote(str(out))}",
        )
    return out


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


def numbered(path: Path) -> Iterator[tuple[int, Any, str]]:
    """Number, value and what is wrong with it, of every line that is not empty; number 0 where the file holds no text."""
    encoding_named = False  # by the first line that shows it: it is one of the file
    with path.open("rb") as f:
        for number, line in enumerate(f, 1):
            if number == 1 and (fault := text_lines.other_format(str(path), line)):
                yield 0, None, str(fault)
                return
            if not line.strip():
                continue
            try:
                yield number, text_lines.parse_json(line), ""
            except UnicodeDecodeError:
                sample = b"" if encoding_named else sampled_files.head_of(path) + b"\n" + line
                wrong = text_lines.not_utf8(str(path), "it", sample)
                yield number, None, "it is not UTF-8" if encoding_named else str(wrong)
                encoding_named = True
            except text_lines.JsonFault as e:
                yield number, None, f"{answers.shown(line[:40].decode(errors='replace'))} is not JSON ({e})"


def _example(folder: Path, number: int, line: Record, schema: AnswerSchema) -> AnnotatedExample:
    paths = {name: folder / line[name] for name in answers.MEDIA if name in line}
    return AnnotatedExample(number, line["instruction"], schema.flattened(json.loads(line["response"])), paths)


def _media(example: AnnotatedExample) -> Iterator[answers.FieldFault]:
    for field, path in example.paths.items():
        try:
            wrong = media.check(field, path)
        except ImportError as e:
            raise UserError(NO_MEDIA, "type pip install -e '.[torch]' in podwright's clone") from e
        if wrong:
            yield field, f"{answers.shown(str(path))}: {wrong}"


def _counts(values: Iterator[Any]) -> dict[str, int]:
    return dict(sorted(collections.Counter(map(str, values)).items()))


def _one_sided(balance: dict[str, dict[str, int]], lines: int) -> Iterator[str]:
    for field, counts in balance.items():
        value, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
        if lines >= 20 and most > 0.9 * lines:
            yield f"{field} is {value} in {most} of {lines} lines: there is little to learn about it"


def fault(line: int, field: str | None, message: str) -> Record:
    text = f"line {line}: {field} {message}" if field else f"line {line}: {message}" if line else message
    return {"line": line, "field": field, "message": text}
