"""Whether prompts and worked answers fit the lengths of a recipe: what a run refuses, what it leaves out, and which lengths are enough for all.

A run counts everything, a plan a sample of what is much. Nothing here needs JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from podwright.errors import UserError
from podwright.recipe import positions
from podwright.recipe.schema import Rollout


@dataclasses.dataclass(frozen=True)
class PromptTokens:
    """Tokens of the prompts of one part of the data."""

    part: str
    """training or test"""
    total: int
    """prompts of the part"""
    counted: Sequence[int]
    """of every prompt, or of some that stand for all"""


@dataclasses.dataclass(frozen=True)
class TokenLimits:
    """The lengths of a recipe and of the data that they are for."""

    rollout: Rollout
    max_positions: int
    parts: Sequence[PromptTokens]
    lessons: Sequence[tuple[int, int]] = ()
    """tokens of prompt and of worked answer, its stop token included, of training examples; () without a warm start"""

    def require(self) -> None:
        """UserError for a part of which no prompt fits, and for a warm start of which no worked answer does."""
        limit = self.rollout.max_prompt_length
        for part in self.parts:
            if (least := min(part.counted)) > limit:
                what = f"no {part.part} prompt fits rollout.max_prompt_length={limit}: the shortest of {part.total:,} has {least} tokens"
                raise UserError(f"{what}, the longest {max(part.counted)}", self.remedy(), "too-long")
        if not self._taken(limit, self.rollout.total_generation_steps):
            shortest = min(n for _, n in self.lessons)
            what = f"no worked answer of the warm start fits rollout.total_generation_steps={self.rollout.total_generation_steps}"
            raise UserError(
                f"{what} and its prompt {limit} tokens: the shortest has {shortest}", self.remedy(), "too-long"
            )

    def left_out(self) -> list[str]:
        """What a run leaves out, as `3 of 8 training prompts (37.5%)`; of a sample an estimate."""
        limit, steps = self.rollout.max_prompt_length, self.rollout.total_generation_steps
        over = []
        for part in self.parts:
            over.append(_scaled(part.part + " prompts", [n > limit for n in part.counted], part.total))
        if self.lessons:
            long = [prompt > limit or answer > steps for prompt, answer in self.lessons]
            over.append(_scaled("answers of the warm start", long, self.parts[0].total))
        return list(filter(None, over))

    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(max(part.counted) for part in self.parts)

    def enough(self) -> str:
        """Overrides with which everything fits, or as much as the model has positions for."""
        return positions.typed(self.rollout, *self._possible())

    def _possible(self) -> tuple[int, int]:
        answer = max((answer for _, answer in self.lessons), default=0)
        return positions.possible(self.rollout, self.max_positions, self.longest(), answer)

    def _taken(self, prompt: int, completion: int) -> bool:
        """Whether some of everything fits these lengths."""
        lessons = any(p <= prompt and n <= completion for p, n in self.lessons) or not self.lessons
        return lessons and all(min(part.counted) <= prompt for part in self.parts)

    def remedy(self) -> str:
        """Lengths that are refused no more, for all of the data at once; shorter data, where the model has no positions for any."""
        if self._taken(*self._possible()):
            return f"type {self.enough()}"
        return f"give shorter examples, or a model with more than {self.max_positions:,} positions"


def _scaled(what: str, over: Sequence[bool], total: int) -> str:
    """`3 of 8 WHAT (37.5%)`; "" for none."""
    number = round(total * sum(over) / len(over))
    return f"{number:,} of {total:,} {what} ({100 * number / total:.3g}%)" if number else ""
