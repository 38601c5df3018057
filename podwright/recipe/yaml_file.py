"""YAML files as mappings, with errors that say what to type; and where the shipped ones lie."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from podwright.errors import UserError, from_os

_PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = next(d for d in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if d.is_dir())  # a wheel, a checkout


def facts(module: str | Path) -> Any:
    """The YAML file of facts that lies beside a module and has its name."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # several times as fast, where PyYAML was built with it
    return yaml.load(Path(module).with_suffix(".yaml").read_text(), loader)


def once(node: yaml.MappingNode) -> yaml.MappingNode:
    """`node`, which a loader has composed; YAMLError for a key that stands twice, of which PyYAML would lose one."""
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in keys:
            problem = f"the key {key.value} is there twice"
            raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        keys.add(key.value)
    return node


class Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-6 as text; here it is a number, as everywhere else in the field. A key stands once."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as e:  # of a date, a number
            problem = "this looks like a date or a number, and is none: put it in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from e

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
    scalars = {}
    for key, table in mapping:
        if key.value not in tables or not isinstance(table, yaml.MappingNode):
            continue
        if all(isinstance(node, yaml.ScalarNode) for node in itertools.chain(*table.value)):
            scalars[key.value] = {name.value: value.value for name, value in table.value}
    return scalars


def fault_of(error: yaml.YAMLError) -> tuple[int, str]:
    """The line that a parser stopped at, from 1 (0: not known), and the parser's reason with the column."""
    if isinstance(error, yaml.reader.ReaderError):
        return 0, f"it holds the control character U+{error.character:04X}, as a binary file does"
    assert isinstance(error, yaml.MarkedYAMLError)
    mark = error.problem_mark
    if error.context_mark and re.search("end of stream|stream end|could not find", str(error.problem)):
        mark = error.context_mark  # where the part begins that has no end
    return (mark.line + 1, f"at column {mark.column + 1}, {error.problem}") if mark else (0, str(error.problem))


def read(path: Path, start: str = "start it with 'kind: grpo'") -> dict[str, Any]:
    """What a YAML file holds; `start` says how one begins."""
    try:
        raw = yaml.load(path.read_text(), Loader)
    except yaml.YAMLError as e:
        line, fault = fault_of(e)
        place = f"{path} line {line}" if line else str(path)
        raise UserError(f"{place} is not YAML: {fault}", "fix that line", "not-yaml") from e
    except RecursionError as e:
        raise UserError(f"{path} is nested too deeply", "give a file with fewer levels", "not-yaml") from e
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not text", "give a YAML file", "not-utf8") from e
    except OSError as e:
        raise from_os(e, path) or UserError(
            f"{path} cannot be read: {e}", "give a file that can be read", "unreadable"
        ) from e
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no mapping of keys", start, "not-a-mapping")
    return raw
