"""The variables of a script that its user fills in, by its text: those that it sets to nothing, and those that it uses and never sets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from podwright.recipe.script_text import BARE, COMMENT, NESTED, SINGLE, contexts

_USED = re.compile(r"\\.|\$\{[#!]?([A-Za-z_]\w*)(?::?([-=])([^}]?))?|\$([A-Za-z_]\w*)", re.ASCII | re.DOTALL)
_SET = re.compile(
    r"(?:(?<=[\s;&|({])|^)(?:([A-Za-z_]\w*)\+?=(\"\"|'')?|(?:for|read(?:\s+-\w+)*|printf\s+-v|mapfile(?:\s+-\w+)*)\s+([A-Za-z_]\w*))",
    re.ASCII,
)
_OF_MACHINE = re.compile(
    r"S?RANDOM|SECONDS|EPOCH\w+|LINENO|PWD|OLDPWD|HOSTNAME|HOSTTYPE|MACHTYPE|OSTYPE|E?UID|PPID|SHLVL|BASH\w*|FUNCNAME|GROUPS|DIRSTACK|"
    r"COLUMNS|LINES|PATH|SHELL|TERM|LANG|LC_\w+|TMPDIR|IFS|OPTIND|OPTARG|PIPESTATUS|USER|LOGNAME|HOME|REPLY|_"
)


@dataclass(frozen=True)
class Variables:
    emptied: set[str]
    """set to nothing alone"""
    unset: Mapping[str, int]
    """used, and neither set nor with a default -> the first line"""
    given: Mapping[str, int]
    """such a one that has a typed value"""


def of_script(texts: Iterable[str], values: Collection[str]) -> Variables:
    """Of a script and of those that it sources. `values`: names that were typed."""
    used, own, emptied = dict[str, int](), set[str](), set[str]()
    for text in texts:
        kinds = contexts(text)
        for match in _USED.finditer(text):
            name = match[1] or match[4]
            if not name or kinds[match.start()] in (SINGLE, COMMENT):
                continue
            if name not in used:
                used[name] = text.count("\n", 0, match.start()) + 1
            if match[3] and match[3] != "}":
                own.add(name)
        for match in _SET.finditer(text):
            name = match[1] or match[3]
            if kinds[match.start()] not in (BARE, NESTED):
                continue
            if match[1] and re.match(r"[\s;&|)]|\Z", text[match.end() : match.end() + 1]):
                emptied.add(name)
            else:
                own.add(name)
    free = {name: line for name, line in used.items() if name not in own and name not in emptied}
    free = {name: line for name, line in free.items() if not _OF_MACHINE.fullmatch(name)}
    return Variables(
        emptied - own,
        {name: line for name, line in free.items() if name not in values},
        {name: line for name, line in free.items() if name in values},
    )


_FILE_TEST = re.compile(r"((?:\[\[?|\btest|&&|\|\|)\s+(?:!\s+)?)-[abcdefghkprstuwxGLNOS](?=\s+\S)")


def with_all_files(text: str) -> str:
    """A script in which each test of a file succeeds."""
    kinds = contexts(text)

    def passed(match: re.Match[str]) -> str:
        return f"{match[1]}-n" if kinds[match.start()] in (BARE, NESTED) else match[0]

    return _FILE_TEST.sub(passed, text)


_CONDITION = re.compile(r"(?:\[\[|\[|\btest)(?=\s)([^\n;&|]*(?:(?:&&|\|\|)[^\n;&|]*)*)")


def with_other_outcomes(text: str, name: str) -> str:
    """A script in which each test that names the variable `name` turns out the other way."""
    kinds = contexts(text)

    def turned(match: re.Match[str]) -> str:
        counts = kinds[match.start()] in (BARE, NESTED) and name in _named(match[1])
        return f"! {match[0]}" if counts else match[0]

    return _CONDITION.sub(turned, text)


def in_conditions(text: str) -> set[str]:
    """The variables that tests of a script name."""
    return {name for match in _CONDITION.finditer(text) for name in _named(match[1])}


def _named(text: str) -> set[str]:
    names = set()
    for match in _USED.finditer(text):
        name = match[1] or match[4]
        if name:
            names.add(name)
    return names


def sourced(text: str, files: Mapping[str, str]) -> dict[str, str]:
    """Those of `files` that a script reads as a part of itself."""
    named = re.findall(r"(?m)(?:^|[;&|])[ \t]*(?:source|\.)[ \t]+[\"']?(?:[^\s\"';&|]*/)?([^\s\"';&|/]+)", text)
    return {name: content for name, content in files.items() if name in named}
