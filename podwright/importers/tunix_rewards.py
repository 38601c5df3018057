"""Reward modules of tunix as rewards of a recipe.

tunix takes every public function of a module as a reward; a recipe names each. The file is read, never run.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

from podwright.errors import UserError

_ARGUMENTS = {"prompts", "completions"}


def converted(path: Path, value: Any, shipped: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """(rewards, note) of `reward_functions`, a list of files relative to the working directory or to a folder above `path`.

    `shipped` where none of its functions can be named. UserError for anything but a list of files, and for a file that is not Python.
    """
    names = value if isinstance(value, list) else [] if value is None else [value]
    if any(not isinstance(name, str) or not name for name in names):
        raise UserError(
            f"reward_functions={value!r:.60} is no list of files",
            "write reward_functions: [my_rewards.py]",
            "not-a-list",
        )
    rewards: list[dict[str, Any]] = []
    notes = []
    for name in names:
        file = _located(name, path)
        if file is None:
            notes.append(
                f"{name} is not in this directory nor above {path.name}; type \"rewards=[{{function: '{Path(name).name}:NAME'}}]\" with its path"
            )
            continue
        functions, others = _functions(file)
        place = _shown(file)
        rewards += [{"function": f"{place}:{function}", "weight": 1.0} for function in functions]
        notes.append(f"{place}: {', '.join(functions) or 'no function with arguments prompts and completions'}")
        if others:
            notes.append(f"not {', '.join(others)}, without arguments prompts and completions")
    if rewards:
        return rewards, f"rewards are those of {'; '.join(notes)}; they are added up"
    kept = ", ".join(reward["function"] for reward in shipped)
    return shipped, "; ".join([*notes, f"rewards are {kept}"])


def _located(name: str, path: Path) -> Path | None:
    candidates = [Path(name), *(folder / name for folder in path.resolve().parents)]
    for file in candidates:
        if file.suffix == ".py" and file.is_file():
            return file
    return None


def _shown(file: Path) -> str:
    """Relative to the working directory where the file is below it: that is where a run is started."""
    full = file.resolve()
    here = Path.cwd().resolve()
    return os.fspath(full.relative_to(here)) if full.is_relative_to(here) else os.fspath(full)


def _functions(file: Path) -> tuple[list[str], list[str]]:
    """(names of the rewards, names of other public functions), in the order of the file."""
    try:
        body = ast.parse(file.read_text()).body
    except (OSError, ValueError, SyntaxError, RecursionError) as e:
        line = f" line {e.lineno}" if isinstance(e, SyntaxError) else ""
        raise UserError(
            f"{file}{line} is not Python", "fix that line, or take it out of reward_functions", "not-python"
        ) from e
    public = {node.name: node.args for node in body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    rewards = []
    for name, args in public.items():
        arguments = {arg.arg for arg in (*args.args, *args.kwonlyargs)}
        if arguments >= _ARGUMENTS:
            rewards.append(name)
    return rewards, [name for name in public if name not in rewards]
