"""Keeps the stderr of a verb to what this project says: libraries log there too, some of them from native code."""

from __future__ import annotations

import logging
import sys
import warnings


def keep_to(descriptor: int) -> None:
    """From now on `sys.stderr` is the open file `descriptor`; the file 2 is left to native code. Warnings of Python libraries are dropped."""
    sys.stderr = open(descriptor, "w", buffering=1)  # noqa: SIM115  until the process ends
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
