"""WHAT a run does: typed recipes, model dimensions, and how files and overrides become one of them."""
