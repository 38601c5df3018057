"""Whether a condition of `[ ]` or `[[ ]]` holds: 0 or 1 as an exit status, None where only a running machine knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from podwright.recipe.maxtext.bash import expansion
from podwright.recipe.maxtext.bash.syntax import TestCommand, UnreadableScript

if TYPE_CHECKING:
    from podwright.recipe.maxtext.bash.run import ScriptRun

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_BINARY = frozenset({"=", "==", "!=", "=~", "<", ">", *_COMPARED})
_OF_FILES = frozenset({"-e", "-f", "-d", "-r", "-s", "-x", "-w", "-L", "-h", "-t", "-p", "-S"})


def test(words: Sequence[str], line: int, holds_file: Callable[[str], bool]) -> int | None:
    """The status of `[ words ]`. `holds_file`: whether a file lies beside the script."""
    if not words:
        return 1
    if words[0] == "!" and len(words) > 1:
        status = test(words[1:], line, holds_file)
        return None if status is None else 1 - status
    if len(words) == 1:
        return int(not words[0])
    if len(words) == 2:
        return unary(words[0], words[1], line, holds_file)
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        return int((words[0] == words[2]) == (words[1] == "!="))
    if len(words) == 3:
        return compared(words[0], words[1], words[2], line)
    raise UnreadableScript(line, f"the condition {' '.join(words)} is not read")


def unary(operator: str, word: str, line: int, holds_file: Callable[[str], bool]) -> int | None:
    if operator in ("-z", "-n"):
        return int(bool(word) == (operator == "-z"))
    if operator in _OF_FILES:
        return 0 if operator in ("-e", "-f", "-r") and holds_file(word) else None
    raise UnreadableScript(line, f"the condition {operator} {word} is not read")


def compared(left: str, operator: str, right: str, line: int) -> int:
    if operator not in _COMPARED or not all(re.fullmatch(r"\s*-?(0|[1-9]\d{0,17})\s*", word) for word in (left, right)):
        raise UnreadableScript(line, f"the condition {left} {operator} {right} is not read")
    return int(not _COMPARED[operator](int(left), int(right)))


def double_brackets(run: ScriptRun, command: TestCommand) -> int | None:
    """The status of `[[ ... ]]`, by its grammar: || binds least, then &&, then !."""
    status, position = _joined(run, command, 0)
    if position != len(command.words):
        raise UnreadableScript(command.line, "the condition in [[ ]] is not read")
    return status


_DECIDES = {"||": 0, "&&": 1}
"""by operator, the status of one side that is that of both; the operator that binds least first"""


def _joined(run: ScriptRun, command: TestCommand, position: int, operator: str = "||") -> tuple[int | None, int]:
    def side(position: int) -> tuple[int | None, int]:
        return _joined(run, command, position, "&&") if operator == "||" else _term(run, command, position)

    status, position = side(position)
    while _literal(command, position) == operator:
        other, position = side(position + 1)
        if _DECIDES[operator] in (status, other):
            status = _DECIDES[operator]
        elif other is None:
            status = None
    return status, position


def _term(run: ScriptRun, command: TestCommand, position: int) -> tuple[int | None, int]:
    literal = _literal(command, position)
    if literal == "!":
        status, position = _term(run, command, position + 1)
        return (None if status is None else 1 - status), position
    if literal == "(":
        status, position = _joined(run, command, position + 1)
        return status, position + 1
    if literal.startswith("-") and _literal(command, position + 1) not in _BINARY:
        word = _text(run, command, position + 1)
        return unary(literal, word, command.line, run.holds_file), position + 2
    left, operator = _text(run, command, position), _literal(command, position + 1)
    if operator not in _BINARY:
        return int(not left), position + 1
    if operator in ("=", "==", "!="):
        if position + 2 >= len(command.words):
            raise UnreadableScript(command.line, "the condition in [[ ]] is not complete")
        expression = expansion.pattern(command.words[position + 2], run)
        same = re.fullmatch(expression, left, re.DOTALL) is not None
        return int(same == (operator == "!=")), position + 3
    return compared(left, operator, _text(run, command, position + 2), command.line), position + 3


def _literal(command: TestCommand, position: int) -> str:
    return (command.words[position].literal or "") if position < len(command.words) else ""


def _text(run: ScriptRun, command: TestCommand, position: int) -> str:
    if position >= len(command.words):
        raise UnreadableScript(command.line, "the condition in [[ ]] is not complete")
    return expansion.text(command.words[position], run)
