"""How a reward is called: of a plan, which reads a file's `def`, and of a trainer, which has the function."""

from __future__ import annotations

import inspect

COLUMNS = ("question", "answer", "solution")
"""of the data, which a reward gets by name"""


def bind(signature: inspect.Signature) -> None:
    """TypeError for a function that cannot be called as a reward."""
    signature.bind(prompts=[], completions=[], **{name: [] for name in COLUMNS})
