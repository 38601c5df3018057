"""The words around a made-up sum: who has what, what happens to it, and what is asked."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Step:
    operation: str
    """one of + - *"""
    number: int

    def apply(self, value: int) -> int:
        return {"+": value + self.number, "-": value - self.number, "*": value * self.number}[self.operation]


@dataclasses.dataclass(frozen=True)
class Theme:
    item: str
    """in the singular; the plural adds an s"""
    gains: tuple[str, ...]
    losses: tuple[str, ...]


_THEMES = (
    Theme("apple", ("picks {n} more", "buys {n} more"), ("eats {n}", "gives away {n}")),
    Theme("card", ("wins {n} more", "gets {n} more"), ("loses {n}", "gives away {n}")),
    Theme("coin", ("finds {n} more", "earns {n} more"), ("spends {n}", "loses {n}")),
    Theme("egg", ("finds {n} more", "buys {n} more"), ("breaks {n}", "sells {n}")),
    Theme("book", ("buys {n} more", "gets {n} more"), ("sells {n}", "gives away {n}")),
    Theme("shell", ("finds {n} more", "picks {n} more"), ("breaks {n}", "loses {n}")),
    Theme("cake", ("makes {n} more", "buys {n} more"), ("sells {n}", "eats {n}")),
    Theme("stamp", ("gets {n} more", "buys {n} more"), ("loses {n}", "sells {n}")),
)
_NAMES = (
    "Tom",
    "Ann",
    "Ben",
    "Eva",
    "Sam",
    "Mia",
    "Leo",
    "Zoe",
    "Max",
    "Lily",
    "Omar",
    "Nina",
    "Ravi",
    "Kim",
    "Ivan",
    "Rosa",
)
_STARTS = ("{name} has {n} {items}.", "{name} starts with {n} {items}.")
_THEN = ("{name} {happens}.", "Then {name} {happens}.")
_TIMES = ("{name} now has {n} times as many.", "The {item}s become {n} times as many.")
_ASKS = ("How many {item}s does {name} have?", "How many {item}s does {name} have now?")


def tell(start: int, steps: Sequence[Step], rng: random.Random) -> str:
    """A question whose answer is `start` after all `steps`; a sentence for each number and one that asks."""
    theme, name = rng.choice(_THEMES), rng.choice(_NAMES)
    words = {"name": name, "item": theme.item}
    items = theme.item if start == 1 else f"{theme.item}s"
    sentences = [rng.choice(_STARTS).format(n=start, items=items, **words)]
    for step in steps:
        if step.operation == "*":
            sentences.append(rng.choice(_TIMES).format(n=step.number, **words))
        else:
            happens = rng.choice(theme.gains if step.operation == "+" else theme.losses).format(n=step.number)
            sentences.append(rng.choice(_THEN).format(happens=happens, **words))
    return " ".join([*sentences, rng.choice(_ASKS).format(**words)])
