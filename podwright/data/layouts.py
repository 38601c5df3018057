"""What a row asks and answers: rows of the layouts that data sets come in, and of any other by `data.columns`.

| layout | columns |
|---|---|
| question and answer, as GSM8K | question, answer |
| problem and answer | problem, answer, and perhaps solution |
| prompt and completion | prompt, completion: texts, or turns of a chat |
| Alpaca | instruction, input (may be absent), output |
| DAPO | prompt (turns or text), reward_model: {ground_truth} |
| chat | messages: turns of {role, content}, as APIs have them: content may be parts, and calls of tools stand beside it |
| ShareGPT | conversations: turns of {from, value} |

GRPO's answers have `#### n`, or are a number and nothing else. What is open is refused. Cells of CSV may hold JSON, or what Python writes.

Pretraining takes the column `text` or `content`, else question and reply (also `response`), or all turns, with an empty line between.
Phase 1 and Phase 2 read the same layouts, and the names that data sets of captions have for files and texts.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from podwright.errors import UserError, counted, listed
from podwright.recipe import answers, text_lines
from podwright.recipe.answer_numbers import gold, same_number
from podwright.recipe.pretrain import TextColumns
from podwright.recipe.schema import GrpoColumns

Row = Mapping[str, Any]
Columns = Mapping[Any, str]
"""field of a row -> the column that a recipe names for it"""
NO_COLUMNS: Columns = MappingProxyType({})

_QUESTIONS = ("question", "problem")
_CHATS = ("messages", "conversations")
_NAMES = {*_QUESTIONS, *_CHATS, "answer", "solution", "prompt", "completion", "reward_model"}
_NAMES |= {"instruction", "input", "output", "system"}
_OTHER_NAMES = {
    "text": ("caption", "sentence", "description"),
    "image": ("image_path", "file_name", "img", "picture"),
    "audio": ("audio_path", "sound", "wav"),
    "video": ("video_path", "clip"),
}
"""field of a row that names files -> names that others have for it"""
_NAMES_OF_LINES = frozenset({"response", *_OTHER_NAMES, *itertools.chain(*_OTHER_NAMES.values()), *_NAMES})
_MARKS = re.compile("<(?:image|audio|video)>\\s*")  # of pictures in chats; here they stand before every prompt
_SPEAKERS = {"system": "system", "developer": "system", "user": "user", "human": "user"}
_SPEAKERS |= dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "ai", "bot", "function_call"), "assistant")
_SPEAKERS |= dict.fromkeys(("tool", "function", "observation", "ipython"), "tool")
_SPEAKER = {"role", "from"}
_TEXTS = ("text", "content")
_ASKING = (*_QUESTIONS, "prompt", "instruction")
_REPLYING = ("solution", "answer", "completion", "response", "output")
"""a solution is the worked form of the answer beside it"""
_SHOWN = 60  # characters of an answer in a message
_LISTED = 70  # of the names of columns
NO_GOOD_LINE = "name its columns by data.columns, or give lines as docs/multimodal.md shows them"
_COLUMNS = "type 'data.columns={question: COLUMN, answer: COLUMN}' with the names of the two"
_TEXT_COLUMN = "type 'data.columns={text: COLUMN}' with the name of the column"
_ANY_COLUMNS = "type --columns '{text: COLUMN}' or '{question: COLUMN, answer: COLUMN}'"


def by_option(text: str, of_any_kind: bool) -> str:
    """A message on columns for a verb that has no recipe and takes them as --columns. `of_any_kind`: not those of texts alone."""
    if of_any_kind:
        text = text.replace(_TEXT_COLUMN, _ANY_COLUMNS)
    return text.replace("'data.columns=", "--columns '").replace("of data.columns", "of --columns")


@dataclasses.dataclass(frozen=True)
class Example:
    question: str
    answer: str
    """the right number as text, without commas"""
    solution: str
    """the worked answer, its `#### n` line included"""
    system: str = ""  # what the system says before the question


class Turn(NamedTuple):
    """What is said once in a conversation."""

    speaker: str
    """system, user, assistant or tool"""
    text: str


class _Fields(NamedTuple):
    """A row of a layout, not checked yet; `answer_name`: of the column that holds the answer."""

    question: list[Turn]  # of the user, perhaps after one of the system
    answer_name: str
    answer: object
    solution: object = None


def names_read(columns: GrpoColumns | None) -> set[str]:
    """Columns of a table that may be read: what others hold need not even be readable."""
    return _NAMES | _with_outer((columns.question, columns.answer) if columns else ())


def names_of_text(columns: TextColumns | None) -> set[str]:
    """Columns of a table that may be read for a text to pretrain on."""
    return {*_TEXTS, *_CHATS, *_ASKING, *_REPLYING, "input", "system"} | _with_outer((columns.text,) if columns else ())


def names_of_lines(columns: Columns) -> frozenset[str]:
    """Columns of a table that may be read for a line of Phase 1 or Phase 2."""
    return _NAMES_OF_LINES | _with_outer(columns.values())


def _with_outer(names: Iterable[str]) -> set[str]:
    """Columns, and of those in an object, such as reward_model.ground_truth, the object."""
    return {part for name in names for part in (name, name.partition(".")[0])}


def text(where: str, row: Row, columns: TextColumns | None = None) -> str:
    """The text of a row to pretrain on; UserError naming the place and what is wrong with it."""
    if columns:
        return text_lines.require_text(where, columns.text, _value(where, row, columns.text, _TEXT_COLUMN))
    for name in _TEXTS:
        if name in row:
            return text_lines.require_text(where, name, row[name])
    names = [name for name in _CHATS if name in row][:1]
    if not names:
        asking = next((name for name in _ASKING if row.get(name)), "")
        replying = next((name for name in _REPLYING if row.get(name)), "")
        if not asking or not replying:
            what = f"{where} has no column 'text' and is of no layout that is read; its columns are {_listed(row)}"
            raise UserError(what, _TEXT_COLUMN, "row-layout")
        names = [asking, "input", replying]
    turns = []
    for name in names:
        value = _chat(row.get(name))
        if isinstance(value, list) or name in _CHATS:
            turns += _turns(where, name, value)
        elif value or name != "input":
            turns.append(Turn("user", text_lines.require_text(where, name, value)))
    return "\n\n".join(turn.text for turn in _with_system(row, turns) if turn.text)


def is_question(row: Row) -> bool:
    """Whether a row is meant for GRPO: it fits a layout, or has a question or an answer alone."""
    return "text" not in row and ("question" in row or "answer" in row or _layout(row) != "")


def example(where: str, row: Row, columns: GrpoColumns | None = None) -> Example:
    """What a row holds; UserError naming the place and what is wrong with it."""
    fields = _chosen(where, row, columns.question, columns.answer) if columns else _fields(where, row)
    answer = _answer_text(where, fields.answer_name, fields.answer)
    number, marked = _gold(where, answer)
    solution = answer
    if not marked:
        worked = fields.solution if isinstance(fields.solution, str) and "####" not in fields.solution else ""
        solution = f"{worked.rstrip()}\n#### {number}".lstrip()
    *system, question = _with_system(row, fields.question)
    return Example(question.text, number, solution, "\n\n".join(turn.text for turn in system))


def by_columns(row: Row, columns: Columns) -> Row:
    """A row with the fields that a recipe names columns for, where the row has them."""
    fields = dict(row)
    for field, name in columns.items():
        fields.pop(field, None)
        if value := _column(row, name):
            fields[field] = value[0]
    return fields


def require_columns(path: Path, row: Row, absent: Collection[str]) -> None:
    """UserError for columns that a recipe names and no row of a file has; `row`: one of them."""
    for name in absent:
        what = f"{path} has no column {name!r} of data.columns; its columns are {_listed(row)}"
        raise UserError(what, "name columns that are there", "no-column")


def with_files(row: Row) -> dict[str, Any]:
    """A row with `text`, `image`, `audio` and `video` under these names, where it has one text for each under another name."""
    fields = dict(row)
    for field, names in _OTHER_NAMES.items():
        present = [name for name in names if isinstance(row.get(name), str) and row[name].strip()]
        if field not in row and len(present) == 1:
            fields[field] = row[present[0]]
    return fields


def with_response(where: str, row: Row) -> dict[str, Any]:
    """A row with `instruction`, `response` and files, whatever its layout; UserError for turns that are no question and its answer."""
    fields = dict(row) if any(name in row for name in answers.MEDIA) else with_files(row)
    if "response" not in row and _layout(row):
        turns = _fields(where, row)
        instruction = _MARKS.sub("", "\n\n".join(turn.text for turn in _with_system(row, turns.question)))
        fields |= {"instruction": instruction.strip(), "response": turns.answer}
    if isinstance(fields.get("response"), Mapping):
        # a value of a table that JSON has not becomes a list, which no answer may hold
        fields["response"] = json.dumps(fields["response"], default=lambda value: [str(value)])
    return fields


def _layout(row: Row) -> str:
    """The column by which a row is of one of the layouts; "" where it is of none."""
    for name in _QUESTIONS:
        if name in row and "answer" in row:
            return name
    if "prompt" in row and "completion" in row:
        return "completion"
    if "instruction" in row and "output" in row:
        return "instruction"
    reward = _parsed(row.get("reward_model"))
    if "prompt" in row and isinstance(reward, Mapping) and "ground_truth" in reward:
        return "reward_model"
    return next((name for name in _CHATS if name in row), "")


def _fields(where: str, row: Row) -> _Fields:
    layout = _layout(row)
    if layout in _QUESTIONS:
        return _chosen(where, row, layout, "answer")._replace(solution=row.get("solution"))
    if layout == "completion":
        answer = _chat(row["completion"])
        if isinstance(answer, list):
            answer = _reply(where, "completion", _turns(where, "completion", answer))
        return _Fields(_prompt_turns(where, "prompt", row["prompt"]), "completion", answer)
    if layout == "instruction":
        text = _text(where, "instruction", row["instruction"])
        if row.get("input"):
            text += "\n" + _text(where, "input", row["input"])
        return _Fields([Turn("user", text.strip())], "output", row["output"])
    if layout == "reward_model":
        return _chosen(where, row, "prompt", "reward_model.ground_truth")
    if layout in _CHATS:
        turns = _turns(where, layout, row[layout])
        answer = _reply(where, layout, turns[-1:])
        return _Fields(_question(where, layout, _without_tools(turns[:-1])), layout, answer)
    raise UserError(f"{where} is of no layout that GRPO reads; its columns are {_listed(row)}", _COLUMNS, "row-layout")


def _chosen(where: str, row: Row, question: str, answer: str) -> _Fields:
    """By the names of two columns, which may lie in an object: reward_model.ground_truth."""
    turns = _prompt_turns(where, question, _value(where, row, question))
    return _Fields(turns, answer, _value(where, row, answer))


def _value(where: str, row: Row, name: str, fix: str = _COLUMNS) -> object:
    if value := _column(row, name):
        return value[0]
    raise UserError(f"{where} has no column {name!r} of data.columns; its columns are {_listed(row)}", fix, "no-column")


def _column(row: Row, name: str) -> tuple[object] | None:
    """The value of a column, which may lie in an object; None where there is no such column."""
    if name in row:
        return (row[name],)
    outer, _, inner = name.partition(".")
    value = _parsed(row.get(outer))
    return (value[inner],) if isinstance(value, Mapping) and inner in value else None


def _chat(value: object) -> object:
    """The turns of a chat that a table without types holds as text; any other value as it is."""
    turns = _parsed(value)
    is_chat = isinstance(turns, list) and turns and all(isinstance(t, dict) and t.keys() & _SPEAKER for t in turns)
    return turns if is_chat else value


def _parsed(value: object) -> object:
    """What a text that begins as a list or an object holds, as JSON or as Python writes it; any other value as it is."""
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    parse = ast.literal_eval if value.startswith(("[{'", "{'")) else json.loads  # as pandas writes it, or as JSON
    try:
        return parse(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


def _listed(row: Row) -> str:
    return listed((json.dumps(str(name), ensure_ascii=False) for name in row), _LISTED) or "none"


def _text(where: str, name: str, value: object) -> str:
    text = text_lines.require_text(where, name, value)
    if not text.strip():
        raise UserError(f"{where}: {name} is empty", "fill it in or remove the row", "empty-text")
    return text


def _answer_text(where: str, name: str, value: object) -> str:
    """A number that a table holds as one is the text of it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _text(where, name, value)


