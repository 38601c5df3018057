"""Plots: how series become small SVG figures."""
