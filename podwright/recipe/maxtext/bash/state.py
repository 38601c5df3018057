"""What a script has set so far, and how two ways through it are joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from podwright.recipe.maxtext.bash.expansion import VariableValue
from podwright.recipe.maxtext.bash.syntax import BashList, UnreadableScript


class BashExit(Exception):
    """`exit`, or what ends a script."""


class BashReturn(Exception):
    """`return` from a function or a sourced file."""


@dataclass(frozen=True)
class LaunchCall:
    """One call of a program that the reader looks for."""

    argv: tuple[str, ...]
    line: int
    environment: Mapping[str, str]
    """what the script has exported"""


@dataclass
class ScriptState:
    variables: dict[str, VariableValue | UnreadableScript] = field(default_factory=dict)
    """an UnreadableScript is raised where the variable is used"""
    exported: set[str] = field(default_factory=set)
    functions: dict[str, BashList] = field(default_factory=dict)
    readonly: set[str] = field(default_factory=set)
    options: set[str] = field(default_factory=set)
    positional: tuple[str, ...] = ()
    calls: tuple[LaunchCall, ...] = ()
    written: frozenset[str] = frozenset()
    """files that the script writes, whose content is not known"""
    moved: bool = False
    """whether it has changed its directory"""
    status: int | None = 0
    """of the last command; None where only a running machine knows"""
    printed: tuple[str, ...] | None = None
    """stdout, within $(...) or a pipe"""
    given: str | None = None
    """stdin, behind a pipe or from a here-document"""

    def copy(self) -> ScriptState:
        return dataclasses.replace(
            self,
            variables=dict(self.variables),
            exported=set(self.exported),
            functions=dict(self.functions),
            readonly=set(self.readonly),
            options=set(self.options),
        )

    def environment(self) -> dict[str, str]:
        values = ((name, self.variables.get(name)) for name in sorted(self.exported))
        return {name: value for name, value in values if isinstance(value, str)}


def joined(first: ScriptState, second: ScriptState, line: int, reason: str) -> ScriptState:
    """The state behind two branches of which only a running machine takes the right one.

    A variable that they set differently is an error where it is used; a call in one of them alone is an error here.
    """
    same = ("calls", "functions", "options", "positional", "printed", "moved")
    if any(getattr(first, name) != getattr(second, name) for name in same):
        raise UnreadableScript(line, f"what the script does depends on {reason}")
    state = first.copy()
    for name in {*first.variables, *second.variables}:
        if first.variables.get(name) != second.variables.get(name):
            problem = UnreadableScript(
                line, f"{name} depends on {reason}", f"write {name}=VALUE behind it in a copy of the script"
            )
            state.variables[name] = problem
    state.exported |= second.exported
    state.readonly |= second.readonly
    state.written |= second.written
    state.status = None
    return state
