"""YAML files as mappings, with errors that say what to type; and where the shipped ones lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from podwright.errors import UserError, from_os
from podwright.recipe.yaml_keys import RepeatedKey, once

_PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = next(d for d in (_PACKAGE / "recipes", _PACKAGE.parent / "recipes") if d.is_dir())  # a wheel, a checkout


class Loader(yaml.SafeLoader):
    """YAML 1.1 reads 3e-6 as text; here it is a number, as everywhere else in the field. Of a key that stands twice, PyYAML loses one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        return once(super().compose_mapping_node(anchor))


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)?\.?\d+[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read(path: Path, start: str = "start it with 'kind: grpo'") -> dict[str, Any]:
    """What a YAML file holds; `start` says how one begins."""
    try:
        raw = yaml.load(path.read_text(), Loader)
    except FileNotFoundError as e:
        raise UserError(f"there is no file {path}", "check the path") from e
    except RepeatedKey as e:
        raise UserError(f"{path} {e}", "leave one of them out") from e
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line} is not YAML: {getattr(e, 'problem', None) or e}", "fix that line") from e
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not text", "give a YAML file") from e
    except OSError as e:
        raise from_os(e, path) or UserError(f"{path} cannot be read: {e}", "give a file that can be read") from e
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no mapping of keys", start)
    return raw
