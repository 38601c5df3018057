"""What the exit code of a verb means: one table for all verbs."""

from __future__ import annotations

import enum

from podwright.rundir import Ending


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    INCONCLUSIVE = 4
    INTERRUPTED = 130


_OF_VERDICT = {"ok": ExitCode.OK, "refused": ExitCode.REFUSED, "inconclusive": ExitCode.INCONCLUSIVE}


def of_verdict(verdict: str) -> ExitCode:
    """`verdict`: a Verdict, which is not imported here: this module is loaded for every --help."""
    return _OF_VERDICT[verdict]


def of_check(passed: bool) -> ExitCode:
    return ExitCode.OK if passed else ExitCode.FAILED


def of_run(verb: str, ending: str | None, interrupted: bool, left: str = "") -> ExitCode:
    """Of a verb at a run: `ending` of its newest attempt, None while it goes on; `interrupted`: by Ctrl-C; `left`: what is still to be done."""
    if ending == Ending.FINISHED and not (interrupted and left):
        return ExitCode.OK
    if interrupted:
        return ExitCode.INTERRUPTED
    return of_check((verb, ending) in (("submit", None), ("resubmit", None), ("stop", Ending.STOPPED)))
