"""Characters to words: quotes, escapes, continuation lines, comments, `$...` and here-documents.

The grammar of commands is in parse.py, which continues the class.
"""

from __future__ import annotations

import bisect
import itertools
import re

from podwright.recipe.maxtext.bash.syntax import (
    BashList,
    BashWord,
    Part,
    SubstitutionPart,
    TextPart,
    UnreadablePart,
    UnreadableScript,
    VariablePart,
)

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = re.compile(r":-|:=|:\+|:\?|##|%%|//|/#|/%|\^\^|,,|[-=+?#%/^,:@]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_ENDS = frozenset(" \t\n;&|()<>")
_PLAIN = re.compile(r"[^ \t\n;&|()<>\\'\"$`}/:]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\"\\$`}/:\n]+")
"""characters that neither begin nor end anything; } / and : end a word within braces"""
_DEPTH = 40  # of nested substitutions


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring texts of the same kind as one part."""
    joined = list[Part]()
    for quoted, group in itertools.groupby(parts, lambda part: part.quoted if isinstance(part, TextPart) else None):
        same = list(group)
        texts = [part.text for part in same if isinstance(part, TextPart)]
        joined += same if quoted is None else [TextPart("".join(texts), quoted)]
    return tuple(joined)


class WordScanner:
    """A position in the text of a script, and what stands there."""

    def __init__(self, text: str, first_line: int = 1, depth: int = 0):
        self.text = text
        self.position = 0
        self.depth = depth
        self._first_line = first_line
        self._newlines = [m.start() for m in re.finditer("\n", text)]

    @property
    def line(self) -> int:
        return self._first_line + bisect.bisect_left(self._newlines, self.position)

    def substituted(self) -> BashList:
        """The commands up to the closing parenthesis of `$(`."""
        raise NotImplementedError

    def parsed(self, text: str, line: int) -> BashList:
        """The commands of a text of its own, as backquotes have it."""
        raise NotImplementedError

    def starts(self, text: str) -> bool:
        return self.text.startswith(text, self.position)

    def skip_blanks(self) -> None:
        """Blanks, continuation lines and a comment."""
        while self.position < len(self.text):
            if self.text[self.position] in " \t":
                self.position += 1
            elif self.starts("\\\n"):
                self.position += 2
            elif self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            else:
                return

    def word(self) -> BashWord | None:
        """The word at the position; None where an operator or the end stands there."""
        line, start, parts = self.line, self.position, list[Part]()
        while self.position < len(self.text) and self.text[self.position] not in _ENDS:
            parts += self._piece()
        return BashWord(_joined(parts), line, self.position, start) if parts else None

    def _piece(self) -> list[Part]:
        """What stands outside double quotes: one character, or everything in quotes."""
        char = self.text[self.position]
        if self.starts("\\\n"):
            self.position += 2
            return []
        if char == "\\":
            self.position += 2
            return [TextPart(self.text[self.position - 1 : self.position] or "\\", True)]
        if char == "'":
            return [TextPart(self._single_quoted(), True)]
        if char == '"':
            self.position += 1
            return self._double_quoted()
        if char == "$":
            return [self._dollar(False)] if not self._special_quotes() else self._quoted_by_dollar()
        if char == "`":
            return [self._backquoted(False)]
        return [TextPart(self._run(_PLAIN), False)]

    def _run(self, characters: re.Pattern[str]) -> str:
        """The text of `characters` at the position, at least one character."""
        match = characters.match(self.text, self.position)
        end = match.end() if match else self.position + 1
        text, self.position = self.text[self.position : end], end
        return text

    def _special_quotes(self) -> bool:
        return self.starts("$'") or self.starts('$"')

    def _quoted_by_dollar(self) -> list[Part]:
        self.position += 2
        if self.text[self.position - 1] == '"':
            return self._double_quoted()
        line, text = self.line, ""
        while self.position < len(self.text):
            char = self.text[self.position]
            self.position += 1
            if char == "'":
                return [TextPart(text, True)]
            if char == "\\":
                escaped = self.text[self.position : self.position + 1]
                self.position += 1
                if escaped not in "'\"\\?" and escaped not in _ESCAPES:
                    raise UnreadableScript(line, f"\\{escaped} in $'...' is not read")
                char = _ESCAPES.get(escaped, escaped)
            text += char
        raise UnreadableScript(line, "$' has no closing quote", "close it")

    def _single_quoted(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise UnreadableScript(self.line, "' has no closing quote", "close it")
        text = self.text[self.position + 1 : end]
        self.position = end + 1
        return text

    def _double_quoted(self) -> list[Part]:
        """Up to the closing quote, of which the opening one has been read."""
        line, parts = self.line, list[Part]()
        while self.position < len(self.text):
            if self.text[self.position] == '"':
                self.position += 1
                return parts or [TextPart("", True)]
            parts += self._piece_in_double_quotes('$`"\\')
        raise UnreadableScript(line, '" has no closing quote', "close it")

    def _piece_in_double_quotes(self, escapable: str) -> list[Part]:
        char = self.text[self.position]
        if char == "\\":
            escaped = self.text[self.position + 1 : self.position + 2]
            self.position += 2
            if escaped == "\n":
                return []
            return [TextPart(escaped if escaped and escaped in escapable else "\\" + escaped, True)]
        if char == "$":
            return [self._dollar(True)]
        if char == "`":
            return [self._backquoted(True)]
        return [TextPart(self._run(_PLAIN_IN_QUOTES), True)]

    def _dollar(self, quoted: bool) -> Part:
        line = self.line
        if self.starts("$(("):
            return self._arithmetic(line)
        if self.starts("$("):
            self.position += 2
            return SubstitutionPart(self._nested(line), quoted, line)
        if self.starts("${"):
            self.position += 2
            return self._braced(quoted, line)
        self.position += 1
        match = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]").match(self.text, self.position)
        if not match:
            return TextPart("$", quoted)
        self.position = match.end()
        return VariablePart(match[0], quoted, line)

    def _nested(self, line: int) -> BashList:
        if self.depth >= _DEPTH:
            raise UnreadableScript(line, f"more than {_DEPTH} nested $(...) are not read")
        self.depth += 1
        body = self.substituted()
        self.depth -= 1
        return body

    def _arithmetic(self, line: int) -> Part:
        """Its value is not computed; where it ends is counted."""
        start, depth = self.position, 0
        for position in range(start + 1, len(self.text)):
            depth += {"(": 1, ")": -1}.get(self.text[position], 0)
            if depth == 0:
                self.position = position + 1
                return UnreadablePart(f"the arithmetic {self.text[start : position + 1]} is not computed", line)
        raise UnreadableScript(line, "$(( has no end", "close it")

    def _backquoted(self, quoted: bool) -> Part:
        line, text = self.line, ""
        self.position += 1
        while self.position < len(self.text):
            char = self.text[self.position]
            self.position += 1
            if char == "`":
                if self.depth >= _DEPTH:
                    raise UnreadableScript(line, f"more than {_DEPTH} nested backquotes are not read")
                return SubstitutionPart(self.parsed(text, line), quoted, line)
            if char == "\\" and self.text[self.position : self.position + 1] in ("$", "`", "\\", *('"' * quoted)):
                char = self.text[self.position]
                self.position += 1
            text += char
        raise UnreadableScript(line, "` has no closing backquote", "close it")

    def _braced(self, quoted: bool, line: int) -> Part:
        """`${...}`, of which the brace has been read."""
        start = self.position - 2
        length = self.starts("#") and not self.starts("#}")
        if length:
            self.position += 1
        match = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,9}(?![0-9])|[@*#?$!-]").match(self.text, self.position)
        if not match:
            return self._unknown_braces(start, line)
        self.position = match.end()
        index = ""
        if subscript := re.compile(r"\[([@*]|[0-9]{1,9})\]").match(self.text, self.position):
            index, self.position = subscript[1], subscript.end()
        operator = _OPERATORS.match(self.text, self.position)
        if self.starts("}"):
            self.position += 1
            return VariablePart(match[0], quoted, line, index=index, length=length)
        if not operator or length or operator[0] == "@" or match[0] == "!":
            return self._unknown_braces(start, line)
        self.position = operator.end()
        between = {"/": "/", "//": "/", "/#": "/", "/%": "/", ":": ":"}.get(operator[0], "")
        arguments = [self._argument(between + "}", quoted, operator[0])]
        if between and self.text[self.position - 1] != "}":
            arguments.append(self._argument("}", quoted, operator[0]))
        return VariablePart(match[0], quoted, line, operator[0], tuple(arguments), index)

    def _unknown_braces(self, start: int, line: int) -> Part:
        self._argument("}", True, "")
        return UnreadablePart(f"{self.text[start : self.position]} is not read", line)

    def _argument(self, ends: str, quoted: bool, operator: str) -> BashWord:
        """A word within braces up to one of `ends`, which is read too."""
        line, parts = self.line, list[Part]()
        if self.depth >= _DEPTH:
            raise UnreadableScript(line, f"more than {_DEPTH} nested ${{...}} are not read")
        self.depth += 1
        as_text = quoted and operator in (":-", ":=", ":+", ":?", "-", "=", "+", "?")
        while self.position < len(self.text):
            char = self.text[self.position]
            if char in ends:
                self.position += 1
                self.depth -= 1
                return BashWord(_joined(parts), line)
            if as_text and char == '"':
                self.position += 1
                parts += self._double_quoted()
            elif as_text:
                parts += self._piece_in_double_quotes('$`"\\}')
            else:
                parts += self._piece()
        raise UnreadableScript(line, "${ has no closing brace", "close it")

    def here_document(self, delimiter: str, literal: bool, tabs: bool) -> BashWord:
        """The lines from here to the delimiter."""
        line, lines = self.line, list[str]()
        while True:
            if self.position >= len(self.text):
                raise UnreadableScript(line, f"the text up to {delimiter} has no end", f"add a line {delimiter}")
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
            content = self.text[self.position : end]
            self.position = min(end + 1, len(self.text))
            content = content.lstrip("\t") if tabs else content
            if content == delimiter:
                break
            lines.append(content + "\n")
        text = "".join(lines)
        if literal:
            return BashWord((TextPart(text, True),), line)
        inner = type(self)(text, line, self.depth)
        parts = list[Part]()
        while inner.position < len(text):
            parts += inner._piece_in_double_quotes("$`\\")
        return BashWord(_joined(parts), line)
