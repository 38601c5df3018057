"""A launch script as the one call of `xpk workload create` that it makes: its words, exactly as bash passes them, without a process.

Who evaluates the script by bash begins with the same text and gives the same values, so that both can be compared.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from podwright.errors import UserError
from podwright.recipe.maxtext.bash.run import ScriptRun
from podwright.recipe.maxtext.bash.state import BashExit, BashReturn, LaunchCall
from podwright.recipe.maxtext.bash.syntax import BashList, UnreadableScript
from podwright.recipe.script_text import with_placeholders

LAUNCHERS = (
    (r"benchmark_runner", "MaxText's benchmark_runner, whose configuration is Python code in MaxText"),
    (r"xpk(?:\.py)?\s+workload\s+create-pathways", "xpk workload create-pathways"),
    (r"gcloud\s+(?:alpha\s+|beta\s+)?compute\s+tpus", "gcloud compute tpus, for TPU VMs"),
    (r"kubectl\s+(?:apply|create)", "kubectl, with a manifest"),
    (r"docker\s+run", "docker run"),
    (r"\bpython[\d.]*\s", "Python on the machine that it runs on"),
)


LONGEST_WORD = (1 << 17) - 1
"""bytes: MAX_ARG_STRLEN of Linux (32 pages of 4 KiB) without the zero at its end"""


@dataclass(frozen=True)
class ScriptReading:
    """What a script does, and which of its variables are still to be filled in."""

    call: LaunchCall
    placeholders: Mapping[str, str]
    """`<name>` without a value -> where"""
    emptied: Mapping[str, int]
    """variable that the script sets to nothing, to be filled in -> line"""
    unset: Mapping[str, int]
    """variable that is used and not set -> line"""
    sourced: Mapping[str, int]
    """file that is read and that does not lie beside the script -> line"""
    decided: Mapping[str, int] = field(default_factory=dict)
    """stand-in that a condition depends on -> line"""
    given: Mapping[str, int] = field(default_factory=dict)
    """variable with a typed value that is used and that the script never sets -> line"""


_STARTERS = frozenset({"uv", "uvx", "pipx", "poetry", "conda", "mamba"})
_CALL = re.compile(r"xpk(?:\.py)?[\"']?\s+(?:\\\n\s*)?workload\s+create\b")


def mentions_xpk(text: str) -> bool:
    """Whether a script seems to call xpk workload create."""
    return bool(_CALL.search(text))


def of_xpk(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command from xpk on, also where Python or uv starts it; empty where it is another program."""
    program = words[0].rpartition("/")[2]
    starts = (0,) if program == "xpk" else range(1, 4) if program in _STARTERS or program.startswith("python") else ()
    for place in starts:
        if place < len(words) and words[place].rpartition("/")[2] in ("xpk", "xpk.py", "xpk.main"):
            return ("xpk", *words[place + 1 :])
    return ()


def calls_xpk(words: Sequence[str]) -> bool:
    """Whether the words of a command are `xpk workload create`."""
    return of_xpk(words)[1:3] == ("workload", "create")


def read(
    text: str,
    values: Mapping[str, str],
    now: datetime,
    files: Mapping[str, str] | None = None,
    name: str = "the script",
    stand_ins: Mapping[str, str | None] | None = None,
    other_way: bool = False,
) -> ScriptReading:
    """The call of `xpk workload create` in a script. UserError, with the line, where it cannot be read exactly, or there is none.

    `values`: variables and placeholders by name; USER and HOME among them. `now`: what `date` tells, with its zone. `files`: those beside
    the script by name, which it may source. `stand_ins`, `other_way`: as ScriptRun has them.
    """
    filled, placeholders = with_placeholders(text, values)
    run = ScriptRun(values, files or {}, now, calls_xpk, stand_ins=stand_ins, other_way=other_way)
    try:
        with contextlib.suppress(BashExit, BashReturn):
            run.script(filled)
        _require_no_trapped_call(run)
    except UnreadableScript as e:
        raise UserError(f"{name} {e.what}", e.fix) from e
    calls = run.state.calls
    if not calls and mentions_xpk(text):
        what = f"{name} does not reach its call of xpk workload create: it ends before, or has a function or alias of that name"
        raise UserError(what, "take out in a copy of the script what ends it or hides xpk")
    if not calls:
        raise UserError(f"{name} does not call xpk workload create: {launcher(text)}", "name a script that calls it")
    if len(calls) > 1:
        lines = ", ".join(str(call.line) for call in calls)
        raise UserError(f"{name} calls xpk workload create {len(calls)} times, in lines {lines}", "leave one in a copy")
    call = replace(calls[0], argv=of_xpk(calls[0].argv))
    longest = max(call.argv, key=len)
    if len(longest.encode()) > LONGEST_WORD:
        what = f"{name} line {call.line}: {longest[:20]}... has {len(longest.encode()):,} bytes, and Linux passes at most {LONGEST_WORD:,} in a word"
        raise UserError(what, "take long values out into a file of the image")
    return ScriptReading(call, placeholders, run.emptied, run.unset, run.sourced, run.decided, run.given)


def _require_no_trapped_call(run: ScriptRun) -> None:
    """UnreadableScript for a trap that calls xpk workload create, or that may do so in a part that is not read."""
    for command, line in run.traps:
        trap, may_call = ScriptRun(run.values, run.files, run.now, run.looked_for), False
        trap.state = run.state.copy()
        try:
            trap.script(command, line)
        except (BashExit, BashReturn):
            pass
        except UnreadableScript:
            may_call = {"xpk", "create"} <= set(re.findall(r"\w+", _with_functions(command, run.state.functions)))
        if may_call or trap.state.calls != run.state.calls:
            reason = f"the trap {shlex.quote(command[:60])} calls xpk workload create, which is not read"
            raise UnreadableScript(line, reason, "write the call at the end of a copy of the script, without trap")


def _with_functions(command: str, functions: Mapping[str, BashList]) -> str:
    """A command with the parsed bodies of the functions that it names, and of those that they name."""
    rest = dict(functions)
    while named := rest.keys() & set(re.findall(r"[\w-]+", command)):
        command += "".join(str(rest.pop(name)) for name in named)
    return command


def launcher(text: str) -> str:
    """What a script without xpk starts, in words."""
    code = re.sub(r"(?m)^[ \t]*#.*$", "", text)
    used = next((words for pattern, words in LAUNCHERS if re.search(pattern, code)), "")
    return f"it uses {used}, which is not read" if used else "nothing in it is a launcher that is known"
