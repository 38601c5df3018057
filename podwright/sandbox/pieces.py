"""The text of a shell command cut at its operators, each piece with its words as they are written. What a word stands for is bash's to say."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from podwright.recipe.script_text import BARE, COMMENT, SINGLE, contexts

_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;\n|()]|&(?!>)")
_REDIRECTION = re.compile(r"\d*(?:<<<|<>|>>|>\||[<>]&?)(?!\()|&>>?")
_CLOSED_BY = {"if": "fi", "case": "esac", "{": "}", "[[": "]]"} | dict.fromkeys(
    ("for", "while", "until", "select"), "done"
)
_NO_COMMAND = {"then", "do", "else", "elif", "!", "time"}
"""words behind which a command begins"""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
ARGUMENT = re.compile(r"(?:--?)?[A-Za-z_][\w.-]*=", re.ASCII)
_EXPANSION = re.compile(r"\\.|`|\$\(|\$\{?[#!]?(\w+|[@*#?$!-])|(?:^|[=:])~|[*?\[]", re.ASCII | re.DOTALL)


@dataclass
class Piece:
    """One command, with the operator behind it: && || | ; & or "" at the end. A line break is ;."""

    source: str
    start: int = -1
    end: int = -1
    after: str = ""
    words: list[str] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    compound: bool = False
    """whether it has commands of its own, as `if` and parentheses have"""

    @property
    def text(self) -> str:
        return self.source[self.start : self.end]


def between(first: Piece, last: Piece) -> str:
    """The text from one piece to another."""
    return first.source[first.start : last.end]


def without_comments(text: str) -> str:
    """With neither comments nor line breaks that are escaped outside quotes."""
    text = "".join(c for c, kind in zip(text, contexts(text), strict=True) if kind != COMMENT)
    kinds = contexts(text)

    def joined(match: re.Match[str]) -> str:
        if kinds[match.start() + match[0].index("\\")] != BARE:
            return match[0]
        return " " if len(match[0]) > 2 else ""

    return re.sub(r"(?<![ \t])[ \t]*\\\n[ \t]*", joined, text).strip()


def statements(text: str) -> list[list[Piece]]:
    """The pieces of a text that `without_comments` has returned, by and-or lists."""
    lists = list[list[Piece]]([[]])
    for piece in _Scan(text).pieces():
        lists[-1].append(piece)
        if piece.after in (";", "&"):
            lists.append([])
    return [pieces for pieces in lists if pieces]


def pipelines(pieces: list[Piece]) -> list[list[Piece]]:
    """An and-or list by pipelines."""
    lists = list[list[Piece]]([[]])
    for number, piece in enumerate(pieces):
        if number and pieces[number - 1].after != "|":
            lists.append([])
        lists[-1].append(piece)
    return [pipeline for pipeline in lists if pipeline]


def is_known(word: str, variables: Collection[str]) -> bool:
    """Whether what a word stands for depends on nothing but itself and `variables`: no other variable, program, home or file."""
    kinds = contexts(word)
    for match in _EXPANSION.finditer(word):
        kind = kinds[match.end() - 1]
        if match[0].startswith("\\") or kind == SINGLE or match[1] in variables:
            continue
        # A file that matches key=/data/* would lie in a folder key=, which there is not.
        mark = match[0][-1]
        is_literal = kind != BARE or (mark != "~" and ARGUMENT.match(word))
        if not match[1] and mark in "~*?[" and is_literal:
            continue
        return False
    return True


class _Scan:
    """One pass over a text."""

    def __init__(self, text: str):
        self.text = text
        self.kinds = contexts(text)
        self.place = 0

    def pieces(self) -> list[Piece]:
        pieces = list[Piece]()
        piece = Piece(self.text)
        closing = list[str]()
        begins = True
        while self._skip_blanks():
            start = self.place
            if operator := self._operator():
                self.place += len(operator)
                if not closing and operator not in ("(", ")"):
                    if piece.words or piece.compound or piece.redirections:
                        piece.after = {"\n": ";", "|&": "|"}.get(operator, operator)
                        pieces.append(piece)
                    piece = Piece(self.text)
                    begins = True
                    continue
                piece.compound, begins = True, True
                if operator == "(":
                    closing.append(")")
                elif closing[-1:] == [operator]:
                    closing.pop()
            elif redirection := self._redirection():
                piece.redirections.append(redirection)
            else:
                word = self._word()
                if begins and word in _CLOSED_BY:
                    closing.append(_CLOSED_BY[word])
                    piece.compound, begins = True, word not in ("for", "select", "case", "[[")
                elif closing and word == closing[-1] and (begins or word == "]]"):
                    closing.pop()
                    begins = False
                else:
                    begins = begins and word in _NO_COMMAND
                piece.words.append(word)
            piece.start = start if piece.start < 0 else piece.start
            piece.end = self.place
        return [*pieces, piece] if piece.end >= 0 else pieces

    def _skip_blanks(self) -> bool:
        while self.place < len(self.text) and self.text[self.place] in " \t" and self.kinds[self.place] == BARE:
            self.place += 1
        return self.place < len(self.text)

    def _operator(self) -> str:
        match = _OPERATOR.match(self.text, self.place)
        if not match or self.kinds[self.place] != BARE:
            return ""
        before = self.text[self.place - 1 : self.place]
        if match[0] == "(" and before in ("=", "$"):
            return ""
        if match[0] == "&" and before in ("<", ">"):
            return ""
        return match[0]

    def _redirection(self) -> str:
        match = _REDIRECTION.match(self.text, self.place)
        if not match or self.kinds[match.end() - 1] != BARE:
            return ""
        start, self.place = self.place, match.end()
        self._skip_blanks()
        self._word()
        return self.text[start : self.place]

    def _word(self) -> str:
        start = self.place
        while self.place < len(self.text):
            here = self.text[self.place]
            if self.kinds[self.place] == BARE:
                if here == "\\":
                    self.place += 1
                elif (
                    here in " \t"
                    or self._operator()
                    or re.match(r"[<>](?!\()|&>", self.text[self.place : self.place + 2])
                ):
                    break
            self.place += 1
        self.place = min(self.place, len(self.text))
        return self.text[start : self.place]
