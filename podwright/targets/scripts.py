"""The scripts of templates/, filled in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

_TEMPLATES = Path(__file__).with_name("templates")


def filled(name: str, values: dict[str, Any], **filters: Callable[[str], str]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= filters
    return environment.get_template(name).render(values)
