"""A bash script of somebody else, run where it can reach nothing: what it would have called, argument for argument."""
