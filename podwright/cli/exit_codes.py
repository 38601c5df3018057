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


MEANINGS = {
    ExitCode.OK: "done; of a verb that waits for a run: it has finished. `stop`: the run has stopped or finished",
    ExitCode.FAILED: "the run has not finished: it failed, lost its machine or was stopped. Or a check found an error: `diagnose` no known failure, `data check` a fault, `doctor` and `target check` something that prevents a run",
    ExitCode.USAGE: "what was typed or supplied is wrong; the line on stderr says what to type",
    ExitCode.REFUSED: "the plan says that the recipe will not run there",
    ExitCode.INCONCLUSIVE: "the plan, or `target check`, could not check everything",
    ExitCode.INTERRUPTED: "Ctrl-C; what a run had done is kept",
}


def of_check(passed: bool | None) -> ExitCode:
    """`passed`: None where not everything could be checked."""
    if passed is None:
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK if passed else ExitCode.FAILED


def of_run(verb: str, ending: str | None, interrupted: bool) -> ExitCode:
    """Of a verb at a run: `ending` of its newest attempt, None while it goes on; `interrupted`: by Ctrl-C."""
    if ending == Ending.FINISHED:
        return ExitCode.OK
    if interrupted:
        return ExitCode.INTERRUPTED
    return of_check((verb, ending) in (("submit", None), ("stop", Ending.STOPPED)))
