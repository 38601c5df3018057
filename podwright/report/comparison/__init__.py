"""Runs side by side: what differs, what may be compared, how it looks."""
