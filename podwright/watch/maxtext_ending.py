"""How a training of MaxText ended: by the steps that it completed, by what its last lines say, and by the exit code of its process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from podwright.errors import UserError
from podwright.rundir import Ending, RunDir, planned_steps, recipe_of
from podwright.targets.base import Polled
from podwright.watch import maxtext_log
from podwright.watch.diagnose import AttemptOutcome
from podwright.watch.maxtext_log import LogEnd, LogState

_UPLOAD = re.compile(
    r"(?:CommandException|ServiceException|BadRequestException|AccessDeniedException|InvalidUrlError|ERROR: \(gcloud)[^\n]*"
    r"|\b(?:gsutil|gcloud storage)\b[^\n]*\b(?:[Ee]rror|[Ff]ailed|denied|not found)\b[^\n]*|\bcp: cannot [^\n]*"
)


class LogEnding(NamedTuple):
    ending: Ending | None
    """None where the log does not tell"""
    reason: str
    """a key of words.ENDINGS"""
    detail: str = ""
    """a line of the log, or the cause that `podwright diagnose` names"""
    fix: str = ""
    zh: Mapping[str, str] = MappingProxyType({})
    """`cause` and `remedy` in Chinese, of a failure that `podwright diagnose` names"""


def ending(log: LogState, end: LogEnd, done: int, planned: int | None) -> LogEnding:
    """`done`: steps that are complete, of `planned`."""
    code = log.known.exit_code
    failure = next(iter(end.failures), None)
    no_data = next((f for f in end.failures if f["ending"] == Ending.OUT_OF_DATA), None)
    complete = planned is not None and done >= planned
    if log.ends_not_finite and (complete or code == 0):
        diverged = next((f for f in end.failures if f["ending"] == Ending.NOT_FINITE), None)
        if diverged is None:
            return LogEnding(Ending.NOT_FINITE, "loss_not_finite")
        return LogEnding(Ending.NOT_FINITE, "loss_not_finite", fix=diverged["remedy"], zh=diverged["zh"])
    if complete:
        return _complete(end, code)
    if no_data is not None:
        return LogEnding(Ending.OUT_OF_DATA, "out_of_data", no_data["evidence"], no_data["remedy"], no_data["zh"])
    if log.known.stopped and log.known.stopped.startswith("Aborting training"):
        return LogEnding(Ending.NOT_FINITE, "not_finite", log.known.stopped)
    if code == 0:
        reason = "exit_0" if planned is None else "exit_0_early"
        return LogEnding(Ending.FINISHED if planned is None else Ending.UNKNOWN, reason, log.known.stopped or "")
    if failure is not None:
        return LogEnding(Ending(failure["ending"]), "failure", failure["cause"], failure["remedy"], failure["zh"])
    if code is not None:
        return LogEnding(Ending.CRASHED, "exit_code")
    return LogEnding(None, "no_end")


def _complete(end: LogEnd, code: int | None) -> LogEnding:
    """All steps are done; what fails afterwards is not the training."""
    if code in (0, None):
        return LogEnding(Ending.FINISHED, "complete")
    upload = _UPLOAD.search("\n".join(end.last_lines))
    if upload:
        return LogEnding(Ending.FINISHED, "upload_failed", upload[0].strip()[:200])
    return LogEnding(Ending.FINISHED, "complete_exit_code")


def _planned(run: RunDir) -> int | None:
    """Steps; None where the recipe leaves them to MaxText, or is damaged, which is no reason to lose the ending of an attempt."""
    try:
        return planned_steps(recipe_of(run)) or None
    except UserError:
        return None


def outcome(run: RunDir, attempt: int, polled: Polled, stop_wanted: bool) -> AttemptOutcome | None:
    """How an attempt of a run ended, as far as the log of its first process tells more than an exit code."""
    if not run.log(attempt).exists():
        return None
    log = maxtext_log.state_at_end(run, attempt)
    if log.known.exit_code is None:
        log.known.exit_code = polled.returncode
    done = log.last_step + 1
    planned = _planned(run)
    ended = ending(log, maxtext_log.end_of(run.log(attempt), log.start_at), done, planned)
    steps = f"{done} of {planned} steps" if planned else f"{done} steps"
    if stop_wanted and ended.reason not in ("complete", "upload_failed"):
        return AttemptOutcome(Ending.STOPPED, f"stopped after {steps}", step=done)
    code = log.known.exit_code
    details = {
        "complete": "",
        "complete_exit_code": f"all {steps} are done; the process then ended with exit code {code}",
        "upload_failed": f"all {steps} are done; the upload of the log after them failed: {ended.detail}",
        "out_of_data": f"{steps}; then the training data ended ({ended.detail}), exit code {code}",
        "loss_not_finite": f"{steps}, and the loss of the last one is NaN or infinite, exit code {code}",
        "not_finite": f"{ended.detail} after {steps}, exit code {code}",
        "exit_0_early": f"{steps}, then exit code 0: {ended.detail or 'the log does not say why'}",
    }
    if ended.ending is None or ended.reason not in details:
        return None  # the pods tell more
    return AttemptOutcome(ended.ending, details[ended.reason], ended.fix, done)
