"""Lines that Phase 1 learns from, read and checked. What a line may hold is decided in recipe/pairs.py, what a file holds in media.py."""

from __future__ import annotations

import collections
import dataclasses
import functools
from pathlib import Path

from podwright.data import media
from podwright.data.annotated import (
    LISTED,
    NO_MEDIA,
    Record,
    fault,
    first_object,
    fix,
    fixed_path,
    is_annotated,
    num_lines,
    numbered,
    other_root,
)
from podwright.data.annotated import checked as check_annotated
from podwright.errors import UserError
from podwright.recipe import answers, held_out, pairs
from podwright.recipe.conversions import paired_keys
from podwright.recipe.paths import media_folder, require_no_dead_link, require_root


@dataclasses.dataclass(frozen=True)
class Pair:
    """A valid line."""

    line: int
    contents: dict[str, Path | str]
    """field -> its file; of `text` the text itself"""


def is_pairs(path: Path) -> bool:
    """Whether a .jsonl file holds such lines, by the first that is an object."""
    first = first_object(path)
    names = {*first, *paired_keys(first).values()}
    return not {"instruction", "response"} & first.keys() and sum(f in names for f in pairs.FIELDS) > 1


def check_lines(
    path: Path, recipe: str | None, repair: bool, schema: str | None = None, root: str | None = None
) -> Record | None:
    """What `podwright data check` says of a file of pairs or annotated lines, or of a directory with such; None for another source."""
    require_root("--root", root or "", Path())
    parts = [path / name for name in ("train.jsonl", "val.jsonl")]
    for part in parts:
        require_no_dead_link(part)
    parts = [part for part in parts if part.is_file()]
    paired, annotated = (any(map(of, parts or [path])) for of in (is_pairs, is_annotated))
    paired = paired and not (recipe or schema)  # which are of annotated lines
    if not paired and not annotated:
        return None
    judge = checked if paired else functools.partial(check_annotated, recipe=recipe, schema=schema)
    check = functools.partial(judge, root=root)
    if not parts:
        return check(path, repair=repair)
    for part in parts if repair else ():
        fixed_path(part)
    by_part = {part.stem: check(part, repair=repair) for part in parts}
    listed = [
        entry
        | {"file": record["source"]}
        | ({"message": f"{record['source']}: {entry['message']}"} if entry["line"] else {})
        for record in by_part.values()
        for entry in record.pop("faults")
    ]
    sums = {key: sum(record[key] for record in by_part.values()) for key in ("lines", "valid", "num_faults")}
    return {"source": str(path), **sums, "faults": listed, "warnings": _shared(path, parts), "files": by_part}


def _shared(folder: Path, parts: list[Path]) -> list[str]:
    """A warning of lines that stand in the files to train on and to hold out, or of held-out lines that nobody reads."""
    if len(parts) < 2:
        return ["; ".join(unread)] if (unread := held_out.unread(parts[0])) else []
    training, held = ([pairs.content_of(x) for _, x, _ in numbered(part) if isinstance(x, dict)] for part in parts)
    equal = held_out.shared(training, held)
    names = parts[0].name, parts[1].name
    return ["; ".join(held_out.warning(str(folder), names, equal, len(held)))] if equal else []


def read(path: Path, root: str = "") -> tuple[list[Pair], list[Record]]:
    """The valid lines of a file and the faults of the others; media are not opened."""
    good, faults = [], []
    folder = media_folder(path, root)
    for number, parsed, wrong in numbered(path):
        problems = [(None, wrong)] if wrong else list(pairs.line_faults(parsed))
        if problems:
            faults += [fault(number, field, message) for field, message in problems]
        else:
            given = pairs.given(parsed)
            good.append(Pair(number, {f: v if f == "text" else folder / v for f, v in given.items()}))
    return good, faults


def checked(path: Path, repair: bool, root: str | None = None) -> Record:
    """What `podwright data check` says: {lines, valid, alone, fields, num_faults, faults, warnings}; `alone` have nothing to be
    paired with.
    """
    if repair:
        fixed_path(path)  # said before every file has been looked at
    good, faults = read(path, root or "")
    valid = []
    for example in good:
        problems = [
            (f, message) for f, x in example.contents.items() if isinstance(x, Path) and (message := _wrong(f, x))
        ]
        faults += [fault(example.line, field, message) for field, message in problems]
        if not problems:
            valid.append(example)
    lines = num_lines(path, [example.line for example in good], faults)
    lone = sum(pairs.alone(example.contents) for example in valid)
    if lone == len(valid) and not any(f["line"] == 0 for f in faults):
        other = next((row for _, row, _ in numbered(path) if paired_keys(row)), None)
        faults.insert(0, fault(0, None, "; ".join(pairs.nothing_to_pair(path, other))))
    fields = dict(collections.Counter(f for example in valid for f in example.contents))
    found_record = {"source": str(path), "lines": lines, "valid": len(valid), "alone": lone, "fields": fields}
    named = [str(x) for example in good for x in example.contents.values() if isinstance(x, Path)]
    warnings = other_root(path, root or "", named)
    if repeated := pairs.repeated(path, [_content(example) for example in good if not pairs.alone(example.contents)]):
        warnings.append("; ".join(repeated))
    found_record |= {"num_faults": len(faults), "faults": faults[:LISTED], "warnings": warnings}
    return found_record | ({"fixed": str(fix(path, [example.line for example in valid]))} if repair else {})


def _content(example: Pair) -> tuple[tuple[str, str], ...]:
    return pairs.content_of({field: str(content) for field, content in example.contents.items()})


def _wrong(field: str, path: Path) -> str:
    try:
        message = media.check(field, path)
    except ImportError as e:
        raise UserError(NO_MEDIA, "type pip install -e '.[torch]' in podwright's clone") from e
    return f"{answers.shown(str(path))}: {message}" if message else ""
