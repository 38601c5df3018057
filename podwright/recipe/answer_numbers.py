"""Which number a text answers with, and when two numbers are equal: the one extractor of gold answers, rewards and evaluation.

Numbers are read as written in digits; words, formulas to work out, and units are not interpreted.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

_GROUP = "[,\u00a0\u202f\u2009]"  # a comma, or a space that does not break: an ordinary space parts two numbers
_DIGITS = rf"(?>[0-9]{{1,3}}(?:{_GROUP}[0-9]{{3}})+(?![0-9])|[0-9]+)"
_EXPONENT = r"[eE][+-]?[0-9]"
# An exponent of three digits makes no number, and what stands before it is none either.
_RUN = rf"{_DIGITS}(?:\.[0-9]++)?+"
_DECIMAL = rf"(?:{_RUN}|(?<![\w.])\.[0-9]++)(?:{_EXPONENT}[0-9]?(?![0-9]))?(?!{_EXPONENT})"
_FRACTION = r"(?:[0-9]+ )?[0-9]+/[1-9][0-9]*(?![0-9/])"
_SIGN = "[-+\u2212\u2013]"
# A dash after a digit, a letter or a bracket parts or subtracts: 5-6 holds 5 and 6, not -6.
_START = rf"(?:\\?[$€£]{_SIGN}|(?:(?<![\w)\]}}]){_SIGN})?(?:\\?[$€£])?)"
_NUMBER = re.compile(f"{_START}(?:{_FRACTION}|{_DECIMAL})")
# A run of digits that is no number is passed over at once: tried from each of its digits, it takes quadratic time.
_NUMBER_OR_RUN = re.compile(rf"({_NUMBER.pattern})|{_RUN}")
_MARKED = re.compile(rf"####[ \t\u00a0]*({_NUMBER.pattern})")
_DOTTED = re.compile(r"\.\w")
_SIGNS = ("", "%", "$", "\\$", "°", "°c", "°f")
# Behind a number they make another one of it: 5 thousandths, 10M, 3 lakh, 5万, 5个半.
_NOT_UNIT = re.compile(
    r"(?i:[xyznekiπ]|pi|sqrt|root|squared|cubed|factorial|or|and|to|mod|half|halves|thirds|dozens?|lakhs?|crores?"
    r"|(?:ten|hundred|thousand|million|billion|trillion)(?:s|ths?)?)|[MB]|[十百千]|.*[万萬亿億半].*"
)
_LONGEST = 64
"""characters; a longer number is babble, and costly to compare"""


class Gold(NamedTuple):
    """What a worked answer is graded by."""

    number: str | None
    """of its first `#### n`; None if there is none, or one too long to compare"""
    line: str
    """all that stands behind that `####`"""
    unread: str
    """what of it is neither the number nor a unit, without which the number may be another one: ` sqrt(2)` of `3 sqrt(2)`"""


def gold(solution: str) -> Gold:
    """The number of a worked answer, read as that of a completion is."""
    match = _MARKED.search(text := _without_latex(solution))
    if not match:
        return Gold(None, "", "")
    number = _plain(match.group(1))
    rest = text[match.end() :].partition("\n")[0]
    words = re.split(r"[\s.]+", rest)
    unit = all(word.lower() in _SIGNS or (word.isalpha() and not _NOT_UNIT.fullmatch(word)) for word in words)
    known = number if _value(number) is not None else None
    line = text[match.start(1) :].partition("\n")[0]
    has_only_unit = unit and not _DOTTED.match(rest)
    return Gold(known, line, "" if has_only_unit else rest)


def extract_strict(text: str) -> str | None:
    """The number of the first `#### n`, without commas and currency; None if there is none.

    As the data set's authors read answers (`#### (-?[0-9.,]+)`), but `####5`, `#### $5`, `#### +5`, `#### −5`, fractions and
    exponents are read too. Markup or words between `####` and the number are not.
    """
    match = _MARKED.search(_without_latex(text))
    return _plain(match.group(1)) if match else None


def extract_flexible(text: str) -> str | None:
    """The number of the first `#### n`; else the last one after the last `</think>`; else the last one of a text without thoughts.

    A thought that was begun and never ended is no answer.
    """
    marked = extract_strict(text)
    if marked is not None:
        return marked
    _, closed, rest = text.rpartition("</think>")
    if not closed and "<think>" in text:
        return None
    numbers = [number for number in _NUMBER_OR_RUN.findall(_without_latex(rest)) if number]
    return _plain(numbers[-1]) if numbers else None


def same_number(answer: str | None, other: str | None) -> bool:
    """Equal in value: 18, 18.0, $18 and 36/2 are one number; None and what is no number equal nothing."""
    a, b = _value(answer), _value(other)
    return a is not None and a == b


def _value(text: str | None) -> Fraction | None:
    if text is None or not _NUMBER.fullmatch(text.strip()):
        return None
    plain = _plain(text.strip())
    if len(plain) > _LONGEST:
        return None
    integer, space, part = plain.removeprefix("-").rpartition(" ")
    value = Fraction(part) + (Fraction(integer) if space else 0)
    return -value if plain.startswith("-") else value


def _plain(number: str) -> str:
    """Digits, point, slash and minus only."""
    number = re.sub(rf"{_GROUP}|[\\$€£]|(?<![eE])\+", "", number)
    return number.replace("\u2212", "-").replace("\u2013", "-")


def _without_latex(text: str) -> str:
    r"""\frac{3}{4} and \frac34 as 3/4, 2\frac{1}{2} as 2 1/2, and 1{,}234, 1,\!234 and 1\,234 as 1,234."""
    if "\\" in text or "{,}" in text:
        text = re.sub(r"(?<=[0-9])(?=\\[dt]?frac)", " ", text)
        text = re.sub(r"\\[dt]?frac(?:\{(-?[0-9]+)\}\{([0-9]+)\}|([0-9])([0-9]))", r"\1\3/\2\4", text)
        text = text.replace("{,}", ",").replace("\\!", "").replace("\\,", "\u2009")
    return text
