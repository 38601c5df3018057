"""Which kind of `data.columns` a text such as {question: q, answer: a} is, where no recipe says it."""

from __future__ import annotations

from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from podwright.errors import UserError
from podwright.recipe.contrastive import PairColumns
from podwright.recipe.multimodal import LineColumns
from podwright.recipe.pretrain import TextColumns
from podwright.recipe.schema import GrpoColumns
from podwright.recipe.yaml_file import Loader

_KINDS: tuple[Any, ...] = (GrpoColumns, TextColumns, PairColumns, LineColumns)


def parse(option: str, text: str) -> GrpoColumns | TextColumns | dict[str, str]:
    """The columns that the first kind of recipe with these fields would have, those of lines as field -> column; UserError where there is
    none."""
    try:
        value = yaml.load(text, Loader)
    except yaml.YAMLError:
        value = None
    for kind in _KINDS if value else ():
        try:
            columns: GrpoColumns | TextColumns | dict[str, str] = TypeAdapter(kind).validate_python(value)
        except ValidationError:
            continue
        return columns
    what = f"{option} {text} is not what data.columns of any recipe may be"
    raise UserError(what, f"type {option} '{{question: COLUMN, answer: COLUMN}}'", "bad-value")


def of_text(option: str, text: str) -> TextColumns | None:
    """The column of texts; None for "". UserError for columns of another kind of recipe."""
    if not text:
        return None
    columns = parse(option, text)
    if isinstance(columns, TextColumns):
        return columns
    raise UserError(f"{option} {text} names no column of texts", f"type {option} '{{text: COLUMN}}'", "bad-value")
