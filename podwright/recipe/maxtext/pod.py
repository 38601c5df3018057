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
from podwright.recipe.script_text import COMMENT, HEREDOC, contexts

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
    stops_at_errors: bool = False
    """whether set -e stands before training"""
    own: list[tuple[int, str, str]] = field(default_factory=list)
    """variables that are not exported: the place in setup, the name, the assignment"""
    decided: dict[str, int] = field(default_factory=dict, compare=False)
    """stand-in that a condition depends on -> line"""


def split(
    text: str,
    known: Mapping[str, str] | None = None,
    name: str = "--command",
    stand_ins: Mapping[str, str | None] | None = None,
    other_way: bool = False,
) -> ContainerCommand:
    """The parts of `text`, which bash runs in a container. UserError where no program in it trains.

    `known`: variables that have a value there. `name`: of the text in messages. `stand_ins`, `other_way`: as ScriptRun has them.
    """
    command = ContainerCommand()
    now = datetime.now(UTC)
    run = ScriptRun(known or {}, {}, now, lambda words: False, strict=True, stand_ins=stand_ins, other_way=other_way)
    command.decided = run.decided
    try:
        _require_plain_text(text, name)
        statements = parse(text).statements
        for number, statement in enumerate(statements):
            if _statement(command, run, statement, text):
                _followed(command, [_raw(each, text) for each in statements[number + 1 :]])
                return _with_own_variables(command)
    except UnreadableScript as e:
        raise UserError(f"{name} {e.what}", e.fix) from e
    python = re.compile(r"[^;\n]*\bpython[\d.]*\s[^;\n]*").search(text)
    if python:
        what = f"{name} starts python in a part that is not read: {python[0].strip()[:80]}"
    else:
        what = f"{name} starts no training that is known: {text.strip()[:80]}"
    fix = "write it as `python3 -m MODULE CONFIG key=value`, with no other command around it"
    raise UserError(what, fix)


def _require_plain_text(text: str, name: str) -> None:
    """UnreadableScript for a here-document, and for a comment behind a part of --command, which takes in the rest of its line."""
    kinds = contexts(text)
    if HEREDOC in kinds:
        line = text.count("\n", 0, kinds.index(HEREDOC))
        raise UnreadableScript(line, "a here-document is not read", "put the file that it writes into the image")
    for comment in re.finditer(f"{COMMENT}+", kinds) if name == "--command" else ():
        before = text[: comment.start()].replace("\\\n", "  ").rpartition("\n")[2]
        if before.strip():
            what = f"{text[comment.start() : comment.end()].strip()[:60]} is a comment: nothing in it reaches MaxText"
            raise UnreadableScript(
                text.count("\n", 0, comment.start()) + 1, what, "take it out in a copy of the script"
            )


def _followed(command: ContainerCommand, statements: list[str]) -> None:
    """Adds statements behind training, each with the separator before it."""
    command.after += "".join(f"; {each}" for each in statements)
    if statements:
        note = "it stays as it is behind training, and is no argument of MaxText"
        if not command.stops_at_errors:
            note += "; the rendered command begins with set -e, so that it runs only where training succeeds"
        command.notes[f"; {'; '.join(statements)}"] = note


def _statement(command: ContainerCommand, run: ScriptRun, statement: AndOrList, text: str) -> bool:
    """Whether training begins in it. What stands before goes into environment and setup."""
    pipelines = statement.pipelines
    if statement.background:
        _require_no_training(run, statement, "runs in the background (&), where its exit code is lost")
        command.setup.append(_raw(statement, text))
        return False
    for number, (_, pipeline) in enumerate(pipelines):
        alternative = number + 1 < len(pipelines) and pipelines[number + 1][0] == "||"
        if pipelines[number][0] == "||":
            continue
        if alternative:
            other = pipelines[number + 1][1]
            why = f"has || {_protected(text[other.start : other.end])} behind it, which hides its exit code"
            _require_no_training(run, AndOrList(pipelines[number : number + 2]), why)
            end = next((n for n in range(number + 1, len(pipelines)) if pipelines[n][0] != "||"), len(pipelines))
            command.setup.append(_protected(text[pipeline.start : pipelines[end - 1][1].end]))
            continue
        first = pipeline.commands[0]
        words = _words(run, first) if isinstance(first, SimpleCommand) else []
        if isinstance(first, SimpleCommand) and _trains(words):
            if pipeline.negated:
                raise UnreadableScript(
                    first.line, "! before training turns its exit code round", "take ! out in a copy of the script"
                )
            if text.startswith("time", pipeline.start):
                command.notes["time"] = "left out: the log has the time of each step"
            _training(command, run, first, words, text)
            end = _end_of_words(first)
            within = [
                f"{r.operator}{text[r.target.start : r.target.end]}" for r in first.redirections if r.target.end <= end
            ]
            rest = _protected(text[end : pipelines[-1][1].end])
            command.after = " ".join(filter(None, [command.after, *map(_protected, within), rest]))
            return True
        if not (len(pipeline.commands) == 1 and isinstance(first, SimpleCommand) and _exported(command, run, first)):
            _setup(command, run, pipeline, words, text)
    return False


