"""Words to text: variables, `${...}` with an operator, substitutions, splitting at blanks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from podwright.recipe.maxtext.bash import patterns
from podwright.recipe.maxtext.bash.syntax import (
    BashList,
    BashWord,
    SubstitutionPart,
    TextPart,
    UnreadablePart,
    UnreadableScript,
    VariablePart,
)

LONGEST = 1 << 20
"""characters of a value; a script that doubles one is refused rather than followed"""
_PATTERN_LIMIT = 1 << 14  # characters of a value that a pattern is held against
_BRACES = re.compile(r"\{([^{}\s]*)\}")

VariableValue = str | tuple[str, ...]
"""a tuple: an array"""


class VariableScope(Protocol):
    @property
    def nounset(self) -> bool:
        """Whether a variable that is not set is an error, as after set -u."""

    def value(self, name: str, line: int) -> VariableValue | None:
        """None where it is not set; UnreadableScript where its value cannot be known."""

    def assign(self, name: str, value: VariableValue) -> None: ...

    def has_default(self, name: str) -> None:
        """That the script has a value for `name` where nobody sets it."""

    def is_missing(self, part: VariablePart, value: str | None) -> bool:
        """Whether `${NAME-word}` and its kind have no value to take."""

    def output(self, body: BashList, line: int) -> str:
        """What commands print, without newlines at its end."""


@dataclass(frozen=True)
class ExpandedPiece:
    text: str
    quoted: bool
    splits: bool


@dataclass(frozen=True)
class CommandField:
    """A word of a command after all expansions."""

    text: str
    pattern: bool
    """whether an unquoted * ? or [ stands in it, so that names of files may take its place"""


Pieces = list[ExpandedPiece | None]
"""None: one word ends and another begins"""


def fields(word: BashWord, scope: VariableScope) -> list[CommandField]:
    """The words of a command that a word becomes: none, one or several."""
    visible = "".join(part.text if isinstance(part, TextPart) and not part.quoted else "\0" for part in word.parts)
    if any("," in match[1] or ".." in match[1] for match in _BRACES.finditer(visible)):
        raise UnreadableScript(
            word.line, f"the braces in {visible.strip(chr(0))} make several words, which is not read"
        )
    complete, current, pattern = list[CommandField](), list[str](), False

    def finish() -> None:
        nonlocal current, pattern
        if current:
            complete.append(CommandField("".join(current), pattern))
        current, pattern = [], False

    for piece in _pieces(word, scope, assignment=bool(re.match(r"[A-Za-z_]\w*=", visible))):
        if piece is None:
            finish()
            continue
        for number, text in enumerate(re.split(r"[ \t\n]+", piece.text) if piece.splits else [piece.text]):
            if number:
                finish()
            if text or piece.quoted:
                current.append(text)
                pattern |= not piece.quoted and _is_pattern(text)
    finish()
    return complete


def _is_pattern(text: str) -> bool:
    """Whether names of files may take the place of an unquoted text."""
    brackets = any(0 <= line.find("[") < line.rfind("]") for line in text.split("\n"))
    return "*" in text or "?" in text or brackets


def text(word: BashWord, scope: VariableScope, assignment: bool = False) -> str:
    """What a word becomes where it is not split: the value of an assignment, the file of a redirection."""
    return "".join(" " if piece is None else piece.text for piece in _pieces(word, scope, assignment))


def pattern(word: BashWord, scope: VariableScope) -> str:
    """A word as a regular expression: what is quoted in it stands for itself."""
    expression = ""
    for piece in _pieces(word, scope, False):
        if piece is None:
            raise UnreadableScript(word.line, "an array as a pattern is not read")
        try:
            expression += re.escape(piece.text) if piece.quoted else patterns.to_regex(piece.text)
        except KeyError as e:
            raise UnreadableScript(word.line, f"the class {e.args[0]} in a pattern is not read") from e
    return expression


def _pieces(word: BashWord, scope: VariableScope, assignment: bool) -> Pieces:
    pieces: Pieces = []
    for number, part in enumerate(word.parts):
        if isinstance(part, TextPart):
            content = part.text
            if not part.quoted and "~" in content:
                content = _home(content, number == 0, number == len(word.parts) - 1, assignment, word.line, scope)
            pieces.append(ExpandedPiece(content, part.quoted, False))
        elif isinstance(part, UnreadablePart):
            raise UnreadableScript(part.line, part.reason)
        elif isinstance(part, SubstitutionPart):
            pieces.append(ExpandedPiece(scope.output(part.body, part.line), part.quoted, not part.quoted))
        else:
            pieces += _variable(part, scope)
    if sum(len(piece.text) for piece in pieces if piece) > LONGEST:
        raise UnreadableScript(word.line, f"a word of more than {LONGEST:,} characters is not read")
    return pieces


def _home(content: str, first: bool, last: bool, assignment: bool, line: int, scope: VariableScope) -> str:
    """With the home for each ~ that stands where bash expands it."""
    starts = r"\A" if first else r"(?!)"
    if assignment:
        starts = rf"(?:{starts}|(?<=[:=]))"
    for tilde in re.finditer(rf"{starts}~([^/:]*)", content):
        if tilde[1] or (tilde.end() == len(content) and not last):
            raise UnreadableScript(line, f"{tilde[0]} is the home of another user, which is not known")
    home = scope.value("HOME", line)
    return re.sub(rf"{starts}~", lambda _: home if isinstance(home, str) else "~", content)


def _variable(part: VariablePart, scope: VariableScope) -> Pieces:
    value = scope.value(part.name, part.line)
    index = part.name if part.name in ("@", "*") else part.index
    if index in ("@", "*"):
        elements = (value,) if isinstance(value, str) else value or ()
        return _elements(part, index, elements, scope)
    if isinstance(value, tuple) or index:
        elements = value if isinstance(value, tuple) else (value,) if value is not None else ()
        number = int(index or 0)
        value = elements[number] if number < len(elements) else None
    if part.length:
        return [ExpandedPiece(str(len(value or "")), part.quoted, not part.quoted)]
    if part.operator.lstrip(":") in ("-", "=", "+", "?") and part.operator:
        return _default(part, value, scope)
    if value is None and scope.nounset:
        raise UnreadableScript(part.line, f"{part.name} is not set", _setting(part.name))
    return [ExpandedPiece(_changed(part, value or "", scope), part.quoted, not part.quoted)]


def _setting(name: str) -> str:
    """What to type for a variable; "" for $1 and its kind, which have no name to type."""
    return f"type {name}=VALUE" if name.isidentifier() else ""


def _elements(part: VariablePart, index: str, elements: tuple[str, ...], scope: VariableScope) -> Pieces:
    if part.length:
        return [ExpandedPiece(str(len(elements)), part.quoted, False)]
    if part.operator and part.operator not in ("#", "##", "%", "%%", "/", "//", "/#", "/%", "^^", ",,"):
        raise UnreadableScript(part.line, f"${{{part.name}[{index}]{part.operator}...}} is not read")
    elements = tuple(_changed(part, element, scope) for element in elements)
    if part.quoted and index == "*":
        return [ExpandedPiece(" ".join(elements), True, False)]
    pieces: Pieces = []
    for number, element in enumerate(elements):
        pieces += [None] * bool(number)
        pieces.append(ExpandedPiece(element, part.quoted, not part.quoted))
    return pieces


def _default(part: VariablePart, value: str | None, scope: VariableScope) -> Pieces:
    """`${NAME-word}`, `=`, `+` and `?`; with a colon an empty value counts as none."""
    missing = scope.is_missing(part, value)
    kind = part.operator[-1]
    if kind == "+":
        return [] if missing else _argument(part, scope)
    if not missing:
        return [ExpandedPiece(value or "", part.quoted, not part.quoted)]
    if kind == "?":
        raise UnreadableScript(part.line, f"{part.name} is not set, and the script asks for it", _setting(part.name))
    if kind == "=":
        assigned = text(part.arguments[0], scope)
        scope.assign(part.name, assigned)
        default: Pieces = [ExpandedPiece(assigned, part.quoted, not part.quoted)]
    else:
        default = _argument(part, scope)
    if any(piece and piece.text for piece in default):
        scope.has_default(part.name)
    elif value:  # a text that stands for an empty value
        return [ExpandedPiece(value, part.quoted, not part.quoted)]
    return default


def _argument(part: VariablePart, scope: VariableScope) -> Pieces:
    """The word behind an operator, in the quotes of the braces around it."""
    pieces = _pieces(part.arguments[0], scope, False)
    if part.quoted:
        return [ExpandedPiece("".join(piece.text for piece in pieces if piece), True, False)]
    return [piece and ExpandedPiece(piece.text, piece.quoted, not piece.quoted) for piece in pieces]


def _changed(part: VariablePart, value: str, scope: VariableScope) -> str:
    """A value by the operator in its braces."""
    operator = part.operator
    if not operator:
        return value
    if len(value) > _PATTERN_LIMIT:
        raise UnreadableScript(part.line, f"a pattern against more than {_PATTERN_LIMIT:,} characters is not read")
    if operator == ":":
        return _slice(part, value, scope)
    if operator in ("^^", ",,", "^", ","):
        if part.arguments[0].parts:
            raise UnreadableScript(part.line, f"{operator} with a pattern is not read")
        change = str.upper if "^" in operator else str.lower
        return change(value) if len(operator) == 2 else change(value[:1]) + value[1:]
    expression = pattern(part.arguments[0], scope)
    if operator in ("#", "##"):
        return patterns.without_prefix(value, expression, operator == "##")
    if operator in ("%", "%%"):
        return patterns.without_suffix(value, expression, operator == "%%")
    replacement = text(part.arguments[1], scope) if len(part.arguments) > 1 else ""
    if re.search(r"[&\\]", replacement):
        raise UnreadableScript(part.line, f"{replacement} as a replacement depends on the version of bash")
    if len(value) * len(replacement) > LONGEST:
        raise UnreadableScript(part.line, f"a text of up to {len(value) * len(replacement):,} characters is not read")
    return patterns.replaced(value, expression, replacement, operator)


def _slice(part: VariablePart, value: str, scope: VariableScope) -> str:
    """`${NAME:offset:length}`; numbers only."""
    numbers = [text(argument, scope).strip() for argument in part.arguments]
    if not all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", number) for number in numbers):
        raise UnreadableScript(part.line, f"${{{part.name}:{':'.join(numbers)}}} needs numbers")
    start = int(numbers[0])
    if start < 0 and -start > len(value):
        return ""
    start = start + len(value) if start < 0 else start
    if len(numbers) == 1:
        return value[start:]
    end = int(numbers[1]) + (len(value) if int(numbers[1]) < 0 else start)
    if end < start:
        raise UnreadableScript(part.line, f"${{{part.name}:{':'.join(numbers)}}} ends before it begins")
    return value[start:end]
