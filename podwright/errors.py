"""The one exception that a user sees as a single line instead of a traceback."""


class UserError(Exception):
    """Something the user typed or supplied is wrong.

    `what` says what is wrong with the value; `fix` says what to type instead.
    """

    def __init__(self, what: str, fix: str):
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix


def nearest(name: str, known: list[str]) -> str:
    """The `known` name closest to `name`, or "" when nothing is close."""
    import difflib

    matches = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return matches[0] if matches else ""
