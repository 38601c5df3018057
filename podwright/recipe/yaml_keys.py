"""Of a key that stands twice in a mapping PyYAML loses one; here that is an error that names the line."""

from __future__ import annotations

import yaml


class RepeatedKey(yaml.YAMLError):
    pass


def once(node: yaml.MappingNode) -> yaml.MappingNode:
    """`node`, which a loader has composed; RepeatedKey for a key of it that stands twice."""
    keys: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in keys:
            raise RepeatedKey(f"line {key.start_mark.line + 1} has the key {key.value} twice")
        keys.add(key.value)
    return node
