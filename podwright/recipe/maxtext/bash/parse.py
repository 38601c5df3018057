"""Words to commands: lists, pipelines, if, case, for, groups, functions and redirections."""

from __future__ import annotations

import re

from podwright.recipe.maxtext.bash.syntax import (
    AndOrList,
    BashList,
    BashWord,
    CaseCommand,
    Command,
    ForCommand,
    FunctionCommand,
    GroupCommand,
    IfCommand,
    Pipeline,
    Redirection,
    SimpleCommand,
    TestCommand,
    TextPart,
    UnreadableScript,
    VariableAssignment,
)
from podwright.recipe.maxtext.bash.words import NAME, WordScanner

DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_KEYWORD = re.compile(
    r"(?:if|then|elif|else|fi|for|do|done|case|esac|while|until|select|function|coproc|time|[{}!]|\[\[)(?=[\s;&|()<>]|$)"
)
_REDIRECTION = re.compile(r"(?:\d*(?:<<-|<<<|<<|>>|>&|<&|>\||<>|<(?!\()|>(?!\())|&>>|&>)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]]*\])?(\+?)=")
_UNREAD = {"while": "a while loop", "until": "an until loop", "select": "a select loop", "coproc": "a coprocess"}
_NESTED = 60


def parse(text: str, first_line: int = 1) -> BashList:
    """The commands of a script. UnreadableScript where its syntax is wrong or of a kind that is not read."""
    return CommandParser(text, first_line).script()


