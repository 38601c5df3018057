"""The builtins of bash that change what a script does or print text."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from podwright.recipe.maxtext.bash import commands, conditions
from podwright.recipe.maxtext.bash.state import BashExit, BashReturn
from podwright.recipe.maxtext.bash.syntax import UnreadableScript
from podwright.recipe.maxtext.bash.words import NAME

if TYPE_CHECKING:
    from podwright.recipe.maxtext.bash.run import ScriptRun

_SHORT_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_WITHOUT_EFFECT = frozenset("euxvhBEHmT")  # letters of set: those that change nothing that is read, and -e and -u
_WITHOUT_SIGNAL = {"EXIT", "0", "ERR", "DEBUG", "RETURN"}  # what a trap may wait for that happens to every script


def _print(run: ScriptRun, printed: str | None, words: list[str], line: int) -> None:
    run.state.status = 0
    if run.state.printed is None:
        return
    if printed is None:
        raise UnreadableScript(line, f"what {' '.join(words)[:80]} prints is not read")
    run.keep(printed, line)
    run.state.printed += (printed,)


def _source(run: ScriptRun, words: list[str], line: int) -> None:
    if len(words) < 2:
        raise UnreadableScript(line, f"{words[0]} without a file is not read")
    run.state.status = None
    if posixpath.normpath(words[1]) not in run.files and posixpath.normpath(words[1]) not in run.state.written:
        if not words[1].endswith("bin/activate"):  # of a virtual environment: nothing that a launch script uses
            run.sourced.setdefault(words[1], line)
        return
    with contextlib.suppress(BashReturn):
        run.script(run.file(words[1], line))


def _set(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.status = 0
    rest = words[1:]
    while rest and re.match(r"[-+]", rest[0]):
        option, rest = rest[0], rest[1:]
        if option == "--":
            run.state.positional = tuple(rest)
            return
        letters = option[1:]
        if letters.endswith("o") and rest:
            long, rest = rest[0], rest[1:]
            letters = letters[:-1] + {"errexit": "e", "nounset": "u", "pipefail": "", "xtrace": "x"}.get(long, "?")
        if not set(letters) <= _WITHOUT_EFFECT:
            raise UnreadableScript(line, f"{' '.join(words)} is not read")
        run.state.options = run.state.options - set(letters) if option[0] == "+" else run.state.options | set(letters)
    if rest:
        run.state.positional = tuple(rest)


def _read(run: ScriptRun, words: list[str], line: int) -> None:
    """`read -r -d '' NAME` takes a here-document; what else is read is not known."""
    names = [word for word in words[1:] if NAME.fullmatch(word)]
    if words[1:-1] == ["-r", "-d", ""] and run.state.given is not None and names:
        run.assign(names[0], run.state.given.strip(" \t\n"), line)
        run.state.status = 1
        return
    for name in names:
        run.assign(name, UnreadableScript(line, f"{name} is read from an input that is not known"), line)
    run.state.status = None


def _printf(run: ScriptRun, words: list[str], line: int) -> None:
    if words[1:2] != ["-v"]:
        _print(run, commands.printf(words[1:]), words, line)
        return
    printed = commands.printf(words[3:])
    problem = UnreadableScript(line, f"{' '.join(words)[:80]} is not read")
    run.assign(words[2], problem if printed is None else printed, line)
    run.state.status = 0


def _unset(run: ScriptRun, words: list[str], line: int) -> None:
    for name in words[1:]:
        run.state.variables.pop(name, None)
        run.state.exported.discard(name)
        run.state.functions.pop(name, None)
    run.state.status = 0


def _test(run: ScriptRun, words: list[str], line: int) -> None:
    inner = words[1:-1] if words[0] == "[" else words[1:]
    if words[0] == "[" and words[-1] != "]":
        raise UnreadableScript(line, "[ has no closing ]", "close it")
    run.state.status = conditions.test(inner, line, run.holds_file)


def _cd(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.moved |= words[1:] != ["."]
    run.state.status = None


def _shift(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.positional = run.state.positional[
        int(words[1]) if words[1:2] and _SHORT_NUMBER.fullmatch(words[1]) else 1 :
    ]
    run.state.status = 0


def _exit(run: ScriptRun, words: list[str], line: int) -> None:
    raise BashExit


def _return(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.status = int(words[1]) if words[1:2] and _SHORT_NUMBER.fullmatch(words[1]) else run.state.status
    raise BashReturn


def _nothing(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.status = 0


def _trap(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.status = 0
    command, *signals = [*(words[2:] if words[1:2] == ["--"] else words[1:]), ""]
    if _WITHOUT_SIGNAL & {signal.upper().removeprefix("SIG") for signal in signals} and not command.startswith("-"):
        run.traps.append((command, line))


def _false(run: ScriptRun, words: list[str], line: int) -> None:
    run.state.status = 1


def _unread(run: ScriptRun, words: list[str], line: int) -> None:
    raise UnreadableScript(line, f"{' '.join(words)[:80]} is not read")


BUILTINS: dict[str, Callable[[ScriptRun, list[str], int], None]] = {
    "echo": lambda run, words, line: _print(run, commands.echo(words[1:]), words, line),
    "printf": _printf,
    "true": _nothing,
    ":": _nothing,
    "false": _false,
    "source": _source,
    ".": _source,
    "set": _set,
    "unset": _unset,
    "read": _read,
    "mapfile": _read,
    "readarray": _read,
    "test": _test,
    "[": _test,
    "cd": _cd,
    "pushd": _cd,
    "popd": _cd,
    "shift": _shift,
    "exit": _exit,
    "return": _return,
    "eval": lambda run, words, line: run.script(" ".join(words[1:]), line),
    "let": _unread,
    "shopt": _unread,
    "enable": _unread,
    "break": _unread,
    "continue": _unread,
    "trap": _trap,
    "alias": _nothing,
}
