"""Runs gcloud, and says what a call that failed, or was cut off, lets one conclude."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright.errors import UserError
from podwright.failures.match import match
from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.base import Barred, MissingProgram
from podwright.targets.google.replies import Classify, Consequence, Reply
from podwright.targets.machines import GONE, Allocation, unknown
from podwright.targets.settings.programs import GCLOUD

Argv = tuple[str, ...]

CALL_LIMIT_S = 120.0
LOGIN_PAUSE_S = 2.0
"""before a call that found no login is made once more: nothing was sent by it"""


_PARTIAL = "Some requests did not succeed"
"""what lists of Compute Engine warn of, with exit code 0, where a refused request has left rows out: seen of gcloud 528 at a 403"""


class Gcloud:
    def __init__(self, shell: Shell, classify: Classify):
        self._shell = shell
        self._classify = classify

    def do(self, argv: Argv, zone: str, keep_open: Sequence[int] = ()) -> Reply | None:
        """Why a call failed, as far as its reply tells; None if it did not. `keep_open`: files that the call holds, even alone."""
        code, _, stderr = self._ask(argv, keep_open)
        return self._classify(stderr, zone) if code else None

    def start(self, argv: Argv, log: Path, lock: int) -> None:
        """Have a call do its work without this process, which may end before it; what it prints goes to `log`."""
        try:
            self._shell.start(argv, cwd=log.parent, env={}, log=log, keep_open=(lock,))
        except FileNotFoundError:
            raise MissingProgram(GCLOUD) from None

    def failure_in(self, log: Path, zone: str) -> Reply | None:
        """Why a call that was started, and has ended, failed; None if it did not, or none was started here."""
        text = log.read_text(errors="replace") if log.exists() else ""
        return self._classify(text, zone) if "ERROR" in text else None

    def has_sent(self, log: Path) -> bool:
        """Whether the cloud may have taken the request of a call that was started, by what it has printed."""
        if not log.exists():
            return True
        text = log.read_text(errors="replace")
        return "request issued for" in text or "Waiting for operation" in text

    def read(self, argv: Argv, zone: str) -> Record | Allocation:
        """The object that is printed; GONE if there is nothing of the name, an unknown allocation where that cannot be told."""
        record, failure = self.record(argv, zone)
        if failure is None:
            return record
        return GONE if failure.consequence is Consequence.ABSENT else unknown(failure.advice)

    def record(self, argv: Argv, zone: str) -> tuple[Record, Reply | None]:
        """The object that is printed, or {} and why there is none."""
        value, failure = self._value(argv, zone, dict)
        return value or {}, failure

    def listed(self, argv: Argv, zone: str = "-") -> tuple[list[Record], Reply | None]:
        """The rows that are printed, or [] and why they cannot be had, all of them."""
        value, failure = self._value(argv, zone, list)
        return value or [], failure

    def rows(self, argv: Argv) -> list[Record]:
        """The list that is printed; UserError where it cannot be had whole."""
        rows, failure = self.listed(argv)
        if failure:
            fault = Barred if failure.is_final else UserError
            raise fault(
                f"the cloud does not list what it has: {failure.reason}", failure.fix or "try again", "no-list-of-cloud"
            )
        return rows

    def _value(self, argv: Argv, zone: str, kind: type) -> tuple[Any, Reply | None]:
        """What is printed as JSON, of a `kind`, or None and why there is none."""
        code, stdout, stderr = self._ask(argv)
        if code or _PARTIAL in stderr:
            return None, self._classify(stderr, zone)
        try:
            value = json.loads(stdout)
        except ValueError:
            value = None
        if isinstance(value, kind):
            return value, None
        return None, Reply(Consequence.UNKNOWN, "Unclear: the answer of gcloud was cut off")

    def _ask(self, argv: Argv, keep_open: Sequence[int] = ()) -> tuple[int, str, str]:
        try:
            answer = self._shell.ask(argv, CALL_LIMIT_S, keep_open=keep_open)
            if answer[0] and match(answer[2], "gcloud_login"):
                time.sleep(LOGIN_PAUSE_S)
                answer = self._shell.ask(argv, CALL_LIMIT_S, keep_open=keep_open)
            return answer
        except FileNotFoundError:
            raise MissingProgram(GCLOUD) from None
