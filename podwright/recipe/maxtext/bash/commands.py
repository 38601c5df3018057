"""What commands print whose output follows from their words and their input alone: printf, date, echo, tr, cut and a few more.

Each function gives None for words that it does not know, which the caller refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

_CONVERSION = re.compile(r"%(-?)(\d{0,4})(?:\.(\d{0,4}))?([sdi%])")  # wider ones are not read
_LONGEST = 1 << 20  # characters that a program prints
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "a": "\a", "r": "\r"}
_DATE = frozenset("YmdHMSyjFTDeIpbBaAuwRGVCZzs%")
_DATE_ENGLISH = re.compile(r"%([A-Za-z%])")


def printf(words: list[str]) -> str | None:
    """`%s`, `%d` with width and precision, and plain escapes; the format is used again while words are left."""
    if words and words[0] == "--":
        words = words[1:]
    if not words or words[0].startswith("-"):
        return None
    form, rest = words[0], words[1:]
    if "%" in _CONVERSION.sub("", form) or any(m[1] not in _ESCAPES for m in _ESCAPE.finditer(form)):
        return None
    taken = sum(m[4] != "%" for m in _CONVERSION.finditer(form))
    printed, length = list[str](), 0
    for start in range(0, max(len(rest), 1), taken or len(rest) or 1):
        filled = _formatted(form, iter(rest[start : start + taken]))
        length += len(filled or "")
        if filled is None or length > _LONGEST:
            return None
        printed.append(filled)
    return "".join(printed)


def _formatted(form: str, words: Iterator[str]) -> str | None:
    printed, position = "", 0
    for match in _CONVERSION.finditer(form):
        printed += _unescaped(form[position : match.start()])
        position = match.end()
        if match[4] == "%":
            printed += "%"
            continue
        word = next(words, "" if match[4] == "s" else "0")
        if match[4] != "s" and not re.fullmatch(r"-?(0|[1-9]\d*)", word):
            return None
        if match[3] is not None:
            if not word.isascii() or match[4] != "s":  # precision counts bytes
                return None
            word = word[: int(match[3] or 0)]
        if match[2].startswith("0") and match[4] != "s" and not match[1]:
            word = word.zfill(int(match[2]))
        width = int(match[2] or 0)
        printed += word.ljust(width) if match[1] else word.rjust(width)
    return printed + _unescaped(form[position:])


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: _ESCAPES[m[1]], text)


def date(words: list[str], now: datetime) -> str | None:
    """`date [-u] +FORMAT` at `now`, a time with its zone, by the C locale."""
    if words and words[0] in ("-u", "--utc", "--universal"):
        words, now = words[1:], now.astimezone(UTC)
    if len(words) != 1 or not words[0].startswith("+"):
        return None
    letters = re.findall(r"%(.?)", words[0].replace("%%", ""))
    if not set(letters) <= _DATE:
        return None
    text = _DATE_ENGLISH.sub(lambda m: _date_field(m[1], now), words[0][1:])
    return text + "\n"


def _date_field(letter: str, now: datetime) -> str:
    if letter == "%":
        return "%"
    if letter == "s":
        return str(int(now.timestamp()))
    return now.strftime({"R": "%H:%M", "e": "%e"}.get(letter, f"%{letter}"))


def echo(words: list[str]) -> str | None:
    end = "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        if "e" in words[0] and any("\\" in word for word in words[1:]):
            return None
        end = "" if "n" in words[0] else end
        words = words[1:]
    return " ".join(words) + end


def cat(words: list[str], given: str) -> str | None:
    return given if not words or words == ["-"] else None


def tr(words: list[str], given: str) -> str | None:
    """Sets of single characters, ranges and [:upper:] or [:lower:], and -d."""
    if words[:1] == ["-d"] and len(words) == 2:
        gone = _characters(words[1])
        return None if gone is None else "".join(c for c in given if c not in gone)
    if len(words) != 2 or words[0].startswith("-"):
        return None
    before, after = _characters(words[0]), _characters(words[1])
    if not before or not after:
        return None
    return given.translate(dict(zip(map(ord, before), after.ljust(len(before), after[-1]), strict=False)))


def _characters(text: str) -> str | None:
    """The characters of a set of tr, in their order."""
    text = text.replace("[:upper:]", "A-Z").replace("[:lower:]", "a-z").replace("[:digit:]", "0-9")
    text = text.replace("[:alnum:]", "A-Za-z0-9")
    if re.search(r"[\\\[\]]", text) or not text.isascii():
        return None
    return re.sub(r"(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), text)


def cut(words: list[str], given: str) -> str | None:
    """-cN-M, and -dX -fN."""
    text = " ".join(words)
    if span := re.fullmatch(r"-[cb] ?(\d{0,9})-(\d{0,9})", text):
        start, end = int(span[1] or 1) - 1, int(span[2]) if span[2] else None
        return "".join(line[start:end] + "\n" for line in given.splitlines())
    if field := re.fullmatch(r"-d ?(.) -f ?(\d{1,9})", text):
        lines = [line.split(field[1]) for line in given.splitlines()]
        number = int(field[2])
        return "".join(((x[number - 1] if number <= len(x) else "") if len(x) > 1 else x[0]) + "\n" for x in lines)
    return None


def head(words: list[str], given: str) -> str | None:
    text = " ".join(words)
    if count := re.fullmatch(r"-c ?(\d{1,9})", text):
        return given[: int(count[1])] if given.isascii() else None
    if count := re.fullmatch(r"(?:-n ?|-)(\d{1,9})|", text):
        return "".join(given.splitlines(keepends=True)[: int(count[1] or 10)])
    return None


def sed(words: list[str], given: str) -> str | None:
    """s/text/text/g with texts that have no special characters."""
    match = re.fullmatch(r"s([/|,#@])([\w :.\-]+)\1([\w :\-]*)\1(g?)", words[0]) if len(words) == 1 else None
    if not match or "." in match[2] or given.count(match[2]) * len(match[3]) > _LONGEST:
        return None
    return "".join(x.replace(match[2], match[3], -1 if match[4] else 1) for x in given.splitlines(keepends=True))


def basename(words: list[str], _: str) -> str | None:
    if len(words) not in (1, 2) or words[0].startswith("-"):
        return None
    name = words[0].rstrip("/").rpartition("/")[2] or "/"
    suffix = words[1] if len(words) == 2 else ""
    return (name.removesuffix(suffix) if name != suffix else name) + "\n"


FILTERS: Mapping[str, Callable[[list[str], str], str | None]] = {
    "cat": cat,
    "tr": tr,
    "cut": cut,
    "head": head,
    "sed": sed,
    "basename": basename,
}
"""program -> its output from its words and its input"""
