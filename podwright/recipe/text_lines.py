"""What bytes of a file are: UTF-8 text or something else, and lines of JSON with their faults named in words of our own.

Both halves read lines by it, so that a plan, `podwright data check` and training say the same of a file.
"""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from podwright.errors import UserError, counted

SAMPLE_BYTES = 1 << 20
"""of a file, from which its encoding is detected"""
_PACKED = {
    b"\x1f\x8b": ("compressed (gzip)", "gunzip -c"),
    b"BZh": ("compressed (bzip2)", "bunzip2 -c"),
    b"\xfd7zXZ\x00": ("compressed (xz)", "unxz -c"),
    b"(\xb5/\xfd": ("compressed (zstd)", "zstd -dc"),
    b"PK\x03\x04": ("a zip archive", "unzip -p"),
}
"""first bytes -> what the file is, and the command that writes its content to standard output"""
_TAR_MAGIC = 257  # where a tar archive says "ustar"
_FORMATS = {
    b"PAR1": "a parquet file",
    b"ARROW1": "an Arrow file",
    b"\x93NUMPY": "a .npy file",
    b"SQLite format 3": "a SQLite database",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"\x7fELF": "a program",
}
_OF_PARQUET = "give it a name that ends in .parquet if it has questions for GRPO; else write its rows as lines of JSON"
# UTF-32 first: its little-endian mark begins like that of UTF-16.
_MARKS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"
_MOST_CONTROLS, _MOST_ACCENTS = 0.02, 0.25  # of the bytes of a text, and of one in a European language
_ACCENTED = bytes(set(range(0xC0, 0x100)) | set(range(0x91, 0x98)) | {0x80, 0x85})  # of Windows-1252
_LATIN = {"Latin-1": "ISO-8859-1", "Windows-1252": "WINDOWS-1252"}
_POINTER = b"version https://git-lfs.github.com/"
_COLUMN = re.compile(r"[^\W\d][\w.-]*( [\w.-]+){0,2}")  # a name of a few words
_LISTED = 10
_UNLIST = "python3 -c " + shlex.quote(
    'import json,sys; [print(json.dumps(r)) for r in json.load(open(sys.argv[1],encoding="utf-8-sig"))]'
)
_LINES = "lines"  # in the name of a file of converted lines
_JSON_FAULTS = {
    "Expecting value": "a value is missing at column {}",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing at column {}",
    "Expecting ':' delimiter": "a colon is missing at column {}",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing at column {}",
    "Unterminated string starting at": "the text that begins at column {} has no closing quote",
    "Invalid control character at": "a control character at column {} is not written as an escape such as \\n",
    "Invalid \\escape": "the backslash at column {} begins no escape; write \\\\ for a backslash",
    "Invalid \\uXXXX escape": "the \\u at column {} has no four hex digits",
    "Extra data": "something follows the value at column {}",
    "Illegal trailing comma before end of object": "there is a comma too many at column {}",
    "Illegal trailing comma before end of array": "there is a comma too many at column {}",
}


class JsonFault(ValueError):
    """What is wrong with a line that should be JSON, as the end of a sentence."""


def other_format(file: str, head: bytes) -> UserError | None:
    """What the first bytes of a file (its first line is enough) show it to be, where that is not UTF-8 text."""
    for magic, (kind, command) in _PACKED.items():
        if head.startswith(magic) and file.endswith(".npz"):
            new = shlex.quote(f"{file.removesuffix('.npz')}.npy")
            return UserError(
                f"{file} is {kind} of arrays", f"type unzip -p {shlex.quote(file)} > {new} if it has a single one"
            )
        if head.startswith(magic):
            return UserError(f"{file} is {kind}", through(file, command, "unpacked"))
    if head[_TAR_MAGIC : _TAR_MAGIC + 5] == b"ustar":
        return UserError(f"{file} is a tar archive", f"type tar -xf {shlex.quote(file)}, and give what it unpacks")
    for magic, kind in _FORMATS.items():
        if head.startswith(magic):
            fix = _OF_PARQUET if magic == b"PAR1" else "give a file of text, as UTF-8"
            return UserError(f"{file} is {kind}, not text", fix)
    if fault := pointer(file, head):
        return fault
    if not file.endswith(".txt") and re.search(rb"}[ \t]*\r[ \t]*{", head):
        what = f"{file} has lines that end with CR alone, as old Macs wrote them, and not with LF"
        return UserError(what, through(file, r"tr '\r' '\n' <", "lf"))
    if separator := _separator(file, head):
        kind = "tab-separated values" if separator == "\t" else "CSV"
        return UserError(f"{file} is {kind}, not lines of JSON", _from_csv(file, separator))
    if head.strip() in (b"[", b"{", b"[{") and not file.endswith(".txt"):
        what = f"{file} holds JSON over several lines, not one object a line"
        return UserError(what, through(file, "jq -c .", _LINES) if head.startswith(b"{") else unlisted(file))
    name = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "") or _wide(head)
    return UserError(f"{file} is {name}, not UTF-8", _recoded(file, name)) if name else None


