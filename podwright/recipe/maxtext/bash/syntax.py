"""The syntax tree of a script, and the error for what is not read of it. Lines count from 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.errors import UserError


class UnreadableScript(UserError):
    """A construction that the reader does not know, or a value that only a running machine has. Nothing is guessed."""

    def __init__(self, line: int, reason: str, fix: str = ""):
        super().__init__(
            f"line {line}: {reason}", fix or "write the value out in a copy of the script, or leave the line out there"
        )
        self.line = line
        self.reason = reason


@dataclass(frozen=True)
class TextPart:
    text: str
    quoted: bool


@dataclass(frozen=True)
class VariablePart:
    """`$NAME` or `${NAME[index]operator argument}`."""

    name: str
    quoted: bool
    line: int
    operator: str = ""
    arguments: tuple[BashWord, ...] = ()
    index: str = ""
    """`@`, `*` or a number of digits, "" without brackets"""
    length: bool = False


@dataclass(frozen=True)
class SubstitutionPart:
    """`$(...)` or backquotes."""

    body: BashList
    quoted: bool
    line: int


@dataclass(frozen=True)
class UnreadablePart:
    """Syntax whose end is known and whose value is not: an error only where the value is used."""

    reason: str
    line: int


Part = TextPart | VariablePart | SubstitutionPart | UnreadablePart


@dataclass(frozen=True)
class BashWord:
    parts: tuple[Part, ...]
    line: int
    end: int = 0
    """the position behind it in the text"""
    start: int = 0

    @property
    def literal(self) -> str | None:
        """Its text where nothing in it is quoted or expanded, so that it may be a keyword."""
        if all(isinstance(part, TextPart) and not part.quoted for part in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, TextPart))
        return None


@dataclass(frozen=True)
class Redirection:
    operator: str
    target: BashWord
    """the file, the descriptor, or the text of a here-document"""


@dataclass(frozen=True)
class VariableAssignment:
    name: str
    value: BashWord | tuple[BashWord, ...]
    """a tuple: an array"""
    append: bool
    line: int


@dataclass(frozen=True)
class SimpleCommand:
    assignments: tuple[VariableAssignment, ...]
    words: tuple[BashWord | VariableAssignment, ...]
    """an assignment behind the name of a command such as export"""
    redirections: tuple[Redirection, ...]
    line: int


@dataclass(frozen=True)
class IfCommand:
    branches: tuple[tuple[BashList, BashList], ...]
    otherwise: BashList
    line: int


@dataclass(frozen=True)
class CaseCommand:
    subject: BashWord
    branches: tuple[tuple[tuple[BashWord, ...], BashList], ...]
    line: int


@dataclass(frozen=True)
class ForCommand:
    name: str
    words: tuple[BashWord, ...]
    body: BashList
    line: int


@dataclass(frozen=True)
class GroupCommand:
    body: BashList
    subshell: bool
    line: int
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True)
class TestCommand:
    """`[[ ... ]]`: words, and && || ! ( ) as words of their own."""

    words: tuple[BashWord, ...]
    line: int


@dataclass(frozen=True)
class FunctionCommand:
    name: str
    body: BashList
    line: int


Command = SimpleCommand | IfCommand | CaseCommand | ForCommand | GroupCommand | TestCommand | FunctionCommand


@dataclass(frozen=True)
class Pipeline:
    commands: tuple[Command, ...]
    negated: bool
    start: int
    end: int
    """where it stands in the text, so that it can be quoted as it is"""


@dataclass(frozen=True)
class AndOrList:
    """Pipelines with the operator before each: "" before the first, then && or ||."""

    pipelines: tuple[tuple[str, Pipeline], ...]
    background: bool = False


@dataclass(frozen=True)
class BashList:
    statements: tuple[AndOrList, ...] = field(default=())
