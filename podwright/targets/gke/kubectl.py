"""Runs kubectl with the login of a target's cluster, and says what a call that failed lets one conclude."""

from __future__ import annotations

import json
from collections.abc import Sequence

from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.base import MissingProgram
from podwright.targets.gke.kubectl_replies import classify, context_of
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings
from podwright.targets.settings.programs import KUBECTL

REQUEST_LIMIT_S = 20
"""of each request that a call makes"""
CALL_LIMIT_S = 90.0
"""of a call with its login and its requests"""


class Kubectl:
    def __init__(self, shell: Shell, settings: GkeSettings):
        self._shell = shell
        self._settings = settings

    def argv(self, words: Sequence[str]) -> tuple[str, ...]:
        """The command line that a call has, as a dry run prints it; objects of no namespace are called the same way."""
        own = self._settings
        where = (f"--context={context_of(own)}", f"--namespace={own.namespace}")
        return ("kubectl", *where, f"--request-timeout={REQUEST_LIMIT_S}s", *words)

    def json(self, words: Sequence[str]) -> tuple[Record, Reply | None]:
        """The object or the List that `kubectl WORDS -o json` prints, or {} and why there is none."""
        code, stdout, stderr = self._ask([*words, "--output=json"])
        if code:
            return {}, classify(stderr, self._settings)
        try:
            return dict(json.loads(stdout)), None
        except (ValueError, TypeError):
            return {}, Reply(Consequence.UNKNOWN, "Unclear: the answer of kubectl was cut off")

    def items(self, words: Sequence[str]) -> tuple[list[Record], Reply | None]:
        """The objects of the List that `kubectl WORDS -o json` prints; why there are none, if that failed."""
        listed, failure = self.json(words)
        return listed.get("items", []), failure

    def do(self, words: Sequence[str], stdin: str = "") -> Reply | None:
        """Why a call failed, as far as its reply tells; None if it did not. What it reads (`--filename=-`) is `stdin`."""
        return self.text(words, stdin)[1]

    def text(self, words: Sequence[str], stdin: str = "") -> tuple[str, Reply | None]:
        """What a call prints, also where it failed in the middle, and why it did."""
        code, stdout, stderr = self._ask(words, stdin)
        return stdout, classify(stderr, self._settings) if code else None

    def _ask(self, words: Sequence[str], stdin: str = "") -> tuple[int, str, str]:
        try:
            return self._shell.ask(self.argv(words), CALL_LIMIT_S, given=stdin)
        except FileNotFoundError:
            raise MissingProgram(KUBECTL) from None
