"""A README with the runs of a model: a table that grows by a row for each log, and a section for each. Edits by hand are kept.

Rows and sections carry the mark of their log in a comment, with a checksum of what was written. What still has that checksum is brought
up to date; what was edited since stays as it is.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from podwright.errors import UserError
from podwright.report import readme
from podwright.report.maxtext import tables
from podwright.report.maxtext.words import Words, texts
from podwright.report.records import Result
from podwright.rundir import replace_file

LEAST_COLUMNS = 4
"""that a table must have in common with ours to be taken for the table of runs"""
_OTHER_NAMES = {
    "tflop/s/device": "tflops_device",
    "tflop/s/chip": "tflops_chip",
    "step time": "step_s",
    "loss": "loss_final",
    "精度": "precision",
    "note": "notes",
}


def _names() -> dict[str, str]:
    """The key of a column, by each of its names."""
    keys = (*tables.COLUMNS, "tokens_device")
    return {text.casefold(): key for key in keys for text in texts()[key].values()} | _OTHER_NAMES


def put(path: Path, mark: str, r: Result, t: Words, section: str) -> list[str]:
    """Create or extend the README at `path`; what was kept because it was edited by hand, as sentences."""
    old = readme.content(path, _beginning(r, t))
    if b"\0" in old:
        raise UserError(f"{path} is a binary file", "name a README, or a file that does not exist yet")
    new, kept = extended(old, mark, r, t, section)
    if new != old or not path.exists():
        replace_file(path, new)
    return [*kept, *_of_another_model(path, old, mark, r)]


def _of_another_model(path: Path, old: bytes, mark: str, r: Result) -> list[str]:
    """A sentence where a log joined a README that does not name its model."""
    model = r["model"]
    if not model or f"podwright:{mark} ".encode() in old or _letters(model.encode()) in _letters(old):
        return []
    return [f"{path} did not name the model {model} of this log, which has a row and a section there now"]


def _letters(text: bytes) -> bytes:
    """Without what one name of a model has and another one lacks: capitals, dashes, spaces."""
    return re.sub(rb"[^a-z0-9]", b"", text.lower())


def extended(old: bytes, mark: str, r: Result, t: Words, section: str) -> tuple[bytes, list[str]]:
    """`old` with the row and the section of the log `mark`; bytes that are not ours stay what they are."""
    newline = "\r\n" if b"\r\n" in old else "\n"
    text = old.decode(errors="surrogateescape")
    text, kept_row = _with_row(text, mark, tables.run_row(r, t), t, newline)
    text, kept_section = _with_section(text, mark, section, newline)
    kept = [
        f"the {what} of this log was edited by hand and is left as it is" for what in (kept_row, kept_section) if what
    ]
    return text.encode(errors="surrogateescape"), kept


def _beginning(r: Result, t: Words) -> str:
    """Of a new file: the title and the table of the model."""
    rows = "".join(f"| {name} | {cell(value)} |\n" for name, value in tables.overview(r, t))
    title = t("title", model=cell(r["model"] or r["name"]))
    return f"# {title}\n\n## {t('overview')}\n\n| {t('item')} | {t('value')} |\n|------|-----|\n{rows}"


def cell(text: str) -> str:
    """Text that stays in its cell of a table and is no markup."""
    return re.sub(r"([\\|>`*_\[\]])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.replace(chr(13), '').strip().encode(errors='surrogateescape')):08x}"


def _with_row(text: str, mark: str, row: dict[str, str], t: Words, newline: str) -> tuple[str, str]:
    """With the row in the table of runs, which is made where there is none."""
    lines = text.split(newline)
    own = next((i for i, line in enumerate(lines) if f"<!-- podwright:{mark} row " in line), None)
    table = _table(lines, own)
    if table is None:
        head = f"| {' | '.join(t(key) for key in tables.COLUMNS)} |"
        rule = f"|{'---|' * len(tables.COLUMNS)}"
        added = ["", f"## {t('results')}", "", f"### {t('records')}", "", head, rule]
        added.append(_row(mark, [cell(row[key]) for key in tables.COLUMNS]))
        body = text if text.endswith(newline) or not text else text + newline
        return body + newline.join([*added, ""]), ""
    last, columns = table
    cells = [cell(row[key]) if key else "" for key in columns]
    line = _row(mark, cells)
    if own is None:
        lines.insert(last + 1, line)
    elif _edited(lines[own], mark):
        return text, "row"
    else:
        lines[own] = line
    return newline.join(lines), ""


def _row(mark: str, cells: list[str]) -> str:
    body = f"| {' | '.join(cells)}"
    return f"{body} <!-- podwright:{mark} row {_checksum(body)} --> |"


def _edited(line: str, mark: str) -> bool:
    match = re.search(rf" ?<!-- podwright:{mark} row ([0-9a-f]{{8}}) -->", line)
    return match is None or _checksum(line[: match.start()]) != match[1] or line[match.end() :].strip() != "|"


def _table(lines: list[str], own: int | None) -> tuple[int, list[str]] | None:
    """The first table of runs, or that with our row: its last line, and for each column its key ("" for others)."""
    names = _names()
    for i in range(len(lines) - 1):
        keys = [names.get(name.strip().strip("*").strip().casefold(), "") for name in _cells(lines[i])]
        if sum(map(bool, set(keys))) < LEAST_COLUMNS or not re.fullmatch(
            r"\s*\|?[\s:|-]*-[\s:|-]*\|?\s*", lines[i + 1]
        ):
            continue
        if "date" not in keys and "config" not in keys:
            continue
        last = i + 1
        while last + 1 < len(lines) and lines[last + 1].lstrip().startswith("|"):
            last += 1
        if own is None or i < own <= last:
            return last, keys
    return None


def _cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip().strip("|")) if "|" in line else []


def _with_section(text: str, mark: str, section: str, newline: str) -> tuple[str, str]:
    body = section.strip().replace("\n", newline)
    block = f"<!-- podwright:{mark} begin {_checksum(body)} -->{newline}{body}{newline}<!-- podwright:{mark} end -->"
    pattern = rf"<!-- podwright:{mark} begin ([0-9a-f]{{8}}) -->(.*?)<!-- podwright:{mark} end -->"
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        if f"<!-- podwright:{mark} begin" in text or f"<!-- podwright:{mark} end -->" in text:
            return text, "section"
        gap = "" if text.endswith(newline * 2) or not text else newline if text.endswith(newline) else newline * 2
        return f"{text}{gap}{block}{newline}", ""
    if _checksum(match[2]) != match[1]:
        return text, "section"
    return text[: match.start()] + block + text[match.end() :], ""
