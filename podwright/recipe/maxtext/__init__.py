"""Recipes of MaxText: what one holds, and how one is read from the script that submits it."""
