"""YAML files as mappings, with errors that say what to type; and where the shipped ones lie."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from podwright.errors import UserError, from_os
from podwright.recipe.yaml_keys import RepeatedKey, once

_PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = next(d for d in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if d.is_dir())  # a wheel, a checkout


_NO_VALUE = "no value"
_OTHER = "something is there that does not belong there"
_FAULTS = (
    (_NO_VALUE, "a value looks like a date or a number, and is none: put it in quotes"),
    (
        "mapping values are not allowed",
        "a second ': ' follows on the line, or its indentation is wrong: put a text with ': ' in quotes",
    ),
    (r"character '\\t'", "a tab is where only spaces may be: indent with spaces"),
    (r"character '(.)' that cannot", r"a value begins with \1: put it in quotes"),
    (r"expected ',' or '(.)'.*stream end", r"a list or mapping in brackets has no closing \1"),
    (r"expected ',' or '(.)'", r"a comma or a closing \1 is missing"),
    ("end of stream", "a text in quotes begins and has no closing quote"),
    (
        "expected <block end>",
        "something does not continue the lines before: check quotes and indentation",
    ),
    (r"undefined alias '?([^']*)", r"*\1 names no value before it: put it in quotes"),
    ("could not find expected ':'", "a key has no colon and value"),
    (r"constructor for the tag '(.*)'", r"\1 is no tag that is read: put the value in quotes"),
    ("escape", "a backslash in double quotes begins no escape: use single quotes"),
    ("chomping or indentation", "a value begins with | or >: put it in quotes"),
    ("another document", "a second document begins: leave one in the file"),
    ("expected the node content", "a value is missing"),
    ("unhashable key", "a key is a list or a mapping: put a value with { or [ in quotes"),
)
"""what PyYAML calls a problem -> what to call it"""


class Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-6 as text; here it is a number, as everywhere else in the field. Of a key that stands twice, PyYAML loses one."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as e:  # of a date, a number
            raise yaml.constructor.ConstructorError(None, None, _NO_VALUE, node.start_mark) from e

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        return once(super().compose_mapping_node(anchor))


class Dumper(yaml.SafeDumper):
    """Puts in quotes each text that a reader of YAML 1.1 or 1.2, or `Loader`, takes for another value."""


for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*)?\.?\d+[eE][-+]?\d+$"),
        list("-+0123456789."),
    )
# Of YAML 1.2.2, section 10.3.2, and y and n of YAML 1.1, which PyYAML reads as text.
Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?$|^0o[0-7]+$|^0x[0-9a-fA-F]+$"),
    list("-+0123456789."),
)
Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))


def scalars(path: Path, tables: Collection[str]) -> dict[str, dict[str, str]]:
    """Those of `tables`, mappings of a file that `read` has read, whose values are single ones: as they are written, 5e-4 and not 0.0005."""
    root = yaml.compose(path.read_text(), Loader)
    mapping = root.value if isinstance(root, yaml.MappingNode) else []
    sections = {key.value: table for key, table in mapping if key.value in tables}
    return {
        name: {key.value: value.value for key, value in table.value}
        for name, table in sections.items()
        if isinstance(table, yaml.MappingNode)
        and all(isinstance(node, yaml.ScalarNode) for pair in table.value for node in pair)
    }


def fault_of(error: yaml.YAMLError) -> tuple[int, str]:
    """The line that a parser stopped at, from 1 (0: not known), and what is wrong there in words, with the column."""
    if isinstance(error, yaml.reader.ReaderError):
        return 0, f"it holds the control character U+{error.character:04X}, as a binary file does"
    problem = str(getattr(error, "problem", None) or "")
    # What has no end is found at the end of the file: the line to name is where it begins.
    begins = (
        getattr(error, "context_mark", None)
        if re.search(r"end of stream|stream end|not find expected", problem)
        else None
    )
    mark = begins or getattr(error, "problem_mark", None)
    words = next((match.expand(text) for pattern, text in _FAULTS if (match := re.search(pattern, problem))), _OTHER)
    return (mark.line + 1, f"at column {mark.column + 1}, {words}") if mark else (0, words)


def read(path: Path, start: str = "start it with 'kind: grpo'") -> dict[str, Any]:
    """What a YAML file holds; `start` says how one begins."""
    try:
        raw = yaml.load(path.read_text(), Loader)
    except FileNotFoundError as e:
        raise UserError(f"there is no file {path}", "check the path") from e
    except RepeatedKey as e:
        raise UserError(f"{path} {e}", "leave one of them out") from e
    except yaml.YAMLError as e:
        line, fault = fault_of(e)
        raise UserError(f"{path}{f' line {line}' if line else ''} is not YAML: {fault}", "fix that line") from e
    except RecursionError as e:
        raise UserError(f"{path} is nested too deeply", "give a file with fewer levels") from e
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not text", "give a YAML file") from e
    except OSError as e:
        raise from_os(e, path) or UserError(f"{path} cannot be read: {e}", "give a file that can be read") from e
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no mapping of keys", start)
    return raw
