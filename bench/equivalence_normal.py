"""What the equivalence corpus keeps of an answer: facts without words, and without what differs from machine to machine or from day to day."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
_CHANGING_TEXTS = (
    (re.compile(r"\b20\d{6}-\d{4}(?:\d\d)?\b"), "DATE"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[T_ ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?"), "DATE"),
    (re.compile(r"\b\d\d\.\d{3} \d\d:\d\d:\d\d"), "DATE"),
    (re.compile(r"(?<![\d-])20\d\d-\d\d(?:-\d\d)?(?![\d-])"), "DATE"),
    (re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"), "HASH"),
    (re.compile(r"\bssh-ed25519 [\w+/=]+"), "ssh-ed25519 KEY"),
)
_CHANGING = {"compile_s", "cached", "version"}
"""keys whose values say how long something took here, or which version of this project wrote them"""
_WORDS = {"fix", "message", "notes", "by_hand", "differences", "cleanup", "unattended", "ending_fix", "not_predicted"}
"""keys whose values are sentences"""
_LONG = 4000  # of a text without a blank: an archive as base64, which has the code of the product


class Normal:
    """Replaces paths by names, and dates and hashes by what they are."""

    def __init__(self, places: Mapping[str, str]):
        # the longest first, for one place may lie in another one
        self.places = sorted(places.items(), key=lambda place: -len(place[0]))

    def text(self, text: str) -> str:
        for place, name in self.places:
            text = text.replace(place, name)
        for pattern, name in _CHANGING_TEXTS:
            text = pattern.sub(name, text)
        return "BASE64" if len(text) > _LONG and not re.search(r"\s", text[:_LONG]) else text

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float):
            return float(f"{value:.12g}") if math.isfinite(value) else str(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._of_key(key, v) for key, v in value.items() if key not in _CHANGING}
        if isinstance(value, Sequence):
            return [self.value(v) for v in value]
        return value

    def _of_key(self, key: Any, value: Any) -> Any:
        """Of sentences whether there are any and which numbers are in them; of remedies the former alone."""
        texts = [value] if isinstance(value, str) else value
        if key not in _WORDS or not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return self.value(value)
        text = self.text("\n".join(texts))
        return {"given": bool(text), "numbers": {} if "fix" in key else numbers(text)}


def numbers(text: str) -> dict[str, int]:
    """The numbers in a text, as keys: a text that has more of them later has lost nothing."""
    return dict.fromkeys(_NUMBER.findall(text), 1)


def findings(listed: Sequence[Mapping[str, Any]], with_numbers: bool) -> dict[str, Any]:
    """By check and level how many there are, and which numbers are in their messages. The words may change."""
    by_check: dict[str, Any] = {}
    for finding in listed:
        entry = by_check.setdefault(f"{finding['check']} {finding['level']}", {"count": 0})
        entry["count"] += 1
        entry["with_fix"] = entry.get("with_fix", 0) + bool(finding.get("fix"))
        if with_numbers:
            entry["numbers"] = entry.get("numbers", {}) | numbers(finding["message"])
    return by_check


def page(text: str) -> dict[str, Any]:
    """The numbers below each heading of a Markdown page, and how many figures and rows of tables there are."""
    sections: dict[str, Any] = {}
    heading = "top"
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        section = sections.setdefault(heading, {"numbers": {}, "rows": 0, "figures": 0})
        section["numbers"] |= numbers(line)
        section["rows"] += line.startswith("|")
        section["figures"] += line.count("![") + line.count("<img")
    return sections


def document(text: str) -> Any:
    """The JSON document that a verb printed; None for none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
