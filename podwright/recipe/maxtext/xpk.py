"""The words of `xpk workload create` as options, by the rules of argparse: `--key value` or `--key=value`, and the last one counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from podwright.errors import UserError, nearest
from podwright.recipe.yaml_file import facts

OF_TARGET = {"cluster": "CLUSTER_NAME", "project": "PROJECT_ID", "zone": "ZONE", "workload": "WORKLOAD_NAME"}
"""options that belong to who submits -> the variable that stands for the value in a recipe"""
IMAGES = ("docker-image", "base-docker-image")
DEVICES = ("device-type", "tpu-type")
EXCLUSIVE = (DEVICES, ("env", "env-file"))
"""of each, xpk takes one"""
_FACTS = facts(__file__)
DECIDED_ELSEWHERE: dict[str, list[str]] = _FACTS["decided_elsewhere"]
OPTIONS = frozenset(_FACTS["options"])
"""of xpk workload create, in any version until NEWEST"""
NEWEST = "1.16.0"
"""the newest version that is known here, of 2026-08-04"""


@dataclass
class XpkOptions:
    values: dict[str, str] = field(default_factory=dict)
    """without dashes, in their order; "" where an option has no value"""
    repeated: dict[str, str] = field(default_factory=dict)
    """option that is there more than once -> the values that do not count"""


def is_newer(version: str) -> bool:
    """Whether a version of xpk is a release after the newest that is known here."""
    return bool(re.fullmatch(r"v?\d+(?:\.\d+)*", version)) and _numbers(version) > _numbers(NEWEST)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def require_option(name: str, version: str) -> None:
    """UserError for an option that `xpk workload create` does not have in `version` ("": not known), nor in any other that is known here."""
    if name in OPTIONS or is_newer(version):
        return
    guess = nearest(name, sorted(OPTIONS))
    fix = "leave it out, or type versions.xpk=VERSION of a newer xpk that has it"
    what = f"xpk workload create has no option --{name}, in any version until {NEWEST}"
    raise UserError(what, f"did you mean --{guess}?" if guess else fix, "unknown-option")


def require_undecided(names: Iterable[str]) -> None:
    """UserError for the first option that is not a recipe's to decide."""
    for name in names:
        if name in DECIDED_ELSEWHERE:
            owner, instead = DECIDED_ELSEWHERE[name]
            raise UserError(
                f"a recipe cannot set xpk.{name}: {owner}", f"leave xpk.{name} out; {instead}", "decided-elsewhere"
            )


def options(argv: Sequence[str], version: str) -> XpkOptions:
    """Of a call that begins with xpk, or with python and xpk.py. UserError for an option that xpk does not have in `version`, an abbreviation
    too, and for two that exclude each other."""
    words = list(argv[argv.index("create") + 1 :])
    parsed = XpkOptions()
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise UserError(
                f"xpk workload create has the word {word!r} without an option",
                "put the value in quotes",
                "unknown-option",
            )
        name, equals, value = word[2:].partition("=")
        require_option(name, version)
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in parsed.values:
            earlier = [parsed.repeated.get(name, ""), parsed.values[name]]
            parsed.repeated[name] = ", ".join(filter(None, earlier))
        parsed.values[name] = value
    for names in EXCLUSIVE:
        both = [name for name in names if name in parsed.values]
        if len(both) > 1:
            given = " and ".join(f"--{name}={parsed.values[name]}" for name in both)
            raise UserError(
                f"xpk workload create takes one of {given}", f"leave --{both[1]} or --{both[0]} out", "options-exclude"
            )
    return parsed


def first_of(values: dict[str, str], names: Sequence[str]) -> str:
    """The value of the first of several options that is there; ""."""
    return next((values[name] for name in names if name in values), "")
