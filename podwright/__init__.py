"""Podwright takes an LLM training recipe to a measured, written-up result on the accelerators you have."""

__version__ = "0.1.0"
