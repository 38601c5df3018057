"""Has xpk create the JobSet of an attempt, and says why it has not.

What xpk itself says of success is not believed: a workload exists when the API server has its JobSet. xpk logs in to the cluster in a
kubeconfig of its own, so that the one of the user keeps its current context.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from podwright.errors import UserError
from podwright.rundir import Record
from podwright.shell import Shell
from podwright.targets.gke import xpk_calls
from podwright.targets.gke.kubectl import Kubectl
from podwright.targets.google.replies import Consequence, Reply
from podwright.targets.settings.gke import GkeSettings

LOG = "xpk.txt"
LIMIT_S = 900.0
"""of a call: xpk looks much up, and waits for kubectl ten seconds at a time"""
_PAUSE_S = 0.2


class Workload:
    """Of one attempt. `order`: what order.json holds; `lock`: the descriptor of a lock that xpk holds until it has ended."""

    def __init__(self, order: Record, folder: Path, kubectl: Kubectl, shell: Shell, own: GkeSettings, lock: int):
        self._argv = order["xpk"]
        self._cwd = Path(order["cwd"])
        self._name = order["jobset"]
        self._log = folder / LOG
        self._kubectl = kubectl
        self._shell = shell
        self._own = own
        self._target = str(order.get("target", "NAME"))
        self._lock = lock

    def create(self, stopped: Callable[[], bool]) -> Reply | None:
        """Unless it exists: why it could not be created, or None. xpk is ended when a stop is wanted."""
        exists, failure = self._exists()
        if failure or exists:
            return failure
        since = self._log.stat().st_size if self._log.exists() else 0
        ended = self._call(stopped)
        exists, failure = self._exists()
        if failure:  # xpk may have created it, whatever now keeps the API server from telling
            return replace(failure, consequence=Consequence.UNKNOWN)
        if exists:
            return None
        if not ended:
            return Reply(Consequence.UNKNOWN, f"Slow: xpk has not ended after {LIMIT_S / 60:g} min")
        with self._log.open("rb") as log:
            log.seek(since)
            return xpk_calls.conclusion(log.read().decode(errors="replace"), self._own, self._target)

    def _exists(self) -> tuple[bool, Reply | None]:
        """And why that is not known."""
        _, failure = self._kubectl.json(("get", "jobset", self._name))
        if failure and failure.consequence is Consequence.ABSENT:
            return False, None
        return failure is None, failure

    def _call(self, stopped: Callable[[], bool]) -> bool:
        """Whether it has come to its end by itself."""
        with tempfile.TemporaryDirectory(prefix="podwright-xpk-", ignore_cleanup_errors=True) as folder:
            own = {"KUBECONFIG": f"{folder}/kubeconfig", "TMPDIR": folder}
            try:
                pid = self._shell.start(self._argv, cwd=self._cwd, env=own, log=self._log, keep_open=(self._lock,))
            except FileNotFoundError:
                what = "xpk, which is to submit the run, is no longer in PATH"
                raise UserError(what, "install it again, or set submit=jobset in the target's file") from None
            print("xpk has not ended yet", flush=True)  # what the attempt waits for
            until = time.monotonic() + LIMIT_S
            while self._shell.returncode(pid) is None:
                if stopped() or time.monotonic() > until:
                    self._shell.kill(pid)
                    return False
                time.sleep(_PAUSE_S)
        return True


def labelling(jobset: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Puts the labels of a run on a JobSet of xpk."""
    patch = json.dumps({"metadata": {"labels": dict(labels)}})
    return ("patch", f"jobset/{jobset}", "--type=merge", f"--patch={patch}")
