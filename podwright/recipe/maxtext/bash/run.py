"""The commands of a script in their order, followed without starting a process: control flow and pipes.

Programs do nothing here. What depends on one is not guessed: of two branches the one that exits without a call of the program that is
looked for is left out; else a difference between them is an error where it matters.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from podwright.recipe.maxtext.bash import conditions, expansion, simple
from podwright.recipe.maxtext.bash.expansion import VariableValue
from podwright.recipe.maxtext.bash.parse import parse
from podwright.recipe.maxtext.bash.state import BashExit, BashReturn, ScriptState, joined
from podwright.recipe.maxtext.bash.syntax import (
    AndOrList,
    BashList,
    BashWord,
    CaseCommand,
    Command,
    ForCommand,
    FunctionCommand,
    GroupCommand,
    IfCommand,
    Pipeline,
    SimpleCommand,
    TestCommand,
    UnreadableScript,
    VariablePart,
)

Outcome = TypeVar("Outcome")
_COMMANDS = 20_000
_CHARACTERS = 1 << 26  # of all values that a script gives to variables
_VARIABLES_PER_COMMAND = 20  # that are compared behind a branch in the time of a command
_DEPTH = 60
_OF_MACHINE = re.compile(
    r"RANDOM|SRANDOM|SECONDS|EPOCH\w+|LINENO|PWD|OLDPWD|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|UID|EUID|PPID|SHLVL|BASH\w*|FUNCNAME|"
    r"GROUPS|DIRSTACK|COLUMNS|LINES|PATH|SHELL|TERM|LANG|LC_\w+|TMPDIR|IFS|OPTIND|PIPESTATUS|_|[0$!-]"
)


class ScriptRun:
    """One reading of a script."""

    def __init__(
        self,
        values: Mapping[str, str],
        files: Mapping[str, str],
        now: datetime,
        looked_for: Callable[[list[str]], bool],
        strict: bool = False,
        stand_ins: Mapping[str, str | None] | None = None,
        other_way: bool = False,
    ):
        """`values` hold against every assignment of the script. `looked_for`: whether the words of a command call the program that is
        looked for. `strict`: a variable that is not set has a value where the script runs, which is not known here. `stand_ins`: text in
        `values` that stands for another -> that other, which counts in conditions; None where the variable is not set. `other_way`: a
        condition on such a variable has the opposite outcome."""
        self.values = values
        self.files = files
        self.now = now
        self.looked_for = looked_for
        self.strict = strict
        self.stand_ins = stand_ins or {}
        self.other_way = other_way
        self.decided: dict[str, int] = {}
        """stand-in that a condition depends on -> line"""
        self._counted: set[str] | None = None
        """stand-ins that the condition under way has met"""
        self.state: ScriptState = ScriptState(variables=dict(values), exported=set(values))
        self.unset: dict[str, int] = {}
        """variable that is used and never set -> line"""
        self.emptied: dict[str, int] = {}
        """variable that the script sets to nothing -> line"""
        self.given: dict[str, int] = {}
        """variable of `values` that is used, and that the script neither sets nor has a default for -> line"""
        self._own: set[str] = set()
        """variables that the script sets or has a default for"""
        self.sourced: dict[str, int] = {}
        """file that the script reads and that is not known -> line"""
        self.traps: list[tuple[str, int]] = []
        """commands that bash runs at the end of the script or between its commands, each with its line"""
        self._commands = 0
        self._characters = 0
        self._depth = 0
        self._in_condition = 0

    # ---- variables: the scope of expansion.py

    @property
    def nounset(self) -> bool:
        return "u" in self.state.options

    def value(self, name: str, line: int) -> VariableValue | None:
        value = self._value(name, line)
        return value if self._counted is None else self._actual(name, value)

    def _value(self, name: str, line: int) -> VariableValue | None:
        if name in self.state.variables:
            if name in self.values and name not in self._own:
                self.given.setdefault(name, line)
            value = self.state.variables[name]
            if isinstance(value, UnreadableScript):
                raise value
            return value
        if name in ("@", "*"):
            return self.state.positional
        if name == "#":
            return str(len(self.state.positional))
        if name.isdigit() and name != "0":
            return self.state.positional[int(name) - 1] if int(name) <= len(self.state.positional) else None
        if name == "?" and self.state.status is not None:
            return str(self.state.status)
        if name == "?" or self.strict or _OF_MACHINE.fullmatch(name):
            raise UnreadableScript(line, f"${name} is known only where the script runs")
        self.unset.setdefault(name, line)
        return None

    def assign(self, name: str, value: VariableValue | UnreadableScript, line: int = 0) -> None:
        if name == "IFS":
            raise UnreadableScript(line, "IFS changes how words are split, which is not read")
        if name in self.state.readonly:
            raise UnreadableScript(line, f"{name} is read-only")
        self._is_own(name)
        self.state.variables[name] = self.values.get(name, value)
        if value and not isinstance(value, UnreadableScript):
            self.has_default(name)
            self.keep(value, line)

    def keep(self, value: VariableValue, line: int) -> None:
        """UnreadableScript where the values and the printed text of the script are too long together."""
        self._characters += len(value) if isinstance(value, str) else sum(map(len, value))
        if self._characters > _CHARACTERS:
            raise UnreadableScript(line, f"values of more than {_CHARACTERS:,} characters together are not read")

    def _is_own(self, name: str) -> None:
        self._own.add(name)
        self.given.pop(name, None)

    def has_default(self, name: str) -> None:
        self.unset.pop(name, None)
        self.emptied.pop(name, None)

    def _actual(self, name: str, value: VariableValue | None) -> VariableValue | None:
        """What bash has where `value` has stand-ins."""
        if isinstance(value, tuple):
            return tuple(str(self._actual("", element)) for element in value)
        met = [each for each in self.stand_ins if value and each in value]
        if self._counted is not None:
            self._counted.update(met)
        if met == [value] and self.values.get(name) == value:
            return self.stand_ins[met[0]]
        return functools.reduce(lambda text, each: text.replace(each, self.stand_ins[each] or ""), met, value)

    def by_values(self, evaluate: Callable[[], Outcome], line: int) -> tuple[Outcome, bool]:
        """What `evaluate` gives where each stand-in is what bash has, and whether that is to be turned round."""
        outer, self._counted = self._counted, set()
        try:
            outcome = evaluate()
            counted = self._counted
        finally:
            self._counted = outer
        for each in sorted(counted):
            self.decided.setdefault(each, line)
        return outcome, self.other_way and bool(counted)

    def condition(self, evaluate: Callable[[], int | None], line: int) -> int | None:
        """The status of a condition."""
        status, turned = self.by_values(evaluate, line)
        return 1 - int(bool(status)) if turned and status is not None else status

    def is_missing(self, part: VariablePart, value: str | None) -> bool:
        """Whether `${NAME-word}` and its kind have no value to take; with a colon an empty one counts as none."""

        def missing() -> bool:
            actual = self._actual(part.name, value)
            return actual is None or (not actual and part.operator.startswith(":"))

        if part.operator[-1] in "-=":
            self._is_own(part.name)
        if part.operator[-1] != "+":  # what the recipe leaves open is filled in before a default counts
            return missing()
        outcome, turned = self.by_values(missing, part.line)
        return outcome != turned

    def output(self, body: BashList, line: int) -> str:
        outer, self.state = self.state, self.state.copy()
        self.state.printed = ()
        try:
            self._subshell(body)
            printed = "".join(self.state.printed or ())
        finally:
            outer.calls, outer.written = self.state.calls, self.state.written
            self.state = outer
        return printed.rstrip("\n")

    def holds_file(self, name: str) -> bool:
        """Whether a file is known to lie beside the script."""
        return posixpath.normpath(name) in self.files and not self.state.moved

    def file(self, name: str, line: int) -> str:
        """The text of a file beside the script."""
        path = posixpath.normpath(name)
        if path in self.state.written or self.state.moved:
            reason = (
                "the script writes before" if path in self.state.written else "lies in a directory that is not known"
            )
            raise UnreadableScript(line, f"the script reads {name}, which {reason}")
        return self.files[path]

    def expand(self, words: tuple[BashWord, ...]) -> list[str]:
        """The words of a command; an error where names of files could take the place of one."""
        expanded = []
        for word in words:
            for field in expansion.fields(word, self):
                if field.pattern:
                    reason = f"{field.text[:80]} stands for the files that it matches where the script runs"
                    raise UnreadableScript(word.line, reason, "put it in quotes in a copy of the script")
                expanded.append(field.text)
        return expanded

    # ---- control flow

    def script(self, text: str, line: int = 1) -> None:
        self.run(parse(text, line))

    def run(self, body: BashList) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            line = _line(body.statements[0].pipelines[0][1].commands[0]) if body.statements else 0
            raise UnreadableScript(line, f"commands call each other more than {_DEPTH} deep")
        for statement in body.statements:
            self._and_or(statement)
        self._depth -= 1

    def _and_or(self, statement: AndOrList) -> None:
        if statement.background:
            raise UnreadableScript(
                _line(statement.pipelines[0][1].commands[0]), "a command in the background is not read"
            )
        last = len(statement.pipelines) - 1
        for number, (operator, pipeline) in enumerate(statement.pipelines):
            if number and self.state.status is None:
                self._either(functools.partial(self._pipeline, pipeline), lambda: None, _line(pipeline.commands[0]))
                continue
            if number and (operator == "&&") != (self.state.status == 0):
                continue
            self._in_condition += number < last
            try:
                self._pipeline(pipeline)
            finally:
                self._in_condition -= number < last
            failed = number == last and self.state.status not in (0, None) and not pipeline.negated
            if failed and "e" in self.state.options and not self._in_condition:
                raise BashExit

    def _either(self, first: Callable[[], None], second: Callable[[], None], line: int) -> None:
        """Two ways of which a running machine takes one; a way that only ends the script is none to the call that is looked for."""
        before, depth, ways = self.state, self._depth, list[ScriptState]()
        self._commands += len(before.variables) // _VARIABLES_PER_COMMAND
        for way in (first, second):
            self.state, self._depth = before.copy(), depth
            try:
                way()
            except BashExit:
                if self.state.calls == before.calls:
                    continue
                raise UnreadableScript(line, "whether the script goes on depends on a program") from None
            ways.append(self.state)
        self._depth = depth
        if not ways:
            raise BashExit
        self.state = joined(ways[0], ways[1], line, "a program that runs before") if len(ways) == 2 else ways[0]

    def _pipeline(self, pipeline: Pipeline) -> None:
        if len(pipeline.commands) == 1:
            self._command(pipeline.commands[0])
        else:
            self._pipe(pipeline.commands)
        if pipeline.negated and self.state.status is not None:
            self.state.status = int(self.state.status == 0)

    def _pipe(self, commands: tuple[Command, ...]) -> None:
        """Each in a subshell, with what the one before it prints as its input. What is printed matters only within $(...)."""
        outer, given = self.state, self.state.given
        for number, command in enumerate(commands):
            self.state = outer.copy()
            self.state.given = given
            self.state.printed = None if outer.printed is None else ()
            single = Pipeline((command,), False, 0, 0)
            self._subshell(BashList((AndOrList((("", single),)),)))
            outer.calls, outer.written = self.state.calls, self.state.written
            given = None if self.state.printed is None else "".join(self.state.printed)
            if number == len(commands) - 1 and outer.printed is not None:
                outer.printed += self.state.printed or ()
        self.state, self.state.status = outer, None

    def _subshell(self, body: BashList) -> None:
        depth = self._depth
        try:
            self.run(body)
        except (BashExit, BashReturn):
            self._depth = depth

    def _command(self, command: Command) -> None:
        self._commands += 1
        if self._commands > _COMMANDS:
            raise UnreadableScript(_line(command), f"more than {_COMMANDS:,} commands are not followed")
        if isinstance(command, SimpleCommand):
            simple.simple(self, command)
        elif isinstance(command, IfCommand):
            self._if(command, 0)
        elif isinstance(command, CaseCommand):
            self._case(command)
        elif isinstance(command, ForCommand):
            self._for(command)
        elif isinstance(command, GroupCommand):
            self._group(command)
        elif isinstance(command, TestCommand):
            self.state.status = self.condition(lambda: conditions.double_brackets(self, command), command.line)
        elif isinstance(command, FunctionCommand):
            self.state.functions[command.name] = command.body
            self.state.status = 0

    def _if(self, command: IfCommand, number: int) -> None:
        if number == len(command.branches):
            self.state.status = 0
            return self.run(command.otherwise)
        condition, body = command.branches[number]
        self._in_condition += 1
        try:
            self.run(condition)
        finally:
            self._in_condition -= 1
        if self.state.status is None:
            return self._either(lambda: self.run(body), lambda: self._if(command, number + 1), command.line)
        if self.state.status == 0:
            return self.run(body)
        self._if(command, number + 1)

    def _case(self, command: CaseCommand) -> None:
        taken, turned = self.by_values(lambda: self._branch(command), command.line)
        if turned:  # to the first of the others
            taken = next((number for number in range(len(command.branches)) if number != taken), None)
        self.state.status = 0
        if taken is not None:
            self.run(command.branches[taken][1])

    def _branch(self, command: CaseCommand) -> int | None:
        """Number of the branch that the subject of a case matches."""
        subject = expansion.text(command.subject, self)
        for number, (alternatives, _) in enumerate(command.branches):
            if any(re.fullmatch(expansion.pattern(word, self), subject, re.DOTALL) for word in alternatives):
                return number
        return None

    def _for(self, command: ForCommand) -> None:
        words = self.expand(command.words)
        actual, _ = (
            self.by_values(lambda: self.expand(command.words), command.line) if self.stand_ins else (words, False)
        )
        for word in words if len(words) == len(actual) else actual:
            self.assign(command.name, word, command.line)
            self.run(command.body)

    def _group(self, command: GroupCommand) -> None:
        if not command.subshell:
            with simple.redirected(self, command.redirections):
                self.run(command.body)
            return
        outer, self.state = self.state, self.state.copy()
        try:
            self._subshell(command.body)
        finally:
            outer.calls, outer.written, outer.status = self.state.calls, self.state.written, self.state.status
            outer.printed = self.state.printed
            self.state = outer


def _line(command: Command) -> int:
    return command.line
