"""What the exit code of a verb means: one table for all verbs."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    FAILED = 1  # the run failed, or a check found something wrong
    USAGE = 2  # what was typed is wrong; nothing was started
    REFUSED = 3  # the plan says that it will not run
    INCONCLUSIVE = 4  # the plan could not look at everything
    INTERRUPTED = 130  # Ctrl-C