class CommandParser(WordScanner):
    def __init__(self, text: str, first_line: int = 1, depth: int = 0):
        super().__init__(text, first_line, depth)
        self._bodies: dict[int, int] = {}  # newline -> the end of the here-documents that begin behind it
        self._levels = 0

    def script(self) -> BashList:
        body = self._list(())
        if self.position < len(self.text):
            raise self._unexpected()
        return body

    def substituted(self) -> BashList:
        body = self._list(())
        self._expect(")")
        return body

    def parsed(self, text: str, line: int) -> BashList:
        return type(self)(text, line, self.depth + 1).script()

    def word(self) -> BashWord | None:
        start = self.position
        word = super().word()
        if any(start <= newline < self.position for newline in self._bodies):
            raise UnreadableScript(self.line, "a here-document begins within a word")
        return word

    def _unexpected(self) -> UnreadableScript:
        here = re.compile(r"[^\s]{1,20}|.", re.DOTALL).match(self.text, self.position)
        return UnreadableScript(self.line, f"{here[0] if here else 'the end of the script'} is not expected here")

    def _newline(self) -> bool:
        """Reads a newline, with the here-documents behind it."""
        if not self.starts("\n"):
            return False
        self.position = self._bodies.pop(self.position, self.position + 1)
        return True

    def _skip_lines(self) -> None:
        self.skip_blanks()
        while self._newline():
            self.skip_blanks()

    def _keyword(self) -> str:
        match = _KEYWORD.match(self.text, self.position)
        return match[0] if match else ""

    def _expect(self, text: str) -> None:
        self._skip_lines()
        if not self.starts(text) or (text.isalpha() and self._keyword() != text):
            raise self._unexpected()
        self.position += len(text)

    def _list(self, ends: tuple[str, ...]) -> BashList:
        """Commands up to one of the keywords `ends`, `)`, `;;` or the end."""
        statements = list[AndOrList]()
        self._levels += 1
        if self._levels > _NESTED:
            raise UnreadableScript(self.line, f"commands are nested more than {_NESTED} deep")
        while True:
            self._skip_lines()
            if self.position >= len(self.text) or self.starts(")") or self.starts(";;") or self._keyword() in ends:
                break
            statements.append(self._and_or())
            self.skip_blanks()
            if self.starts(";") and not self.starts(";;"):
                self.position += 1
            elif self.starts("&"):
                self.position += 1
                statements[-1] = AndOrList(statements[-1].pipelines, background=True)
            elif self.position < len(self.text) and not any(map(self.starts, ("\n", ")", ";;"))):
                raise self._unexpected()
        self._levels -= 1
        return BashList(tuple(statements))

    def _and_or(self) -> AndOrList:
        pipelines = [("", self._pipeline())]
        while True:
            self.skip_blanks()
            operator = self.text[self.position : self.position + 2]
            if operator not in ("&&", "||"):
                return AndOrList(tuple(pipelines))
            self.position += 2
            self._skip_lines()
            pipelines.append((operator, self._pipeline()))

    def _pipeline(self) -> Pipeline:
        self.skip_blanks()
        start, negated = self.position, False
        while (keyword := self._keyword()) in ("!", "time"):
            negated ^= keyword == "!"
            self.position += len(keyword)
            self.skip_blanks()
        commands = [self._command()]
        end = self.position
        self.skip_blanks()
        while self.starts("|") and not self.starts("||"):
            self.position += 2 if self.starts("|&") else 1
            self._skip_lines()
            commands.append(self._command())
            end = self.position
            self.skip_blanks()
        return Pipeline(tuple(commands), negated, start, end)

    def _command(self) -> Command:
        line, keyword = self.line, self._keyword()
        if keyword in _UNREAD or self.starts("(("):
            raise UnreadableScript(line, f"{_UNREAD.get(keyword, '((...))')} is not read")
        compound = self._compound(keyword, line)
        if compound is None:
            return self._simple(line)
        redirections = self._redirections()
        if redirections:
            body = BashList((AndOrList((("", Pipeline((compound,), False, 0, 0)),)),))
            return GroupCommand(body, False, line, redirections)
        return compound

    def _compound(self, keyword: str, line: int) -> Command | None:
        if keyword == "if":
            return self._if(line)
        if keyword == "for":
            return self._for(line)
        if keyword == "case":
            return self._case(line)
        if keyword == "[[":
            return self._test(line)
        if keyword == "{" or self.starts("("):
            self.position += 1
            body = self._list(("}",) if keyword else ())
            self._expect("}" if keyword else ")")
            return GroupCommand(body, not keyword, line)
        function = re.compile(r"(?:function[ \t]+([\w-]+)[ \t]*(?:\([ \t]*\))?|([\w-]+)[ \t]*\([ \t]*\))\s*").match(
            self.text, self.position
        )
        if function:
            self.position = function.end()
            if self._keyword() != "{":
                raise self._unexpected()
            self.position += 1
            body = self._list(("}",))
            self._expect("}")
            return FunctionCommand(function[1] or function[2], body, line)
        if keyword:
            raise self._unexpected()
        return None

    def _if(self, line: int) -> IfCommand:
        branches = []
        keyword = "if"
        while keyword in ("if", "elif"):
            self.position += len(keyword)
            condition = self._list(("then",))
            self._expect("then")
            branches.append((condition, self._list(("elif", "else", "fi"))))
            keyword = self._keyword()
        otherwise = BashList()
        if keyword == "else":
            self.position += 4
            otherwise = self._list(("fi",))
        self._expect("fi")
        return IfCommand(tuple(branches), otherwise, line)

    def _for(self, line: int) -> ForCommand:
        self.position += 3
        self.skip_blanks()
        name = NAME.match(self.text, self.position)
        if not name:
            raise UnreadableScript(line, "a for loop over numbers is not read")
        self.position = name.end()
        self._skip_lines()
        words: list[BashWord] | None = None
        if re.compile(r"in(?=[\s;])").match(self.text, self.position):
            self.position += 2
            words = self._words_on_line()
        if words is None:
            raise UnreadableScript(line, "a for loop without `in` is not read")
        self.skip_blanks()
        if self.starts(";"):
            self.position += 1
        self._expect("do")
        body = self._list(("done",))
        self._expect("done")
        return ForCommand(name[0], tuple(words), body, line)

    def _words_on_line(self) -> list[BashWord]:
        words = list[BashWord]()
        self.skip_blanks()
        while word := self.word():
            words.append(word)
            self.skip_blanks()
        return words

    def _case(self, line: int) -> CaseCommand:
        self.position += 4
        self.skip_blanks()
        subject = self.word()
        self._skip_lines()
        if subject is None or not re.compile(r"in(?=\s)").match(self.text, self.position):
            raise self._unexpected()
        self.position += 2
        branches = []
        self._skip_lines()
        while self._keyword() != "esac":
            if self.starts("("):
                self.position += 1
            patterns = list[BashWord]()
            while not patterns or self.starts("|"):
                self.position += 1 if patterns else 0
                self.skip_blanks()
                pattern = self.word()
                if pattern is None:
                    raise self._unexpected()
                patterns.append(pattern)
                self.skip_blanks()
            self._expect(")")
            branches.append((tuple(patterns), self._list(("esac",))))
            self._skip_lines()
            if self.starts(";;&"):
                raise UnreadableScript(self.line, ";;& is not read")
            if self.starts(";;"):
                self.position += 2
            self._skip_lines()
        self._expect("esac")
        return CaseCommand(subject, tuple(branches), line)

    def _test(self, line: int) -> TestCommand:
        self.position += 2
        words = list[BashWord]()
        while True:
            self._skip_lines()
            operator = re.compile(r"&&|\|\||[()<>]").match(self.text, self.position)
            if operator:
                self.position = operator.end()
                words.append(BashWord((TextPart(operator[0], False),), line))
                continue
            word = self.word()
            if word is None:
                raise self._unexpected()
            if word.literal == "]]":
                return TestCommand(tuple(words), line)
            words.append(word)

    def _redirections(self) -> tuple[Redirection, ...]:
        redirections = list[Redirection]()
        self.skip_blanks()
        while redirection := self._redirection():
            redirections.append(redirection)
            self.skip_blanks()
        return tuple(redirections)

    def _redirection(self) -> Redirection | None:
        match = _REDIRECTION.match(self.text, self.position)
        if not match:
            return None
        line, operator = self.line, match[0].lstrip("0123456789")
        self.position = match.end()
        self.skip_blanks()
        target = self.word()
        if target is None:
            raise UnreadableScript(
                line, f"{match[0]} has no file behind it", "a placeholder such as <name> goes into quotes"
            )
        if operator not in ("<<", "<<-"):
            return Redirection(match[0], target)
        return Redirection("<<", self._here(target, operator, line))

    def _here(self, word: BashWord, operator: str, line: int) -> BashWord:
        """The text of a here-document, which begins on the next line or behind the one before it."""
        if not all(isinstance(part, TextPart) for part in word.parts):
            raise UnreadableScript(line, "a here-document ends at a variable")
        delimiter = "".join(part.text for part in word.parts if isinstance(part, TextPart))
        newline = self.text.find("\n", self.position)
        if newline < 0:
            raise UnreadableScript(line, f"the text up to {delimiter} has no end", f"add a line {delimiter}")
        back, self.position = self.position, self._bodies.get(newline, newline + 1)
        quoted = any(part.quoted for part in word.parts if isinstance(part, TextPart))
        body = self.here_document(delimiter, quoted, operator == "<<-")
        self._bodies[newline], self.position = self.position, back
        return body

    def _simple(self, line: int) -> SimpleCommand:
        assignments, redirections = list[VariableAssignment](), list[Redirection]()
        words = list[BashWord | VariableAssignment]()
        while True:
            self.skip_blanks()
            if redirection := self._redirection():
                redirections.append(redirection)
                continue
            first = words[0] if words else None
            declared = isinstance(first, BashWord) and first.literal in DECLARATIONS
            if (not words or declared) and (assignment := self._assignment()):
                words.append(assignment) if words else assignments.append(assignment)
                continue
            word = self.word()
            if word is None:
                break
            words.append(word)
        if self.starts("(") or not (assignments or words or redirections):
            raise self._unexpected()
        return SimpleCommand(tuple(assignments), tuple(words), tuple(redirections), line)

    def _assignment(self) -> VariableAssignment | None:
        match, line = _ASSIGNMENT.match(self.text, self.position), self.line
        if not match and re.compile(r"[A-Za-z_]\w*\[", re.ASCII).match(self.text, self.position):
            raise UnreadableScript(line, "an element of an array at the beginning of a command is not read")
        if not match:
            return None
        if match[2]:
            raise UnreadableScript(line, f"{match[0]} sets an element of an array, which is not read")
        self.position = match.end()
        if not self.starts("("):
            return VariableAssignment(match[1], self.word() or BashWord((), line), bool(match[3]), line)
        self.position += 1
        elements = list[BashWord]()
        self._skip_lines()
        while not self.starts(")"):
            element = self.word()
            if element is None:
                raise self._unexpected()
            if isinstance(element.parts[0], TextPart) and re.match(r"\[.*\]\+?=", element.parts[0].text):
                raise UnreadableScript(line, f"{match[1]} is set by index, which is not read")
            elements.append(element)
            self._skip_lines()
        self.position += 1
        return VariableAssignment(match[1], tuple(elements), bool(match[3]), line)
