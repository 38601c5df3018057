"""The text of a bash script before it is evaluated: its `<placeholders>`, and what stands in quotes, comments and here-documents.

Placeholders. In `--project=<your-project>` bash sees two redirections and the script dies, or writes a file. Whoever wrote it means "put your
project here". A user who imports such a script wants either to fill it or to be told of it, and in both cases to see the rest. So a
placeholder that is given as K=V, by the name between the brackets, becomes that value. Any other one stays as the text that it is: outside
quotes it is quoted, which gives the argument that it has inside quotes, and a check of the arguments reports it in both places.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"(?<!<)<([A-Za-z][A-Za-z0-9_./:-]*(?: [A-Za-z0-9_./:-]+)*)>(?![>&])")
_BEHIND_WORD = re.compile(r"[ \t]+[-<#\\]|[ \t]*(?:[;&|)\n]|\Z)")
_LONGEST_NUMBER = 20  # digits of a descriptor before a redirection
_HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([\w.-]+))")

# How bash reads a character. NESTED: in `$(...)`, a list `=(...)` or a line break that is escaped, which end no command.
BARE, NESTED, DOUBLE, SINGLE, COMMENT, HEREDOC, EXPANSION = "bndsche"


def with_placeholders(text: str, values: Mapping[str, str] | None = None) -> tuple[str, list[str]]:
    """The script with every `<name>` as one literal word or, where `values` has the name, as its value; and the names that are left.

    `<your-project-id>` has the names your-project-id, project-id and PROJECT_ID. Comments are neither changed nor reported.
    """
    kinds = contexts(text)
    given = {_key(name): value for name, value in (values or {}).items()}
    parts = []
    left = dict[str, None]()
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        kind, name = kinds[match.start()], match[1]
        bare = kind in (BARE, NESTED)
        if kind == COMMENT or (bare and not _meant_as_placeholder(text, match)):
            continue
        word = quoted(match[0]) if bare else match[0]
        if _key(name) in given:
            word = _escaped(given[_key(name)], kind)
        else:
            left[name] = None
        parts += [text[end : match.start()], word]
        end = match.end()
    return "".join([*parts, text[end:]]), list(left)


def _key(name: str) -> str:
    """What the spellings of a name have in common: your-project-id, <Project ID>, PROJECT_ID."""
    return re.sub(r"[-_ ]+", "_", name.lower()).removeprefix("your_").removeprefix("my_")


def _meant_as_placeholder(text: str, match: re.Match[str]) -> bool:
    """Whether `<name>` outside quotes is no pair of redirections such as `sort <names >sorted`.

    It is part of a word, as in `--project=<name>` or `gs://<name>/x`, or a word of its own that no file name follows.
    """
    start = match.start()
    if start and text[start - 1] not in " \t\n;&|()<>":
        word = re.split(r"[\s;&|(]", text[max(start - _LONGEST_NUMBER, 0) : start])[-1]
        return not word.isdigit()  # 2<names is a redirection
    return _BEHIND_WORD.match(text, match.end()) is not None


def _escaped(value: str, kind: str) -> str:
    """`value` as it is written where bash reads a character as `kind`."""
    if kind in (BARE, NESTED):
        return quoted(value)
    if kind == SINGLE:
        return value.replace("'", "'\\''")
    if kind in (DOUBLE, EXPANSION):
        return re.sub(r'([\\"$`])' if kind == DOUBLE else r'([\\"$`}])', r"\\\1", value)
    return value


def quoted(value: str) -> str:
    """`value` as one word of a shell, in single quotes."""
    return "'" + value.replace("'", "'\\''") + "'"


@functools.lru_cache(maxsize=8)
def contexts(text: str) -> str:
    """For each character of a bash script how bash reads it, one of the letters above.

    Quotes themselves count as what they enclose, but for the first of a pair. `${...}` and `$((...))` are EXPANSION.
    """
    kinds = list[str]()
    stack = [""]
    heredocs = list[tuple[bool, str]]()
    place = 0
    nesting = 0  # how many of the stack are of _NESTING
    while place < len(text):
        top = stack[-1]
        kind = _KIND.get(top) or (NESTED if nesting else BARE)
        if run := _PLAIN.get(top, _PLAIN_TEXT).match(text, place):
            kinds.append(kind * len(run[0]))
            place = run.end()
            continue
        here, pair, step = text[place], text[place : place + 2], 1
        if top in ("'", "$'"):
            step = 2 if top == "$'" and here == "\\" else 1
            if here == "'":
                stack.pop()
        elif here == "\\":
            step = 2
        elif here == _CLOSE.get(top):
            step = 2 if top in ("$((", "((") else 1
            nesting -= stack.pop() in _NESTING
        elif opening := _opening(text, place, stack):
            step, kind = len(opening), _KIND.get(opening) or kind
            stack.append(opening)
            nesting += opening in _NESTING
        elif ('"' in stack[-2:] and top in ('"', "${")) or top in ("${", "$((", "(("):
            pass
        elif here == "#" and (place == 0 or text[place - 1] in " \t\n;&|()"):
            end = text.find("\n", place)
            step, kind = (end if end >= 0 else len(text)) - place, COMMENT
        elif pair == "<<":
            match = _HEREDOC.match(text, place)
            step = len(match[0]) if match else 3
            heredocs += [(bool(match[1]), match[2] or match[3] or match[4])] if match else []
        escaped_break = pair == "\\\n" and kind == BARE
        kinds.append((BARE + NESTED) if escaped_break else kind * min(step, len(text) - place))
        place += step
        if here == "\n" and heredocs and kind in (BARE, NESTED):
            end = place
            for indented, word in heredocs:
                end = _heredoc_end(text, end, indented, word)
            kinds.append(HEREDOC * (end - place))
            place, heredocs = end, []
    return "".join(kinds)


# What a character stands in, by what began it. Everything else is a command: BARE, or NESTED below one of _NESTING.
_KIND = {"$((": EXPANSION, "((": EXPANSION, "${": EXPANSION, '"': DOUBLE, "'": SINGLE, "$'": SINGLE}
_NESTING = {"$(", "`", "=("}
# Characters that neither begin nor end anything, whatever stands around them.
_PLAIN = {"'": re.compile(r"[^']+"), "$'": re.compile(r"[^'\\]+")}
_PLAIN_TEXT = re.compile(r"[^$\"'=()`}\\#<\n]+")
_CLOSE = {"(": ")", "$(": ")", "=(": ")", "$((": ")", "((": ")", "${": "}", '"': '"', "`": "`"}


def _opening(text: str, place: int, stack: list[str]) -> str:
    """What begins at `place`: a key of `_CLOSE` or a single quote; "" where nothing does."""
    in_double = stack[-1] == '"' or (stack[-1] == "${" and '"' in stack[-2:])
    in_command = stack[-1] not in _KIND
    choices = ["$((", "$(", "${", '"', "`"]
    choices += [] if in_double else ["$'", "'"]
    choices += ["=(", "((", "("] if in_command else []
    return next((opening for opening in choices if text.startswith(opening, place)), "")


def _heredoc_end(text: str, begin: int, indented: bool, word: str) -> int:
    """The offset after the line that ends a here-document which begins at `begin`."""
    while begin < len(text):
        end = text.find("\n", begin) + 1 or len(text)
        line = text[begin:end].rstrip("\n")
        begin = end
        if (line.lstrip("\t") if indented else line) == word:
            break
    return begin
