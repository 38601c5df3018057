"""The command of a container, split into environment, setup, the program that trains with its arguments, and what follows.

bash itself says what the words of each command are, with one stand-in in the place of all programs. What only the container knows
(`$HOSTNAME`, the output of a program) stays shell text, and so does every command but the one that trains: neither is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from podwright.errors import UserError
from podwright.recipe.script_text import COMMENT, HEREDOC, contexts, quoted
from podwright.sandbox.evaluation import Evaluated
from podwright.sandbox.pieces import (
    ARGUMENT,
    ASSIGNMENT,
    Piece,
    between,
    is_known,
    pipelines,
    statements,
    without_comments,
)

Hear = Callable[[str, Mapping[str, str]], Evaluated]
"""from a script and values of variables to what bash calls in it"""

_BRACED = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_BEFORE = frozenset({"pip", "pip3", "venv", "ensurepip", "site", "http.server"})
"""modules that python -m starts before training"""
_DECLARATIONS = ("export", "declare", "typeset", "readonly", "local")
_SETS = re.compile(r"(?:^|[\s;&|({])(?:for\s+|read\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(?:\+?=|\s|$)")
_UNKNOWN = "\ue002"
"""begins a word that stands for one that only the container knows; its number follows"""
_MOST_COMMANDS = 400
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
    exported: list[str] = field(default_factory=list)
    """variables of the environment, whose values the call of training has"""
    own: list[tuple[int, str, str]] = field(default_factory=list)
    """variables that are not exported: the place in setup, the name, the assignment"""


class _Reading:
    """One text with what bash makes of it."""

    def __init__(self, text: str, hear: Hear, known: Mapping[str, str], typed: Mapping[str, str]):
        self.statements = statements(text)
        self.unknown: list[str] = []
        """the words that only the container knows"""
        self.declared: dict[int, bool] = {}
        """piece that only sets variables, by its place in the text -> whether their values are known"""
        self.typed = typed
        self._variables = {*known, *typed}
        pieces = [piece for statement in self.statements for piece in statement][:_MOST_COMMANDS]
        lines = [f"{name}={quoted(value)}" for name, value in known.items()]
        lines += [self._line(piece) for piece in pieces]
        evaluated = hear("\n".join(filter(None, lines)), typed)
        self.problem = evaluated.problem
        # the stand-in of python3 gets the number of a piece, and then its words
        self._calls = {int(call.argv[1]): call for call in evaluated.calls if call.name == "python3"}

    def heard(self, piece: Piece) -> tuple[list[str], Mapping[str, str]]:
        """The words and the environment of a piece, as bash passes them on; none of a piece that bash does not reach."""
        call = self._calls.get(piece.start)
        return ([*call.argv[2:]], call.env) if call else ([], {})

    def _line(self, piece: Piece) -> str:
        """What bash is given in the place of `piece`."""
        names = [match[1] for word in piece.words if (match := ASSIGNMENT.match(word))]
        if _only_sets(piece):
            known = all(is_known(word, self._variables) for word in piece.words)
            known &= all(ASSIGNMENT.match(word) or word in self._variables for word in _declared(piece))
            self.declared[piece.start] = known
            (self._variables.update if known else self._variables.difference_update)(names)
            return piece.text if known else ""
        if piece.compound or piece.words[:1] in (["read"], ["printf"], ["unset"]):
            self._variables.difference_update(_SETS.findall(piece.text))
        if piece.compound:
            return ""
        words = [self._word(word) for word in _command(piece)]
        before = [word for word in _prefix(piece) if is_known(word, self._variables)]
        return " ".join([*before, "python3", str(piece.start), *words])

    def _word(self, word: str) -> str:
        if is_known(word, self._variables):
            return word
        self.unknown.append(word)
        return f"'{_UNKNOWN}{len(self.unknown) - 1}'"

    def trains(self, piece: Piece) -> bool:
        words, _ = self.heard(piece)
        if not words:
            return False
        program = words[0].rpartition("/")[2]
        rest = _without_options(words[1:])
        if program.startswith("python"):
            module = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else ""
            script = bool(rest) and rest[0].endswith(".py") and any(ARGUMENT.match(word) for word in rest[1:])
            return (bool(module) and module not in _BEFORE) or script
        return program in ("bash", "sh") and bool(rest) and rest[0].endswith(".sh")


def split(
    text: str,
    hear: Hear,
    name: str = "--command",
    *,
    known: Mapping[str, str] = MappingProxyType({}),
    typed: Mapping[str, str] = MappingProxyType({}),
) -> ContainerCommand:
    """The parts of `text`, which bash runs in a container. UserError where no program in it trains.

    `known`: variables that have a value there at the begin. `typed`: variables that have these values whatever the text sets them to.
    `name`: of the text in messages.
    """
    _require_plain_text(text, name)
    reading = _Reading(without_comments(text), hear, known, typed)
    command = ContainerCommand()
    for number, statement in enumerate(reading.statements):
        if _statement(command, reading, statement, name):
            _followed(command, [_raw(each) for each in reading.statements[number + 1 :]])
            return _with_own_variables(command)
    what = f"{name} starts no training that is known: {text.strip()[:80]}"
    if reading.problem:
        what = f"{name} is no command of bash: {reading.problem}"
    fix = "write it as `python3 -m MODULE CONFIG key=value`, with no other command around it"
    raise UserError(what, fix, "no-training")


def _require_plain_text(text: str, name: str) -> None:
    """UserError for a here-document, and for a comment behind a part of --command, which takes in the rest of its line."""
    kinds = contexts(text)
    if HEREDOC in kinds:
        line = text.count("\n", 0, kinds.index(HEREDOC))
        fix = "put the file that it writes into the image"
        raise UserError(f"{name} line {line}: a here-document is not read", fix, "here-document")
    for comment in re.finditer(f"{COMMENT}+", kinds) if name == "--command" else ():
        before = text[: comment.start()].replace("\\\n", "  ").rpartition("\n")[2]
        if before.strip():
            words = text[comment.start() : comment.end()].strip()[:60]
            what = f"{name}: {words} is a comment: nothing in it reaches MaxText"
            raise UserError(what, "take it out in a copy of the script", "comment-in-command")


def _followed(command: ContainerCommand, texts: list[str]) -> None:
    """Adds statements behind training, each with the separator before it."""
    command.after += "".join(f"; {each}" for each in texts)
    if texts:
        note = (
            "it stays as it is behind training, and is no argument of MaxText; the rendered command begins with set -e"
        )
        command.notes[f"; {'; '.join(texts)}"] = note


def _statement(command: ContainerCommand, reading: _Reading, statement: list[Piece], name: str) -> bool:
    """Whether training begins in it. What stands before goes into environment and setup."""
    lists = pipelines(statement)
    if statement[-1].after == "&":
        why = "runs in the background (&), where its exit code is lost"
        _require_no_training(reading, [pipeline[0] for pipeline in lists], why, name)
        command.setup.append(_raw(statement))
        return False
    for number, pipeline in enumerate(lists):
        first = pipeline[0]
        if number and lists[number - 1][-1].after == "||":
            continue
        if pipeline[-1].after == "||":
            others = lists[number + 1 :]
            why = f"has || {_protected(between(others[0][0], others[0][-1]))} behind it, which hides its exit code"
            _require_no_training(reading, [first, others[0][0]], why, name)
            last = next(other[-1] for other in others if other[-1].after != "||")
            command.setup.append(_protected(between(first, last)))
        elif reading.trains(first):
            if first.words[0] == "!":
                fix = "take ! out in a copy of the script"
                raise UserError(f"{name}: ! before training turns its exit code round", fix, "training-hidden")
            if first.words[0] == "time":
                command.notes["time"] = "left out: the log has the time of each step"
            _training(command, reading, first)
            behind = first.source[first.end : statement[-1].end]
            command.after = " ".join(
                filter(None, [command.after, *map(_protected, first.redirections), _protected(behind)])
            )
            return True
        elif len(pipeline) > 1 or not _sets(command, reading, first):
            _setup(command, reading, pipeline)
    return False


def _require_no_training(reading: _Reading, pieces: Sequence[Piece], why: str, name: str) -> None:
    if any(reading.trains(piece) for piece in pieces):
        fix = "take it out in a copy of the script, or put a value that has & or | in quotes"
        raise UserError(f"{name}: training {why}", fix, "training-hidden")


def _command(piece: Piece) -> list[str]:
    """Its words without ! and time, and without the variables before them."""
    words = list(piece.words)
    while words and (words[0] in ("!", "time") or ASSIGNMENT.match(words[0])):
        words.pop(0)
    return words


def _prefix(piece: Piece) -> list[str]:
    """The variables before a command."""
    return [word for word in piece.words[: len(piece.words) - len(_command(piece))] if ASSIGNMENT.match(word)]


def _declared(piece: Piece) -> list[str]:
    """The words of a piece behind `export` and its kind."""
    return piece.words[1:] if piece.words[:1] and piece.words[0] in _DECLARATIONS else piece.words


def _only_sets(piece: Piece) -> bool:
    """Whether a piece is nothing but assignments, `export A` among them."""
    words = _declared(piece)
    exports = piece.words[:1] == ["export"]
    return (
        bool(words)
        and not (piece.compound or piece.redirections)
        and all(ASSIGNMENT.match(word) or (exports and word.isidentifier()) for word in words)
    )


def _without_options(words: list[str]) -> list[str]:
    """Without options of python such as -u, but for -m."""
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]
    return words


def _training(command: ContainerCommand, reading: _Reading, piece: Piece) -> None:
    words, environment = reading.heard(piece)
    for assignment in _prefix(piece):
        key, _, value = assignment.partition("=")
        if key in environment:
            command.exported.append(key)
        else:
            command.setup.append(_protected(f"export {key}={value}"))
    command.environment = {key: environment[key] for key in command.exported if key in environment}
    rest = _without_options(words[1:])
    if words[0].rpartition("/")[2].startswith("python"):
        command.python = " ".join([words[0], *words[1 : len(words) - len(rest)]])
        rest = rest[1:] if rest[0] == "-m" else rest
    command.module, rest = rest[0], rest[1:]
    if rest and re.search(r"\.ya?ml$", rest[0]) and "=" not in rest[0]:
        command.base_config, rest = rest[0], rest[1:]
    elif rest and (config := _config_of_container(reading, rest[0])):
        command.base_config, rest = config, rest[1:]
    plain, raw = list[str](), list[str]()
    for word in rest:
        key, _, value = word.partition("=")
        if word.startswith(_UNKNOWN):
            raw.append(_protected(_original(reading, word)))
            command.notes[raw[-1]] = (
                "it is known only where the container runs, and stays as it is behind the arguments"
            )
        elif not ARGUMENT.match(word):
            plain.append(shlex.quote(word))
        else:
            if key in command.arguments:
                before = [command.repeated.get(key, ""), command.arguments[key]]
                command.repeated[key] = ", ".join(filter(None, before))
            command.arguments[key] = value
    command.after = " ".join([*plain, *raw])


def _original(reading: _Reading, word: str) -> str:
    return reading.unknown[int(word.removeprefix(_UNKNOWN))]


def _config_of_container(reading: _Reading, word: str) -> str:
    """The path of a YAML file in a word that only the container knows; ""."""
    if not word.startswith(_UNKNOWN):
        return ""
    braced = re.sub(r"\$([A-Za-z_]\w*)", r"${\1}", _original(reading, word).strip('"'), flags=re.ASCII)
    path = _protected(braced)
    return path if re.fullmatch(r"(?:[\w./+@:-]|\$\{[A-Za-z_]\w*-?\})+\.ya?ml", path, re.ASCII) else ""


def _sets(command: ContainerCommand, reading: _Reading, piece: Piece) -> bool:
    """Whether a piece only sets variables, whose values are known here."""
    if not reading.declared.get(piece.start):
        return False
    for word in _declared(piece):
        key = ASSIGNMENT.match(word)
        name = key[1] if key else word
        if piece.words[0] == "export":
            command.exported.append(name)
        else:
            text = f"{name}={quoted(reading.typed[name])}" if name in reading.typed else word
            command.own.append((len(command.setup), name, _protected(text)))
    return True


def _with_own_variables(command: ContainerCommand) -> ContainerCommand:
    """With the variables that shell text which stayed as it is refers to."""
    text = " ".join([*command.setup, command.after])
    for place, name, assignment in reversed(command.own):
        if name in re.findall(r"\$\{?([A-Za-z_]\w*)", text):
            command.setup.insert(place, assignment)
            text += f" {assignment}"
    return command


def _setup(command: ContainerCommand, reading: _Reading, pipeline: list[Piece]) -> None:
    """A command that runs before training: as it stands where it has no variables, else with their values where they are known."""
    first = pipeline[0]
    words, _ = reading.heard(first)
    raw = between(first, pipeline[-1])
    if words[:1] == ["set"]:
        if "pipefail" in words:
            command.setup.append("set -o pipefail")
        if not all(re.fullmatch(r"-e|-e?o|pipefail", word) for word in words[1:]):
            command.notes[" ".join(words)] = "of its options, the rendered command has -e and -o pipefail alone"
        return
    plain = len(pipeline) == 1 and _command(first) == first.words and not first.redirections
    has_values = not any(_UNKNOWN in word for word in words)
    if plain and words and "$" in raw and has_values:
        command.setup.append(shlex.join(words))
    else:
        command.setup.append(_protected(raw))


def _raw(statement: list[Piece]) -> str:
    """A statement as text that stands between others; in braces where it runs in the background."""
    raw = _protected(between(statement[0], statement[-1]))
    return f"{{ {raw} & }}" if statement[-1].after == "&" else raw


def _protected(text: str) -> str:
    """Shell text of the container in which no `${NAME}` is one that a user fills in."""
    return _BRACED.sub(lambda m: m[0] if m[1] == "TPU_WORKER_ID" else f"${{{m[1]}-}}", text.strip())
