"""A sampler whose completions are written in the test; everything around it is real: prompts, tokenizer, mesh, rewards."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.train.grpo import program, prompts
from podwright.train.grpo.rollout import Completions
from podwright.train.mesh import gather, to_device
from podwright.train.program import Program
from tests.unit.train import small

TOKENIZER = Tokenizer.bytes()
STOP = TOKENIZER.end_id
LONGEST_PROMPT, LONGEST = 96, 16
Text = Callable[[str, int, int], str]
"""(question, completion of its group, rollout of the run) -> what is answered; with "..." at its end it ran out of tokens"""


def setup(*overrides: str, mesh: tuple[int, int, int] = (1, 1, 1)) -> program.GrpoSetup:
    sizes = [f"rollout.max_prompt_length={LONGEST_PROMPT}", f"rollout.total_generation_steps={LONGEST}"]
    return small.setup("batch_size=4", "warm_start=null", *sizes, *overrides, mesh=mesh)


def questions(num: int) -> list[Example]:
    return [Example(f"{n}+1?", str(n + 1), f"#### {n + 1}") for n in range(num)]


def encoded(s: program.GrpoSetup, num: int) -> prompts.Prompts:
    return prompts.tokenized(questions(num), TOKENIZER, s.recipe.data).fitting(LONGEST_PROMPT, TOKENIZER.pad_id)


def sampler(s: program.GrpoSetup, asked: prompts.Prompts, generations: int, text: Text, rows: int = 0) -> Program:
    """Its log-probabilities are 1000 x rollout + 10 x question + completion + token / 100, so that a test sees where each is from.

    After the end of a completion come letters, which nothing may read.
    """

    def step(params: object, tokens: jax.Array, lengths: jax.Array, number: np.int32) -> Completions:
        places = [_place(asked, row, n) for row, n in zip(gather(tokens), gather(lengths), strict=True)]
        shape = (len(places), generations)
        made = np.full((*shape, LONGEST), ord("x"), np.int32)
        logps, lengths_PG, stopped = np.zeros(made.shape, np.float32), np.zeros(shape, np.int32), np.ones(shape, bool)
        for p, place in enumerate(places):
            for g in range(generations):
                words = text(asked.examples[place].question, g, int(number))
                stopped[p, g] = not words.endswith("...")
                ids = TOKENIZER.encode(words.removesuffix("...")) + [STOP] * bool(stopped[p, g])
                assert len(ids) <= LONGEST
                made[p, g, : len(ids)], lengths_PG[p, g] = ids, len(ids)
                logps[p, g] = 1000 * number + 10 * place + g + np.arange(LONGEST) / 100
        return Completions(*(to_device(x, s.mesh) for x in (made, logps, lengths_PG, stopped)))

    abstract = jax.ShapeDtypeStruct((rows or s.recipe.batch_size, LONGEST_PROMPT), jnp.int32)
    return Program("rollout", step, (None, abstract))


def _place(asked: prompts.Prompts, row: np.ndarray, length: int) -> int:
    (places,) = np.nonzero((asked.tokens_NS == row).all(1))
    assert len(places) == 1 and asked.lengths_N[places[0]] == length
    return int(places[0])


def varied(prompts: list[str], completions: list[str], *, question: list[str], **columns: list[str]) -> list[float]:
    """A reward by which groups of every other question differ, whatever a model that has learnt nothing answers."""
    return [len(text) / 10 if len(q) % 2 else 0.0 for text, q in zip(completions, question, strict=True)]
