"""The texts of a report in English and Chinese. What the product writes keeps what it is made of; nothing is translated afterwards."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from podwright.report.wording import DASH, decimals, share, signed_percent, visible

LANGUAGES = ("en", "zh")


class _Formatter(string.Formatter):
    """None is a dash. Besides Python's specifications `d1` to `d3` are decimals, `share` is in percent, and `change` has a sign too."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return DASH
        if format_spec in ("d1", "d2", "d3"):
            return decimals(value, int(format_spec[1]))
        if format_spec in ("share", "change"):
            return share(value) if format_spec == "share" else signed_percent(value)
        return visible(value) if isinstance(value, str) else format(value, format_spec)


_FORMATTER = _Formatter()


class Sentence(str):
    """English text with its template and the values in it. Another language has a template of its own for the same values."""

    template: str
    values: Mapping[str, Any]

    def __new__(cls, template: str, **values: Any) -> Sentence:
        sentence = super().__new__(cls, _FORMATTER.vformat(template, (), values))
        sentence.template, sentence.values = template, values
        return sentence


@functools.cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """By key, and there by language. A key without a text in English is that text."""
    words: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text())
    return words


class Words:
    """The texts of one language."""

    def __init__(self, language: str = "en"):
        self.language = language

    def __call__(self, text: str, /, **values: Any) -> str:
        """`text` is a key of words.yaml or English. What has no text in this language is written in English."""
        if isinstance(text, Sentence):
            values = dict(text.values)
            text = text.template
        template = texts().get(text, {}).get(self.language, text)
        if values:
            inner = {name: self(value) if isinstance(value, Sentence) else value for name, value in values.items()}
            template = _FORMATTER.vformat(template, (), inner)
        if self.language != "en":
            return template
        return re.sub(r"(?<![\d,.])1 (more )?(step|line|attempt)s\b", r"1 \1\2", template)
