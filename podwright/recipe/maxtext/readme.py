"""Versions that the README beside a launch script states: lines such as `- Libtpu version: 0.0.37`, or rows of a table."""

from __future__ import annotations

import re

_NAMES = {
    "libtpu": r"libtpu(?:[ _-]?version)?",
    "jax": r"jax(?:[ _-]?version)?",
    "maxtext": r"maxtext(?:[ _-]?(?:version|commit|tag|branch))?",
    "python": r"python(?:[ _-]?version)?",
    "xpk": r"xpk(?:[ _-]?version)?",
}


def versions(text: str) -> dict[str, str]:
    """library -> version; the first statement counts."""
    stated: dict[str, str] = {}
    for library, name in _NAMES.items():
        pattern = rf"(?im)^[ \t]*[-*|][ \t]*[*`]*{name}[*`]*[ \t]*[:|][ \t]*[*`]*([a-z0-9][a-z0-9_.+-]*)"
        if match := re.search(pattern, text):
            stated[library] = match[1]
    return stated
