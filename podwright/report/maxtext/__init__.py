"""The write-up of a training log of MaxText: what was measured, which steps count, and the README that is extended."""
