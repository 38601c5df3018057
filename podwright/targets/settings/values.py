"""What values of settings are held against, in the settings of every kind of target."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import AfterValidator


def matching(pattern: str, wrong: str) -> AfterValidator:
    """Of a text that is empty or has `pattern`; `wrong`: what is said of any other."""

    def check(value: str) -> str:
        if value and not re.fullmatch(pattern, value):
            raise ValueError(wrong)
        return value

    return AfterValidator(check)


def require_distinct(values: Sequence[str], fix: str = "leave one of them out") -> None:
    """ValueError for one that stands twice."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"has {value} twice; {fix}")


@functools.cache
def decided_options(tool: str) -> frozenset[str]:
    """Options of a tool that a user cannot add to the target's."""
    return frozenset(yaml.safe_load(Path(__file__).with_name("decided_options.yaml").read_text())[tool])
