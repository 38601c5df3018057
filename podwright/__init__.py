"""Podwright trains LLMs from recipes on the accelerators you have and writes an evaluated report."""

__version__ = "0.1.0"