def _turns(where: str, name: str, value: object) -> list[Turn]:
    """The turns of a conversation in either spelling."""
    value = _chat(value)
    if not isinstance(value, list) or not all(isinstance(turn, Mapping) for turn in value):
        raise UserError(
            f"{where}: {name} is {text_lines.json_kind(value)}, not turns of a chat", "write a list", "chat-turns"
        )
    turns = []
    for turn in value:
        role = str(turn.get("role") or turn.get("from"))
        speaker = _SPEAKERS.get(role.lower())
        if speaker is None:
            fix = "write system, user, assistant or tool, or human and gpt"
            raise UserError(f"{where}: a turn of {name} is by {role[:_SHOWN]!r}", fix, "chat-turns")
        content = next((turn[key] for key in ("content", "value", "parts") if turn.get(key)), turn.get("content"))
        calls = turn.get("tool_calls") or turn.get("function_call")
        parts = content if content and isinstance(content, list) else [content]
        if not content and (calls or speaker in ("system", "tool")):
            parts = []
        texts = [_part_text(where, f"a turn of {name}", part) for part in parts]
        if calls:
            texts.append(json.dumps(calls, ensure_ascii=False, default=str))  # as they stand
        if texts or speaker != "system":
            turns.append(Turn(speaker, "\n".join(texts)))
    return turns