def pointer(file: str, head: bytes) -> UserError | None:
    """Of what git leaves in the place of a large file that it has not fetched; None of other files."""
    if not head.startswith(_POINTER):
        return None
    folder = shlex.quote(str(PurePosixPath(file).parent))
    return UserError(f"{file} is a pointer of git-lfs, and not the file itself", f"type git -C {folder} lfs pull")


def encoding(sample: bytes) -> str:
    """The encoding that a file with these bytes has: "" where that cannot be told, or where some of its lines are UTF-8."""
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    high = sum(byte >= 0x80 for line in lines for byte in line)
    if not lines or any(map(is_utf8, lines[:-1])) or _is_binary(sample) or high > _MOST_ACCENTS * len(sample):
        return ""
    runs = [run for line in lines for run in re.findall(rb"[\x80-\xff]+", line)]
    # Letters with accents and quotation marks stand alone or in pairs; of other scripts all letters are high.
    if high > 2 * len(runs) or len(b"".join(runs).translate(None, _ACCENTED)) > 0.3 * high:
        return ""
    return "Windows-1252" if re.search(rb"[\x80-\x9f]", b"\n".join(lines)) else "Latin-1"


def not_utf8(file: str, where: str, sample: bytes, others: Sequence[int] = ()) -> UserError:
    """Of a file of which the line at `where` is not UTF-8, nor are those with the numbers `others`; `sample`: of all the file."""
    if _is_binary(sample):
        return UserError(f"{where} is not text: it holds binary data", "give a file of text, as UTF-8")
    what = f"{where} is not UTF-8"
    if others:
        listed = ", ".join(f"{n:,}" for n in others[:_LISTED]) + (", ..." if len(others) > _LISTED else "")
        what += f", nor {'is' if len(others) == 1 else 'are'} {counted(len(others), 'more line')} ({listed})"
    if name := encoding(sample):
        return UserError(f"{what}: the file looks like {name}", _recoded(file, name))
    return UserError(what, f"save the file as UTF-8: {_recoded(file, 'ITS-ENCODING')}")


def parse_json(line: bytes) -> Any:
    """The value of a line; UnicodeDecodeError, or JsonFault in words. A byte order mark is passed over."""
    text = line.decode().removeprefix("\ufeff").rstrip("\r\n")
    try:
        return json.loads(text)
    except RecursionError as e:
        raise JsonFault("it is nested too deeply") from e
    except ValueError as e:
        raise JsonFault(json_fault(e, text)) from e


def json_fault(error: ValueError, text: str) -> str:
    """What a JSON parser says of a `text`, in words."""
    if "\0" in text:
        return f"it holds {counted(text.count(chr(0)), 'NUL byte')}, as a write that was cut off leaves them"
    if not isinstance(error, json.JSONDecodeError):
        return "it holds a number with more than 4,300 digits"
    if error.pos >= len(text.rstrip()):
        return "it ends too early"
    return _JSON_FAULTS.get(error.msg, "it breaks off at column {}").format(f"{error.pos + 1:,}")


