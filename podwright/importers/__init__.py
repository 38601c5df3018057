"""Configuration of other programs as recipes: a table of keys for each program, and functions for what a table cannot say."""
