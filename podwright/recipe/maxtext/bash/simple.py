"""Simple commands: assignments, redirections, calls of functions, shells and programs. The builtins are in builtins.py."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from podwright.recipe.maxtext.bash import commands, expansion
from podwright.recipe.maxtext.bash.builtins import BUILTINS
from podwright.recipe.maxtext.bash.parse import DECLARATIONS
from podwright.recipe.maxtext.bash.state import BashExit, BashReturn, LaunchCall
from podwright.recipe.maxtext.bash.syntax import (
    BashWord,
    Redirection,
    SimpleCommand,
    SubstitutionPart,
    TextPart,
    UnreadableScript,
    VariableAssignment,
)
from podwright.recipe.maxtext.bash.words import NAME

if TYPE_CHECKING:
    from podwright.recipe.maxtext.bash.run import ScriptRun

_BEFORE_A_COMMAND = frozenset({"command", "builtin", "exec", "nohup", "sudo", "env", "time"})
_SHELLS = frozenset({"bash", "sh"})
_CALLS = 20
_STARTERS = frozenset({"xpk", "uv", "uvx", "pipx", "poetry", "conda", "mamba"})


def simple(run: ScriptRun, command: SimpleCommand) -> None:
    with redirected(run, command.redirections):
        if not command.words:
            _assignments(run, command.assignments)
            return
        name = _name(run, command)
        if name in DECLARATIONS:
            _declare(run, name, command)
            return
        given = tuple(word for word in command.words if isinstance(word, BashWord))
        turned = False
        try:
            if name in ("[", "test"):
                words, turned = run.by_values(lambda: run.expand(given), command.line)
            else:
                words = run.expand(given)
        except UnreadableScript:
            if _matters(run, name) or run.state.printed is not None:
                raise
            run.state.status = None
            return
        _dispatch(run, words, command)
        if turned and run.state.status is not None:
            run.state.status = 1 - int(bool(run.state.status))


def _name(run: ScriptRun, command: SimpleCommand) -> str:
    first = command.words[0]
    assert isinstance(first, BashWord)
    fields = expansion.fields(first, run)
    return fields[0].text if fields else ""


def _matters(run: ScriptRun, name: str) -> bool:
    """Whether a command may change what the script does, so that its words have to be known."""
    program = name.rpartition("/")[2]
    known = name in BUILTINS or name in _BEFORE_A_COMMAND or name in run.state.functions or name == ""
    started = program in _SHELLS or program in _STARTERS or program.startswith("python")
    return known or started or posixpath.normpath(name) in run.files


def _assignments(run: ScriptRun, assignments: tuple[VariableAssignment, ...]) -> None:
    run.state.status = 0
    for assignment in assignments:
        assign(run, assignment)
        words = (assignment.value,) if isinstance(assignment.value, BashWord) else assignment.value
        if any(isinstance(part, SubstitutionPart) for word in words for part in word.parts):
            run.state.status = None


def assign(run: ScriptRun, assignment: VariableAssignment) -> None:
    """A value that cannot be read is an error only where it is used."""
    value: expansion.VariableValue | UnreadableScript
    try:
        if isinstance(assignment.value, BashWord):
            value = expansion.text(assignment.value, run, assignment=True)
        else:
            value = tuple(run.expand(assignment.value))
        if assignment.append:
            value = _appended(run, assignment, value)
    except UnreadableScript as e:
        value = e
    if value == "" and all(isinstance(part, TextPart) for part in assignment.value.parts):  # type: ignore[union-attr]
        run.emptied.setdefault(assignment.name, assignment.line)
    run.assign(assignment.name, value, assignment.line)


def _appended(
    run: ScriptRun, assignment: VariableAssignment, value: expansion.VariableValue
) -> expansion.VariableValue:
    before = run.value(assignment.name, assignment.line) if assignment.name in run.state.variables else None
    if before is None:
        return value
    if isinstance(before, tuple):
        if isinstance(value, str):
            raise UnreadableScript(assignment.line, f"{assignment.name}+= of a text to an array is not read")
        return before + value
    return before + value if isinstance(value, str) else (before, *value)


def _declare(run: ScriptRun, name: str, command: SimpleCommand) -> None:
    run.state.status = 0
    names = []
    for word in command.words[1:]:
        if isinstance(word, VariableAssignment):
            assign(run, word)
            names.append(word.name)
            continue
        for text in run.expand((word,)):
            if text.startswith("-"):
                _require_option(name, text, command.line)
                continue
            variable, equals, value = text.partition("=")
            if not NAME.fullmatch(variable):
                raise UnreadableScript(command.line, f"{name} {text} is not read")
            if equals:
                run.assign(variable, value, command.line)
            names.append(variable)
    if name == "export" or (name in ("declare", "typeset") and _exports(command)):
        run.state.exported.update(names)
    if name == "readonly":
        run.state.readonly.update(names)


def _exports(command: SimpleCommand) -> bool:
    return any(isinstance(word, BashWord) and "x" in (word.literal or "") for word in command.words[1:2])


def _require_option(name: str, text: str, line: int) -> None:
    if not re.fullmatch(r"--|-[agrxp]+", text) or (name != "export" and "p" in text):
        raise UnreadableScript(line, f"{name} {text} is not read")


def _dispatch(run: ScriptRun, words: list[str], command: SimpleCommand) -> None:
    """A command by its words, behind its assignments: `NAME=value command`."""
    if not words:
        _assignments(run, command.assignments)
        return
    before = {a.name: run.state.variables.get(a.name) for a in command.assignments}
    exported = set(run.state.exported)
    for assignment in command.assignments:
        assign(run, assignment)
        run.state.exported.add(assignment.name)
    try:
        _call(run, words, command.line)
    finally:
        run.state.exported = run.state.exported & exported if before else run.state.exported
        for name, value in before.items():
            if value is None:
                run.state.variables.pop(name, None)
            else:
                run.state.variables[name] = value


def _call(run: ScriptRun, words: list[str], line: int) -> None:
    name = words[0]
    if run.looked_for(words) and name not in run.state.functions:
        if len(run.state.calls) >= _CALLS:
            raise UnreadableScript(
                line, f"more than {_CALLS} calls of {name} are not read", "leave one in a copy of the script"
            )
        run.state.calls += (LaunchCall(tuple(words), line, run.state.environment()),)
        _program(run, words, line)
        return
    if name in run.state.functions:
        _function(run, words)
    elif name in BUILTINS:
        BUILTINS[name](run, words, line)
    elif name in _BEFORE_A_COMMAND and len(words) > 1:
        _behind(run, words, line)
    elif name.rpartition("/")[2] in _SHELLS:
        _shell(run, words, line)
    elif posixpath.normpath(name) in run.files and "/" in name:
        _shell(run, ["bash", *words], line)
    else:
        _program(run, words, line)


def _function(run: ScriptRun, words: list[str]) -> None:
    outer = run.state.positional
    run.state.positional = tuple(words[1:])
    with contextlib.suppress(BashReturn):
        run.run(run.state.functions[words[0]])
    run.state.positional = outer


def _behind(run: ScriptRun, words: list[str], line: int) -> None:
    """`exec`, `env NAME=value` and their kind: the command behind them."""
    name, rest = words[0], words[1:]
    if name == "command" and rest[0] in ("-v", "-V"):
        run.state.status = None
        return _no_output(run, " ".join(words), line)
    while rest and (re.match(r"[A-Za-z_]\w*=", rest[0]) and name in ("env", "sudo")):
        rest = rest[1:]
    if rest and rest[0].startswith("-"):
        if "xpk" not in " ".join(rest):
            return _program(run, words, line)
        raise UnreadableScript(line, f"{name} {rest[0]} is not read")
    if rest:
        _call(run, rest, line)
    if name == "exec":
        raise BashExit


def _shell(run: ScriptRun, words: list[str], line: int) -> None:
    """`bash FILE` and `bash -c TEXT`, in a shell of its own."""
    rest = [word for word in words[1:] if not re.fullmatch(r"-[exu]+", word)]
    text: str | None = None
    positional: tuple[str, ...] = ()
    if rest[:1] == ["-c"] and len(rest) > 1:
        text, positional = rest[1], tuple(rest[3:])
    elif rest and posixpath.normpath(rest[0]) in run.files:
        text, positional = run.file(rest[0], line), tuple(rest[1:])
    if text is None:
        raise UnreadableScript(line, f"{' '.join(words)[:80]} runs a script that is not known")
    outer, run.state = run.state, run.state.copy()
    exported = {name: value for name, value in outer.variables.items() if name in outer.exported}
    run.state.variables, run.state.positional, run.state.options, run.state.functions = exported, positional, set(), {}
    try:
        with contextlib.suppress(BashExit, BashReturn):
            run.script(text)
    finally:
        outer.calls, outer.written, outer.printed = run.state.calls, run.state.written, run.state.printed
        run.state = outer
    run.state.status = None


def _program(run: ScriptRun, words: list[str], line: int) -> None:
    """Any other program: nothing of it is known, but for what some of them print."""
    run.state.status = None
    if run.state.printed is None:
        return
    name = words[0].rpartition("/")[2]
    printed: str | None = None
    if run.strict and name not in commands.FILTERS:
        pass
    elif name == "date":
        printed = commands.date(words[1:], run.now)
    elif name == "whoami" or words == ["id", "-un"]:
        user = run.value("USER", line)
        printed = f"{user}\n" if isinstance(user, str) else None
    elif name in commands.FILTERS:
        printed = _filtered(run, name, words[1:], line)
    if printed is None:
        raise UnreadableScript(line, f"what {' '.join(words)[:80]} prints is known only where the script runs")
    run.keep(printed, line)
    run.state.printed += (printed,)


def _filtered(run: ScriptRun, name: str, words: list[str], line: int) -> str | None:
    if name == "cat" and len(words) == 1 and posixpath.normpath(words[0]) in run.files:
        return run.file(words[0], line)
    if run.state.given is None and name != "basename":
        return None
    return commands.FILTERS[name](words, run.state.given or "")


def _no_output(run: ScriptRun, words: str, line: int) -> None:
    if run.state.printed is not None:
        raise UnreadableScript(line, f"what {words[:80]} prints is known only where the script runs")


@contextlib.contextmanager
def redirected(run: ScriptRun, redirections: tuple[Redirection, ...]) -> Iterator[None]:
    """Here-documents become the input; output into a file is not printed."""
    given, printed = run.state.given, run.state.printed
    elsewhere = False
    for redirection in redirections:
        operator = redirection.operator.lstrip("0123456789")
        if operator in ("<<", "<<<"):
            text = expansion.text(redirection.target, run)
            run.state.given = text + ("\n" if operator == "<<<" else "")
        elif operator == "<":
            name = expansion.text(redirection.target, run)
            if not name.startswith("/dev/") and not run.holds_file(name):
                reason = f"whether {name} can be read is known only where the script runs"
                raise UnreadableScript(redirection.target.line, reason)
            run.state.given = None
        else:
            with contextlib.suppress(UnreadableScript):
                run.state.written |= {posixpath.normpath(expansion.text(redirection.target, run))}
            elsewhere |= not redirection.operator.startswith("2")
    if elsewhere:
        run.state.printed = None
    try:
        yield
    finally:
        run.state.given = given
        if elsewhere:
            run.state.printed = printed