def json_kind(value: Any) -> str:
    """What a value that was read from JSON is, with an article."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, list):
        return f"a list of {counted(len(value), 'value')}"
    return {str: "text", int: "a number", float: "a number", dict: "an object"}.get(
        type(value), "a value of another type"
    )


def require_text(where: str, key: str, value: Any) -> str:
    """The text of a field; UserError naming what it is instead, and what to write."""
    if not isinstance(value, str):
        if value is None:
            fix = f"fill {key} in, or remove the line"
        elif isinstance(value, list | dict):
            fix = f'write {key} as one text: "{key}": "..."'
        elif isinstance(value, bool | int | float):
            fix = f'put {key} in quotes: "{key}": "{json.dumps(value)}"'
        else:
            fix = f"write {key} as text"
        raise UserError(f"{where}: {key} is {json_kind(value)}, not text", fix)
    if not is_encodable(value):
        raise UserError(f"{where}: {key} holds half a character (a lone surrogate)", "write the whole character")
    return value


def unlisted(file: str) -> str:
    """What to type for a file that holds a list of objects."""
    return through(file, _UNLIST, _LINES)


def distinct(file: str) -> str:
    """What to type for a file in which lines are equal."""
    return through(file, "awk '!seen[$0]++'", "distinct")


def rename(key: str, row: Any) -> str:
    """What to do where a row has `key` with spaces or in other letters; "" where it has not."""
    like = [name for name in row if str(name).strip().lower() == key] if isinstance(row, dict) else []
    return f'rename the key "{like[0]}" to "{key}"' if like else ""


def through(file: str, command: str, word: str) -> str:
    """What to type for a file that a command writes to standard output, under a name beside it."""
    path = PurePosixPath(file)
    bare = path.with_suffix("") if path.suffix in (".gz", ".bz2", ".xz", ".zst", ".zip") else path
    suffix = ".jsonl" if word == _LINES else path.suffix
    new = bare if bare != path else path.with_name(f"{path.stem}.{word}{suffix}")
    if "://" in file:
        return f"copy it here, and type {command} {shlex.quote(path.name)} > {shlex.quote(new.name)}"
    return f"type {command} {shlex.quote(file)} > {shlex.quote(str(new))}, and use that file in its place"


def _separator(file: str, head: bytes) -> str:
    """What stands between the column names that a file begins with in place of JSON; "" where none do."""
    line = head.removeprefix(codecs.BOM_UTF8).partition(b"\n")[0].strip()
    if not file.endswith((".jsonl", ".json", ".csv", ".tsv")) or not is_utf8(line):
        return ""
    text = line.decode()
    separator = next((mark for mark in "\t,;" if mark in text), "")
    names = [name.strip('"') for name in text.split(separator)] if separator else []
    is_header = len(names) > 1 and len(set(names)) == len(names) and all(map(_COLUMN.fullmatch, names))
    return separator if is_header else ""


def _from_csv(file: str, separator: str) -> str:
    with_separator = "" if separator == "," else f",delimiter={json.dumps(separator)}"
    rows = f'csv.DictReader(open(sys.argv[1],encoding="utf-8-sig",newline=""){with_separator})'
    code = f"import csv,json,sys; [print(json.dumps(r)) for r in {rows}]"
    return through(file, f"python3 -c {shlex.quote(code)}", _LINES)


def _recoded(file: str, name: str) -> str:
    return through(file, f"iconv -f {_LATIN.get(name, name)} -t UTF-8", "utf8")


def _wide(head: bytes) -> str:
    """Of two bytes a character without a mark: in text with ASCII letters every other byte is 0."""
    first, second = head[0::2], head[1::2]
    if len(head) < 8 or b"\0\0\0" in head:
        return ""
    for name, zero, other in (("UTF-16LE", second, first), ("UTF-16BE", first, second)):
        if zero.count(0) > 0.5 * len(zero) and other.count(0) <= 0.05 * len(other) + 1:
            return name
    return ""


def is_encodable(text: str) -> bool:
    """Whether a text has no lone surrogate (half a character), so that it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_binary(sample: bytes) -> bool:
    return len(sample) - len(sample.translate(None, _CONTROLS)) > _MOST_CONTROLS * len(sample)
