"""What is wrong with files of annotated lines or pairs: for `podwright data check`, which opens what lines name, and for a plan."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from podwright.data import annotated, layouts, line_files, media, pairs, rows
from podwright.data.annotated import AnnotatedExample, Budget
from podwright.data.layouts import Columns
from podwright.data.line_files import LineFile, Record, Row, ValidLine, fault
from podwright.data.pairs import Pair
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError, counted, expanded
from podwright.recipe import answers, held_out
from podwright.recipe.answers import AnswerSchema
from podwright.recipe.load import load, require
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.paths import require_no_dead_link, require_root

_LISTED = 100
_LEAST, _ONE_SIDED = 20, 0.9  # lines, and the share of one value from which on a field teaches little
L = TypeVar("L", bound=ValidLine)
Opened = Callable[[str, Path], str]
"""what is wrong with a file that is named as image, audio or video; "" if nothing is"""


@dataclasses.dataclass(frozen=True)
class CheckOptions:
    """Those of `podwright data check` for lines."""

    recipe: str | None = None
    fix: bool = False
    answers: str | None = None
    root: str | None = None
    columns: Columns = dataclasses.field(default_factory=dict)


def check(path: Path, options: CheckOptions) -> Record | None:
    """{lines, valid, num_faults, faults, warnings} of a file of pairs or annotated lines, or of a directory with such and {files: {PART:
    the same}}; of annotated lines {classes} besides, of pairs {alone, fields}. None for another source."""
    require_root("--root", options.root or "", Path())
    files = _files(path)
    examples = [row for file in files if (row := _first_row(file, options.columns))]
    paired = any(map(pairs.is_pair, examples)) and not (
        options.recipe or options.answers
    )  # which are of annotated lines
    if not paired and not any(map(annotated.is_annotated, examples)):
        return None
    if path.is_dir():
        line_files.files(str(path), path)  # as a run: UserError where there is nothing to train on
    for file in files if options.fix else ():
        line_files.good_path(file)  # said before every file has been looked at
    checked = [of_pairs(file, options) if paired else of_annotated(file, options) for file in files]
    if not path.is_dir():
        return checked[0][0]
    by_part = {file.path.name.partition(".")[0]: record for record, file in checked}
    listed = []
    for record in by_part.values():
        for entry in record.pop("faults"):
            of_line = f"{record['source']}: " if entry["line"] else ""  # what is wrong with a file names it
            listed.append(entry | {"file": record["source"], "message": of_line + entry["message"]})
    sums = {key: sum(record[key] for record in by_part.values()) for key in ("lines", "valid", "num_faults")}
    shared = ["; ".join(warning) for warning in between(str(path), [file for _, file in checked])]
    return {"source": str(path), **sums, "faults": listed, "warnings": shared, "files": by_part}


def _files(path: Path) -> list[Path]:
    """Of a source that may hold lines; [] of a URL."""
    require_no_dead_link(path)
    if path.is_dir():
        parts = [line_files.part(path, part) for part in ("train", "val")]
        return [file for part in parts for file in part[:1]]
    return [path] if path.is_file() and rows.container(path) else []


def _first_row(path: Path, columns: Columns) -> Row:
    """By these columns, where they are there; {} where there is no row."""
    try:
        located = rows.rows_and_faults(path, layouts.names_of_lines(columns))
        row = next((row for _, row in located if not isinstance(row, UserError)), {})
        return {**row, **dict.fromkeys(columns)}
    except UserError:  # of the file, which whoever reads it names
        return {}


def of_annotated(path: Path, options: CheckOptions) -> tuple[Record, LineFile[AnnotatedExample]]:
    recipe = require(load(options.recipe), MultimodalRecipe) if options.recipe else None
    schema = answers.of(answers.content(options.answers) if options.answers else answers.DEFAULT)
    if recipe and not options.answers:
        schema = recipe.data.schema_of_answers
    root = options.root if options.root is not None else recipe.data.root if recipe else ""
    columns = options.columns or (recipe.data.columns if recipe else layouts.NO_COLUMNS)
    file = line_files.read(path, annotated.reader(schema, root, columns))
    budget = _budget(recipe, file.good, schema) if recipe else None

    def too_long(example: AnnotatedExample) -> Iterator[Record]:
        if not budget or not recipe:
            return
        needed = budget(example)
        if sum(needed) > recipe.data.max_text_length:
            what = f"prompt and response need {needed[0]} + {needed[1]} tokens, max_text_length={recipe.data.max_text_length}"
            yield fault(example.line, "response", "too-long", f"line {example.line}: response {what}")

    record, valid = _record(file, options, too_long)
    classes = {f: collections.Counter(str(e.answer[f]) for e in valid.good) for f in schema.fields}
    for field, counts in classes.items():
        (value, most), *_ = counts.most_common(1) or [("", 0)]
        if len(valid.good) >= _LEAST and most > _ONE_SIDED * len(valid.good):
            what = f"{field} is {value} in {most} of {len(valid.good)} lines: there is little to learn about it"
            record["warnings"].append(what)
    return record | {"classes": {field: dict(sorted(counts.items())) for field, counts in classes.items()}}, file


def _budget(recipe: MultimodalRecipe, training: list[AnnotatedExample], schema: AnswerSchema) -> Budget:
    """Of random weights the tokenizer is learned from the lines that a run trains on, here those of the file."""
    source = expanded(recipe.model.source)
    if recipe.model.source == "random":
        return annotated.budget(annotated.learned(training, recipe), recipe.data.system_prompt, schema)
    if source.is_dir():
        return annotated.budget(Tokenizer.load(source), recipe.data.system_prompt, schema)
    what = f"the tokenizer of model.source={recipe.model.source} is not on this machine: tokens cannot be counted"
    raise UserError(
        what, "leave --recipe out, or name a recipe whose model.source is random or a directory", "no-tokenizer"
    )


def of_pairs(path: Path, options: CheckOptions) -> tuple[Record, LineFile[Pair]]:
    file = line_files.read(path, pairs.reader(options.root or "", options.columns))
    record, valid = _record(file, options, lambda pair: ())
    lone = sum(pairs.alone(pair.contents) for pair in valid.good)
    if valid.good and lone == len(valid.good):
        nothing = nothing_to_pair(path)
        record["faults"].insert(0, fault(0, None, nothing.code, str(nothing)))
        record["num_faults"] += 1
    record["warnings"] += ["; ".join(warning) for warning in repeated(file)]
    fields = collections.Counter(field for pair in valid.good for field in pair.contents)
    return record | {"alone": lone, "fields": dict(fields)}, file


def _record(
    file: LineFile[L], options: CheckOptions, more: Callable[[L], Iterable[Record]]
) -> tuple[Record, LineFile[L]]:
    """What is the same of both kinds; and the file with those of its good lines whose files can be read."""
    faults = list(file.faults)
    valid = []
    for line in file.good:
        wrong = [*unusable(line, media.check), *more(line)]
        faults += wrong
        if not wrong:
            valid.append(line)
    faults.sort(key=lambda entry: entry["line"])
    if not file.total:
        faults.append(fault(0, None, "no-lines", f"{file.path} holds no lines"))
    record = {"source": str(file.path), "lines": file.total, "valid": len(valid), "num_faults": len(faults)}
    record |= {"faults": faults[:_LISTED], "warnings": []}
    good = file._replace(good=valid)
    return record | ({"fixed": str(line_files.write_good(good))} if options.fix else {}), good


def unusable(line: ValidLine, opened: Opened) -> Iterator[Record]:
    """What is wrong with the files that a line names."""
    for field, path in line.paths.items():
        if wrong := opened(field, path):
            yield fault(
                line.line, field, "unreadable", f"line {line.line}: {field} {answers.shown(path.name)}: {wrong}"
            )


def repeated(file: LineFile[Pair]) -> Iterator[tuple[str, str]]:
    """A warning of pairs that stand twice in a file."""
    identities = [pair.identity for pair in file.good if not pairs.alone(pair.contents)]
    number = len(identities) - len(set(identities))
    if number and file.complete:  # pieces of a large file may overlap
        verb = "repeats" if number == 1 else "repeat"
        what = f"{counted(number, 'line')} of {file.path.name} {verb} an earlier line: in a batch with both, a negative is equal to the positive"
        yield what, "remove them"


def nothing_to_pair(path: Path) -> UserError:
    """Of a file of which no line makes a pair."""
    what = f"no line of {path} has two of {', '.join(pairs.FIELDS)}, so there is no pair to train on"
    return UserError(what, 'give lines such as {"text": "a cat purrs", "audio": "purr.wav"}', "no-pairs")


def between(
    source: str, files: Sequence[LineFile[Any]], num_train: int = 0, num_test: int = 0
) -> Iterator[tuple[str, str]]:
    """A warning of files that nobody reads, and of held-out lines that training has too, or that nobody reads."""
    if unread := line_files.unread(expanded(source)):
        yield unread
    if len(files) < 2:
        if files and (unread := held_out.unread(files[0].path)):
            yield unread
        return
    training, held = files[0].good[: num_train or None], files[1].good[: num_test or None]
    equal = held_out.shared([line.identity for line in training], [line.identity for line in held])
    if equal:
        yield held_out.warning(source, (files[0].path.name, files[1].path.name), equal, len(held))
