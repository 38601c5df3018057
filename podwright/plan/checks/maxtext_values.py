"""Whether MaxText has the keys of a recipe's arguments, and takes their values, by the types of its own configuration."""

from __future__ import annotations

import re
from collections.abc import Collection

from podwright.errors import listed, nearest
from podwright.plan.findings import Finding, Level
from podwright.recipe.maxtext import argument_types, remat
from podwright.recipe.maxtext.argument_types import OLDER_KEYS, WrongType
from podwright.recipe.maxtext.arguments import Arguments
from podwright.recipe.maxtext.schema import VARIABLE

_TEXTS = {
    "attention": ("autoselected", "flash", "dot_product", "cudnn_flash_te", "cudnn_flash_jax", "paged", "vllm_rpa", "vllm_batched_rpa"),
    "remat_policy": (*remat.POLICIES, "custom"),
    "mu_dtype": ("", "bfloat16", "float32", "float16"),
}  # fmt: skip
"""keys whose type is a text, with the values that MaxText e591f30 takes: layers/attention_op.py, utils/max_utils.py"""
_ASK = "--compile asks the MaxText of the recipe"


def keys(arguments: Arguments) -> list[Finding]:
    """Keys that are not known, and older names of keys."""
    findings = []
    for key in argument_types.unknown(arguments):
        near = nearest(key, sorted(argument_types.types()))
        what = f"arguments.{key} is no key of MaxText e591f30 (2026-08-22), which refuses others: it, memory and step time were not checked"
        fix = f"did you mean {near}? " if near else ""
        findings.append(Finding("model", "inconclusive", what, f"{fix}{_ASK}", "unknown-key"))
    for key in arguments:
        if newer := OLDER_KEYS.get(key):
            what = f"arguments.{key} is called {newer} in newer versions of MaxText: the image has to be of the version that the recipe names"
            findings.append(Finding("model", "info", what))
    return findings


def values(arguments: Arguments, examined: Collection[str]) -> list[Finding]:
    """Values that their keys do not take, but for the keys `examined`, which have a finding already.

    What is neither true nor false, or no number, is an error in any version of MaxText; lists and named values differ between versions.
    """
    findings = []
    for key, value in arguments.items():
        problem = _of_text(key, value) if key in _TEXTS else argument_types.wrong(key, value)
        if problem is None or key in examined or VARIABLE.search(value) or re.search(r"<[A-Za-z].*>", value):
            continue  # what is still to be filled in has a finding too
        fix = f"type arguments.{key}={problem.instead}"
        level: Level = "error"
        if problem.choices or problem.instead.startswith("["):
            level = "inconclusive"
            if problem.choices:
                fix += f"; there are {listed(filter(None, problem.choices))}"
            fix += f"; {_ASK}"
        findings.append(Finding("model", level, problem.what, fix, "bad-value"))
    return findings


def _of_text(key: str, value: str) -> WrongType | None:
    known = _TEXTS[key]
    if value.lower() in known:
        return None
    typed = nearest(value, list(known)) or known[0] or known[1]
    return WrongType(f"{key}={value:.60} is no value of MaxText e591f30 (2026-08-22)", typed, known)
