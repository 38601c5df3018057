"""What a launch script has become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OpenValue:
    """A value that the recipe would leave open, and that decides what is launched."""

    name: str
    """of the script"""
    value: str
    """that the words of the recipe belong to"""


@dataclass(frozen=True)
class ImportedScript:
    recipe: dict[str, Any]
    argv: tuple[str, ...]
    """of `xpk workload create`, with the values that were given"""
    notes: dict[str, str]
    """part of the script -> what became of it"""
    target: dict[str, str]
    """option of xpk that belongs to a target, bucket or image -> its value, where the script has one or it was typed"""
    filled: dict[str, str] = field(default_factory=dict)
    """variable of the recipe -> its value in `argv`"""
    unset: Mapping[str, int] = field(default_factory=dict)
    """variable of the script that is used in the call and not set -> line"""
    deciding: tuple[OpenValue, ...] = ()
    """values that the recipe leaves open, for others of which its words would be others"""
    problem: str = ""
    """how the script went on behind its call, where it did not end by itself"""
    trusted: bool = False
    """whether bash has run it without a sandbox"""
