"""The words around a made-up sum: who has what, what happens to it, and what is asked."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from podwright.recipe.yaml_file import facts


@dataclasses.dataclass(frozen=True)
class Step:
    operation: str
    """one of + - *"""
    number: int

    def apply(self, value: int) -> int:
        return {"+": value + self.number, "-": value - self.number, "*": value * self.number}[self.operation]


_WORDS = facts(__file__)


def tell(start: int, steps: Sequence[Step], rng: random.Random) -> str:
    """A question whose answer is `start` after all `steps`; a sentence for each number and one that asks."""
    theme, name = rng.choice(_WORDS["themes"]), rng.choice(_WORDS["names"])
    words = {"name": name, "item": theme["item"]}
    items = theme["item"] if start == 1 else f"{theme['item']}s"
    sentences = [rng.choice(_WORDS["starts"]).format(n=start, items=items, **words)]
    for step in steps:
        if step.operation == "*":
            sentences.append(rng.choice(_WORDS["times"]).format(n=step.number, **words))
            continue
        changes = theme["gains"] if step.operation == "+" else theme["losses"]
        happens = rng.choice(changes).format(n=step.number)
        sentences.append(rng.choice(_WORDS["then"]).format(happens=happens, **words))
    return " ".join([*sentences, rng.choice(_WORDS["asks"]).format(**words)])
