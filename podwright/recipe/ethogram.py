"""The shipped schema of answers about cats (recipes/answers/ethogram.yaml), by the names that made-up cats fill in."""

from __future__ import annotations

from podwright.recipe import answers

SCHEMA = answers.of(answers.DEFAULT)
MARKERS, CLASSIFICATION = "diagnostic.physical_markers", "diagnostic.classification"
RISK = f"{CLASSIFICATION}.risk_rating"
CHOICES = {field: tuple(map(str, values)) for field, values in SCHEMA.options.items() if not SCHEMA.is_rating(field)}
