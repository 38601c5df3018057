"""The text of a bash script before it is evaluated: `<placeholders>` and values that the user gives.

Pure functions of the text. Static reading and evaluation by bash both begin with the text that they return, so that both see the same script.

Placeholders. In `--project=<your-project>` bash sees two redirections and the script dies, or writes a file. Whoever wrote it means "put your
project here". A user who imports such a script wants either to fill it or to be told of it, and in both cases to see the rest. So a
placeholder that is given as K=V, by the name between the brackets, becomes that value. Any other one stays as the text that it is: outside
quotes it is quoted, which gives the argument that it has inside quotes, and a check of the arguments reports it in both places.

Values. `export PROJECT_ID=""` is a line to be filled by hand. An assignment of the value that the user gives follows it on a line of its own,
as also after `ZONE=us-east5-a`: what the user types counts. Everything else stays, so later lines that use the variable see the value.
A variable that the script does not assign, or assigns as `${ZONE:-us-east5-a}`, gets its value from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"(?<!<)<([A-Za-z][A-Za-z0-9_./:-]*(?: [A-Za-z0-9_./:-]+)*)>(?!>)")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([\w.-]+))")
_EXPORT = re.compile(r"[ \t]*((?:export|declare|typeset|local)(?:[ \t]+-[A-Za-z]+)*[ \t]+)?(?=[A-Za-z_])")
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")

BARE, DOUBLE, SINGLE, COMMENT, HEREDOC, EXPANSION = "bdsche"


def with_placeholders(text: str, values: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The script with every `<name>` as one literal word or, where `values` has the name, as its value.

    Also the placeholders that are left: name -> where, such as `line 3, line 9 (in quotes)`. Comments are neither changed nor reported.
    """
    kinds = contexts(text)
    parts, places, end = [], dict[str, list[str]](), 0
    for match in _PLACEHOLDER.finditer(text):
        kind = kinds[match.start()]
        if kind in (COMMENT, EXPANSION) and kinds[match.end() - 1] == COMMENT:
            continue
        if kind == BARE and not _meant_as_placeholder(text, match):
            continue
        name = match[1]
        parts.append(text[end : match.start()])
        end = match.end()
        if values and name in values:
            parts.append(_escaped(values[name], kind))
            continue
        parts.append(quoted(match[0]) if kind == BARE else match[0])
        number = text.count("\n", 0, match.start()) + 1
        places.setdefault(name, []).append(f"line {number}" + ("" if kind == BARE else " (in quotes)"))
    return "".join([*parts, text[end:]]), {name: ", ".join(lines) for name, lines in places.items()}


def _meant_as_placeholder(text: str, match: re.Match[str]) -> bool:
    """Whether `<name>` outside quotes is no pair of redirections such as `sort <names >sorted`.

    It is part of a word, as in `--project=<name>` or `gs://<name>/x`, or a word of its own that no file name follows.
    """
    before = text[: match.start()]
    if before[-1:] and not before[-1].isspace():
        return re.search(r"(?:^|[\s;&|(])\d+$", before) is None and before[-1] not in ";&|()<>"
    rest = re.match(r"[ \t]*(\S?)", text[match.end() :])
    return (
        rest is not None
        and (not text[match.end() : match.end() + 1].strip())
        and rest[1] in ("", "\\", "-", "<", ";", "&", "|", ")", "#")
    )


def _escaped(value: str, kind: str) -> str:
    if kind == DOUBLE:
        return re.sub(r'([\\"$`])', r"\\\1", value)
    if kind == SINGLE:
        return value.replace("'", "'\\''")
    return quoted(value) if kind == BARE else value


def quoted(value: str) -> str:
    """`value` as one word of a shell, in single quotes."""
    return "'" + value.replace("'", "'\\''") + "'"


def is_variable(name: str) -> bool:
    """Whether a shell could have a variable of that name."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The script with a line `NAME='value'` after each line that assigns a NAME of `values`, exported where that line exports it.

    Only commands that consist of assignments count: not `NAME=x command`, and nothing inside quotes, here-documents and comments.
    """
    names = {name for name in values if is_variable(name)}
    kinds = contexts(text)
    parts, begin = [], 0
    while begin < len(text):
        end = _command_end(text, kinds, begin)
        parts.append(text[begin:end])
        if kinds[begin] not in (HEREDOC, COMMENT):
            keyword, assigned = _assignments(text[begin:end], kinds[begin:end])
            for name in dict.fromkeys(name for name in assigned if name in names):
                parts.append(("" if parts[-1].endswith("\n") else "\n") + f"{keyword}{name}={quoted(values[name])}\n")
        begin = end
    return "".join(parts)


