"""WHAT IS HAPPENING: measurements as they come in, the live view, logs, and why a trainer died."""
