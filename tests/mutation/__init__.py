"""Mutation testing: whether the tests notice a small wrong change of the product. `python -m tests.mutation --help` has the options."""
