"""The words of `xpk workload create` as options, by the rules of argparse: `--key value` or `--key=value`, and the last one counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from podwright.errors import UserError

OF_TARGET = {"cluster": "CLUSTER_NAME", "project": "PROJECT_ID", "zone": "ZONE", "workload": "WORKLOAD_NAME"}
"""options that belong to who submits -> the variable that stands for the value in a recipe"""
IMAGES = ("docker-image", "base-docker-image")
DEVICES = ("device-type", "tpu-type")


@dataclass
class XpkOptions:
    values: dict[str, str] = field(default_factory=dict)
    """without dashes, in their order; "" where an option has no value"""
    repeated: dict[str, str] = field(default_factory=dict)
    """option that is there more than once -> the values that do not count"""


def options(argv: Sequence[str]) -> XpkOptions:
    """Of a call that begins with xpk, or with python and xpk.py."""
    words = list(argv[argv.index("create") + 1 :])
    parsed = XpkOptions()
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise UserError(f"xpk workload create has the word {word!r} without an option", "put the value in quotes")
        name, equals, value = word[2:].partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in parsed.values:
            parsed.repeated[name] = ", ".join(filter(None, [parsed.repeated.get(name, ""), parsed.values[name]]))
        parsed.values[name] = value
    return parsed


def first_of(values: dict[str, str], names: Sequence[str]) -> str:
    """The value of the first of several options that is there; ""."""
    return next((values[name] for name in names if name in values), "")