def _command_end(text: str, kinds: str, begin: int) -> int:
    """The offset after the newline that ends the command at `begin`: one outside quotes that no backslash escapes."""
    for place in range(begin, len(text)):
        if text[place] == "\n" and kinds[place] in (BARE, COMMENT, HEREDOC):
            escaped = kinds[place] == BARE and place > begin and text[place - 1] == "\\"
            if not escaped:
                return place + 1
    return len(text)


def _assignments(line: str, kinds: str) -> tuple[str, list[str]]:
    """`export ` or "", and the names that a command assigns; none where it is anything but assignments."""
    start = _EXPORT.match(line)
    if start is None:
        return "", []
    place, names = start.end(), list[str]()
    while place < len(line) and kinds[place] != COMMENT and line[place] not in "\n;":
        word = _ASSIGNED.match(line, place)
        if word is None:
            return "", []
        names.append(word[1])
        place = word.end()
        while place < len(line) and (kinds[place] != BARE or line[place] not in " \t\n;&|"):
            place += 1
        while place < len(line) and line[place] in " \t":
            place += 1
        if line[place : place + 1] in ("&", "|"):
            return "", []
    return ("export " if "export" in (start[1] or "") or "-x" in (start[1] or "") else ""), names


def contexts(text: str) -> str:
    """For each character of a bash script how bash reads it: BARE, DOUBLE (quotes), SINGLE, COMMENT, HEREDOC or EXPANSION (`${...}`).

    Quotes themselves count as what they enclose. The text of `$(...)` is BARE again, also inside double quotes.
    """
    kinds, stack, heredocs, place = [], [BARE], list[tuple[bool, str]](), 0
    while place < len(text):
        top, here = stack[-1], text[place]
        step, kind = 1, _KIND[top]
        pair = text[place : place + 2]
        if top == "'":
            if here == "'":
                stack.pop()
        elif top == "$'":
            step = 2 if here == "\\" else 1
            if here == "'":
                stack.pop()
        elif here == "\\":
            step = 2
        elif here == _CLOSE.get(top):
            stack.pop()
            if top == "((":
                step = 2 if pair == "))" else 1
        elif pair in ("$(", "${") or here == "`":
            step = 3 if text.startswith("$((", place) else len(pair) if here == "$" else 1
            stack.append("((" if step == 3 else pair if here == "$" else "`")
        elif here == '"':
            stack.append('"')
            kind = DOUBLE
        elif top == '"' or (top == "${" and '"' in stack):
            pass
        elif pair == "$'" or here == "'":
            stack.append(pair if pair == "$'" else "'")
            step, kind = len(stack[-1]), SINGLE
        elif top in ("${", "(("):
            pass
        elif here == "#" and (place == 0 or text[place - 1] in " \t\n;&|()"):
            step = (text.find("\n", place) if "\n" in text[place:] else len(text)) - place
            kind = COMMENT
        elif here == "(":
            stack.append("(")
        elif pair == "<<" and text[place + 2 : place + 3] != "<" and (match := _HEREDOC.match(text, place)):
            heredocs.append((bool(match[1]), match[2] or match[3] or match[4]))
            step = len(match[0])
        elif text.startswith("<<<", place):
            step = 3
        kinds.append(kind * min(step, len(text) - place))
        place += step
        if here == "\n" and heredocs and kind == BARE:
            end = place
            for indented, word in heredocs:
                end = _heredoc_end(text, end, indented, word)
            kinds.append(HEREDOC * (end - place))
            place, heredocs = end, []
    return "".join(kinds)


_KIND = {
    BARE: BARE,
    "(": BARE,
    "$(": BARE,
    "`": BARE,
    "((": EXPANSION,
    "${": EXPANSION,
    '"': DOUBLE,
    "'": SINGLE,
    "$'": SINGLE,
}
_CLOSE = {"(": ")", "$(": ")", "((": ")", "${": "}", '"': '"', "`": "`"}


def _heredoc_end(text: str, begin: int, indented: bool, word: str) -> int:
    """The offset after the line that ends a here-document which begins at `begin`."""
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        line = text[begin:end].rstrip("\n")
        begin = end
        if (line.lstrip("\t") if indented else line) == word:
            break
    return begin