def _require_no_training(run: ScriptRun, statement: AndOrList, why: str) -> None:
    for _, pipeline in statement.pipelines:
        first = pipeline.commands[0]
        if isinstance(first, SimpleCommand) and _trains(_words(run, first)):
            fix = "take it out in a copy of the script, or put a value that has & or | in quotes"
            raise UnreadableScript(first.line, f"training {why}", fix)


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
        value = run.state.variables[assignment.name]
        if isinstance(value, UnreadableScript) and isinstance(assignment.value, BashWord):
            source = text[assignment.value.start : assignment.value.end]
            command.setup.append(_protected(f"export {assignment.name}={source}"))
        else:
            command.environment[assignment.name] = value if isinstance(value, str) else ""
    rest = _without_options(words[1:])
    options = words[1 : len(words) - len(rest)]
    if words[0].rpartition("/")[2].startswith("python"):
        command.python = " ".join([words[0], *options])
        rest = rest[1:] if rest[0] == "-m" else rest
    command.module, rest = rest[0], rest[1:]
    if rest and re.search(r"\.ya?ml$", rest[0]) and "=" not in rest[0]:
        command.base_config, rest = rest[0], rest[1:]
    elif rest[:1] == ["$"] and (config := _config_of_container(run, call, text)):
        command.base_config, rest = config, rest[1:]
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
            if _as_path(text[word.start : word.end]) == command.base_config:
                continue
            raw.append(_protected(text[word.start : word.end]))
            command.notes[raw[-1]] = f"{e.reason}: it stays as it is behind the arguments"
    words_without_key = [shlex.quote(word) for word in rest if word != "$" and not _ARGUMENT.match(word)]
    command.after = " ".join([*words_without_key, *raw])


def _config_of_container(run: ScriptRun, call: SimpleCommand, text: str) -> str:
    """The path of a YAML file that is the first word with what only the container knows; ""."""
    unread = next(
        word
        for word in call.words
        if isinstance(word, BashWord) and _words(run, SimpleCommand((), (word,), (), 0)) == ["$"]
    )
    path = _as_path(text[unread.start : unread.end])
    return path if re.fullmatch(r"(?:[\w./+@:-]|\$\{[A-Za-z_]\w*-?\})+\.ya?ml", path, re.ASCII) else ""


def _as_path(source: str) -> str:
    """A word of a shell with braces around its variables and without quotes."""
    return _protected(re.sub(r"\$([A-Za-z_]\w*)", r"${\1}", source.strip('"'), flags=re.ASCII))


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
    used = set(re.findall(r"\$\{?([A-Za-z_]\w*)", " ".join([*command.setup, command.after])))
    for place, name, assignment in reversed(command.own):
        if name in used:
            command.setup.insert(place, assignment)
    return command


def _setup(command: ContainerCommand, run: ScriptRun, pipeline: Pipeline, words: list[str], text: str) -> None:
    """A command that runs before training: as it stands where it has no variables, else with their values where they are known."""
    raw = text[pipeline.start : pipeline.end]
    if words[:1] == ["set"]:
        command.setup += ["set -o pipefail"] if "pipefail" in words else []
        command.stops_at_errors |= any(re.fullmatch(r"-[a-z]*e[a-z]*", word) for word in words)
        if not all(re.fullmatch(r"-e|-e?o|pipefail", word) for word in words[1:]):
            command.notes[" ".join(words)] = "of its options, the rendered command has -e and -o pipefail alone"
        return
    first = pipeline.commands[0]
    alone = isinstance(first, SimpleCommand) and len(pipeline.commands) == 1
    plain = alone and bool(words) and not (first.redirections or first.assignments)  # type: ignore[union-attr]
    plain = plain and not pipeline.negated and not any(isinstance(word, VariableAssignment) for word in first.words)  # type: ignore[union-attr]
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
    """A statement as text that stands between others; in braces where it runs in the background."""
    raw = _protected(text[statement.pipelines[0][1].start : statement.pipelines[-1][1].end])
    return f"{{ {raw} & }}" if statement.background else raw


def _protected(text: str) -> str:
    """Shell text of the container without continuation lines and comments, in which no `${NAME}` is one that a user fills in."""
    text = "".join(c for c, kind in zip(text, contexts(text), strict=True) if kind != COMMENT)
    text = re.sub(r"(?<![ \t])[ \t]*\\\n[ \t]*", " ", text).strip()
    return _BRACED.sub(lambda m: m[0] if m[1] == "TPU_WORKER_ID" else f"${{{m[1]}-}}", text)