def _with_system(row: Row, turns: list[Turn]) -> list[Turn]:
    """Turns behind what the system says in a column `system` of the row, unless one of them is of the system."""
    system = row.get("system")
    if not isinstance(system, str) or not system.strip() or any(turn.speaker == "system" for turn in turns):
        return turns
    return [Turn("system", system), *turns]


def _part_text(where: str, name: str, part: object) -> str:
    if isinstance(part, Mapping):
        if not part.get("text"):
            what = f"{where}: {name} has a part that is no text: {str(part.get('type') or [*part])[:_SHOWN]}"
            raise UserError(what, "remove the line, or this part of it", "not-text")
        part = part["text"]
    return _text(where, name, part)


def _without_tools(turns: list[Turn]) -> list[Turn]:
    speakers = [turn.speaker for turn in turns]
    first = speakers.index("assistant") if "assistant" in speakers else len(turns)
    return turns[:first] if {*speakers[first:]} == {"assistant", "tool"} else turns


def _prompt_turns(where: str, name: str, prompt: object) -> list[Turn]:
    prompt = _chat(prompt)
    if isinstance(prompt, list):
        return _question(where, name, _turns(where, name, prompt))
    return [Turn("user", _text(where, name, prompt))]


def _question(where: str, name: str, turns: list[Turn]) -> list[Turn]:
    """What one user asks, and what the system says before: GRPO has a single turn of a user."""
    speakers = [turn.speaker for turn in turns]
    if speakers[-1:] != ["user"] or {*speakers[:-1]} - {"system"}:
        what = f"{where}: {name} has {counted(speakers.count('user'), 'turn')} of the user, and GRPO takes one, after the system"
        raise UserError(what, "leave the row out, or keep one question and its answer", "chat-turns")
    return turns


def _reply(where: str, name: str, turns: list[Turn]) -> str:
    if [turn.speaker for turn in turns] != ["assistant"]:
        what = f"{where}: {name} does not end with one turn of the assistant"
        raise UserError(what, "end it with the right answer", "chat-turns")
    return turns[0].text


def _gold(where: str, answer: str) -> tuple[str, bool]:
    """(the number that a completion is held against, whether `####` is before it)."""
    text = answer.strip()
    marked = "####" in text
    number, line, unread = gold(text if marked else f"#### {text}")
    if not marked and "\n" not in text and same_number(line.strip().strip("$%").rstrip("."), number):
        assert number is not None
        return number, False
    if number is None or not marked:
        shown = text.partition("####")[2].partition("\n")[0] if marked else text
        what = f"{where}: the answer has no '#### n' and is no number: {shown[:_SHOWN]!r}"
        raise UserError(what, "end the answer with a line '#### ' and the number, or remove the row", "answer-number")
    if unread:
        what = f"{where}: of the answer {line[:_SHOWN]!r} only {number} would be read"
        fix = "write one number behind ####, such as 18, -0.5, 3/7, 1 1/2 or 1e-3, or remove the row"
        raise UserError(what, fix, "answer-number")
    return number, True
