"""The command of a container, split into environment, setup, the program that trains with its arguments, and what follows.

The text is read by the reader of launch scripts. What only the container knows (`$HOSTNAME`, the output of a program) stays shell text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from podwright.errors import UserError
from podwright.recipe.maxtext.bash import expansion, simple
from podwright.recipe.maxtext.bash.parse import DECLARATIONS, parse
from podwright.recipe.maxtext.bash.run import ScriptRun
from podwright.recipe.maxtext.bash.state import BashExit
from podwright.recipe.maxtext.bash.syntax import (
    AndOrList,
    BashList,
    BashWord,
    Pipeline,
    SimpleCommand,
    UnreadableScript,
    VariableAssignment,
)

_ARGUMENT = re.compile(r"(?:--?)?[A-Za-z_][\w.-]*=", re.ASCII)
_BRACED = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_BEFORE = frozenset({"pip", "pip3", "venv", "ensurepip", "site", "http.server"})
"""modules that python -m starts before training"""
COMPILER_FLAGS = "LIBTPU_INIT_ARGS"


@dataclass
class ContainerCommand:
    environment: dict[str, str] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)
    python: str = "python3"
    module: str = ""
    base_config: str = ""
    arguments: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, str] = field(default_factory=dict)
    """argument that is there more than once -> the values that do not count"""
    after: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    own: list[tuple[int, str, str]] = field(default_factory=list)
    """variables that are not exported: the place in setup, the name, the assignment"""


def split(text: str, known: Mapping[str, str] | None = None, name: str = "--command") -> ContainerCommand:
    """The parts of `text`, which bash runs in a container. UserError where no program in it trains.

    `known`: variables that have a value there. `name`: of the text in messages.
    """
    command = ContainerCommand()
    run = ScriptRun(known or {}, {}, datetime.now(UTC), lambda words: False, strict=True)
    try:
        statements = parse(text).statements
        for number, statement in enumerate(statements):
            if _statement(command, run, statement, text):
                command.after = _joined(command.after, [_raw(s, text) for s in statements[number + 1 :]])
                return _with_own_variables(command)
    except UnreadableScript as e:
        raise UserError(f"{name} {e.what}", e.fix) from e
    raise UserError(
        f"{name} starts no training that is known: {text.strip()[:80]}",
        "write it as `python3 -m MODULE CONFIG key=value`",
    )


def _statement(command: ContainerCommand, run: ScriptRun, statement: AndOrList, text: str) -> bool:
    """Whether training begins in it. What stands before goes into environment and setup."""
    pipelines = statement.pipelines
    for number, (_, pipeline) in enumerate(pipelines):
        alternative = number + 1 < len(pipelines) and pipelines[number + 1][0] == "||"
        if pipelines[number][0] == "||":
            continue
        if alternative:
            end = next((n for n in range(number + 1, len(pipelines)) if pipelines[n][0] != "||"), len(pipelines))
            command.setup.append(_protected(text[pipeline.start : pipelines[end - 1][1].end]))
            continue
        first = pipeline.commands[0]
        words = _words(run, first) if isinstance(first, SimpleCommand) else []
        if isinstance(first, SimpleCommand) and _trains(words):
            _training(command, run, first, words, text)
            rest = text[_end_of_words(first) : pipelines[-1][1].end]
            command.after = _joined(command.after, [_protected(rest)] if rest.strip() else [], " ")
            return True
        if not (len(pipeline.commands) == 1 and isinstance(first, SimpleCommand) and _exported(command, run, first)):
            _setup(command, run, pipeline, words, text)
    return False


def _words(run: ScriptRun, command: SimpleCommand) -> list[str]:
    """Of a command; a word that only the container knows is the text "$"."""
    words = []
    for word in command.words:
        if isinstance(word, BashWord):
            try:
                words += _expanded(run, word)
            except UnreadableScript:
                words.append("$")
    return words


def _expanded(run: ScriptRun, word: BashWord) -> list[str]:
    """As bash expands it; a file that matches `key=/data/*` would lie in a directory `key=`, which there is not."""
    fields = expansion.fields(word, run)
    return [f.text for f in fields] if all(_ARGUMENT.match(f.text) for f in fields) else run.expand((word,))


def _trains(words: list[str]) -> bool:
    if not words:
        return False
    program, rest = words[0].rpartition("/")[2], _without_options(words[1:])
    if program.startswith("python"):
        module = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else ""
        script = bool(rest) and rest[0].endswith(".py") and any(_ARGUMENT.match(word) for word in rest[1:])
        return (bool(module) and module not in _BEFORE) or script
    return program in ("bash", "sh") and bool(rest) and rest[0].endswith(".sh")


def _without_options(words: list[str]) -> list[str]:
    """Without options of python such as -u, but for -m."""
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]
    return words


def _end_of_words(command: SimpleCommand) -> int:
    return max(word.end for word in command.words if isinstance(word, BashWord))


def _training(command: ContainerCommand, run: ScriptRun, call: SimpleCommand, words: list[str], text: str) -> None:
    for assignment in call.assignments:
        simple.assign(run, assignment)
        value = run.value(assignment.name, assignment.line)
        command.environment[assignment.name] = value if isinstance(value, str) else ""
    rest = _without_options(words[1:])
    options = words[1 : len(words) - len(rest)]
    if words[0].rpartition("/")[2].startswith("python"):
        command.python = " ".join([words[0], *options])
        rest = rest[1:] if rest[0] == "-m" else rest
    command.module, rest = rest[0], rest[1:]
    if rest and re.search(r"\.ya?ml$", rest[0]) and "=" not in rest[0]:
        command.base_config, rest = rest[0], rest[1:]
    if "$" not in words:
        others = _arguments(command, rest)
        command.after = " ".join(shlex.quote(word) for word in others)
        return
    # Words that only the container knows keep their shell text, behind the others.
    raw = []
    for word in call.words:
        assert isinstance(word, BashWord)
        try:
            _arguments(command, [w for w in _expanded(run, word) if _ARGUMENT.match(w)])
        except UnreadableScript as e:
            raw.append(_protected(_source(word, text)))
            command.notes[raw[-1]] = f"{e.reason}: it stays as it is behind the arguments"
    words_without_key = [shlex.quote(word) for word in rest if word != "$" and not _ARGUMENT.match(word)]
    command.after = " ".join([*words_without_key, *raw])


def _source(word: BashWord, text: str) -> str:
    """A word as it stands in the text: from the blank before it."""
    start = re.compile(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+$").search(text, 0, word.end)
    return start[0] if start else ""


def _arguments(command: ContainerCommand, words: list[str]) -> list[str]:
    """Adds those that have a key; the others."""
    others = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not _ARGUMENT.match(word):
            others.append(word)
            continue
        if key in command.arguments:
            command.repeated[key] = ", ".join(filter(None, [command.repeated.get(key, ""), command.arguments[key]]))
        command.arguments[key] = value
    return others


def _exported(command: ContainerCommand, run: ScriptRun, call: SimpleCommand) -> bool:
    """Whether a command only sets variables, whose values are known here."""
    declared = [word for word in call.words if isinstance(word, VariableAssignment)]
    first = call.words[0] if call.words else None
    name = first.literal if isinstance(first, BashWord) else None
    if call.words and (name not in DECLARATIONS or len(declared) != len(call.words) - 1):
        return False
    assignments = [*call.assignments, *declared]
    for assignment in assignments:
        simple.assign(run, assignment)
    if any(isinstance(run.state.variables[a.name], UnreadableScript) for a in assignments):
        return False
    for assignment in assignments:
        value = run.state.variables[assignment.name]
        if not isinstance(value, str):
            continue
        if name == "export":
            command.environment[assignment.name] = value
        else:
            command.own.append((len(command.setup), assignment.name, f"{assignment.name}={shlex.quote(value)}"))
    return True


def _with_own_variables(command: ContainerCommand) -> ContainerCommand:
    """With the variables that shell text which stayed as it is refers to."""
    texts = " ".join([*command.setup, command.after])
    for place, name, assignment in reversed(command.own):
        if re.search(rf"\$\{{?{name}\b", texts):
            command.setup.insert(place, assignment)
    return command


def _setup(command: ContainerCommand, run: ScriptRun, pipeline: Pipeline, words: list[str], text: str) -> None:
    """A command that runs before training: as it stands where it has no variables, else with their values where they are known."""
    raw = text[pipeline.start : pipeline.end]
    if words[:1] == ["set"]:
        command.setup += ["set -o pipefail"] if "pipefail" in words else []
        return
    first = pipeline.commands[0]
    alone = isinstance(first, SimpleCommand) and len(pipeline.commands) == 1
    plain = alone and bool(words) and not (first.redirections or first.assignments)  # type: ignore[union-attr]
    plain = plain and not any(isinstance(word, VariableAssignment) for word in first.words)  # type: ignore[union-attr]
    if plain and "$" in raw and "$" not in words:
        command.setup.append(" ".join(shlex.quote(word) for word in words))
        return
    command.setup.append(_protected(raw))
    if not isinstance(first, SimpleCommand):
        try:  # for the variables that it sets
            run.run(BashList((AndOrList((("", pipeline),)),)))
        except (UnreadableScript, BashExit):
            command.notes[raw[:40]] = "what it sets is not known here"


def _raw(statement: AndOrList, text: str) -> str:
    return _protected(text[statement.pipelines[0][1].start : statement.pipelines[-1][1].end])


def _joined(first: str, rest: list[str], between: str = "; ") -> str:
    return between.join(filter(None, [first, *rest]))


def _protected(text: str) -> str:
    """Shell text of the container without continuation lines, in which no `${NAME}` is one that a user fills in."""
    text = re.sub(r"[ \t]*\\\n[ \t]*", " ", text).strip()
    return _BRACED.sub(lambda m: m[0] if m[1] == "TPU_WORKER_ID" else f"${{{m[1]}-}}", text)
