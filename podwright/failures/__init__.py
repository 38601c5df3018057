"""Failures that are known by their texts, as data: in which text each is seen, which ending it is, its cause and its remedy."""
