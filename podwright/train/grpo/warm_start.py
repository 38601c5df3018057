"""Supervised steps on worked answers, so that a model from random weights has something for GRPO to choose from.

The last third of the steps may mix in bare results (`terse_share`): the model then has two habits, working and guessing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models.qwen3 import Group
from podwright.train.emit import Emitter
from podwright.train.grpo import program, prompts
from podwright.train.grpo.collect import Clock
from podwright.train.grpo.program import GrpoSetup
from podwright.train.grpo.prompts import bucket, pad
from podwright.train.mesh import to_device
from podwright.train.program import Program

Tree = Any


class Lessons(NamedTuple):
    """Questions with their answers, worked and bare; both answers end in the stop token."""

    prompts_NS: np.ndarray
    prompt_lengths_N: np.ndarray
    answers_2NT: np.ndarray
    """worked, then bare"""
    lengths_2N: np.ndarray

    def draw(self, rng: np.random.Generator, size: int, terse_share: float) -> tuple[np.ndarray, ...]:
        """`size` lessons: prompts, their lengths, answers, their lengths; each answer is bare with that probability."""
        n = rng.integers(0, len(self.prompts_NS), size)
        bare = (rng.random(size) < terse_share).astype(int)
        return self.prompts_NS[n], self.prompt_lengths_N[n], self.answers_2NT[bare, n], self.lengths_2N[bare, n]


def train(
    setup: GrpoSetup,
    step: Program,
    params: Tree,
    examples: list[Example],
    tokenizer: Tokenizer,
    emit: Emitter,
    stopping: Callable[[], bool],
    stepped: Callable[[int], None],
) -> Tree | None:
    """The weights after the warm start; None when stopped on the way (it is short: a resume starts it again).

    `stepped` is called after each step, with the steps of the run so far: none.
    """
    warm = setup.recipe.warm_start
    assert warm
    emit.event("phase", phase="warm_start")
    lessons = _lessons(setup, examples, tokenizer)
    if left_out := len(examples) - len(lessons.prompts_NS):
        limits = setup.recipe.rollout
        message = (
            f"{left_out} of {len(examples)} worked answers are left out of the warm start: longer than "
            f"{limits.total_generation_steps} tokens, or their prompt than {limits.max_prompt_length}"
        )
        emit.notice(message)
    schedule = program.warm_schedule(setup.recipe)
    state = program.new_state(setup.dense, params)
    for number in range(1, warm.max_steps + 1):
        if stopping():
            return None
        clock = Clock()
        share = warm.terse_share if number > warm.max_steps * 2 / 3 else 0.0
        drawn = lessons.draw(np.random.default_rng([setup.recipe.seed, number]), warm.batch_size, share)
        tokens, prompt_lengths, answers, lengths = (to_device(x, setup.mesh) for x in drawn)
        rate = np.float32(schedule(number - 1))
        state, measured = step(state, Group(tokens, prompt_lengths, answers[:, None]), lengths[:, None], rate)
        figures = {name: float(x) for name, x in measured.items()}
        clock.mark("step_s", jax.block_until_ready(state))
        figures |= {"learning_rate": float(rate), "tokens_per_s": int(drawn[3].sum()) / clock.total()}
        emit.metrics("warm_start", number, figures | clock.seconds)
        stepped(0)
        if not np.isfinite([figures["loss"], figures["grad_norm"]]).all():
            wrong = f"step {number} of the warm start: loss={figures['loss']:g}, grad_norm={figures['grad_norm']:g}"
            fix = f"type a lower warm_start.learning_rate than {warm.learning_rate:g}"
            if not any(schedule(n) for n in range(number - 1)):
                wrong += "; no update had changed the weights yet, so it is not the learning rate"
                fix = "start from other weights: type model.source=DIRECTORY with another one"
            raise UserError(wrong, fix, "not-finite")
    return state.params


def _lessons(setup: GrpoSetup, examples: list[Example], tokenizer: Tokenizer) -> Lessons:
    """The examples whose prompt and worked answer fit the recipe's lengths; a run has some, or is refused before."""
    limits = setup.recipe.rollout
    encoded = prompts.tokenized(examples, tokenizer, setup.recipe.data).rows
    worked = prompts.worked_answers(examples, tokenizer)
    bare = [[*tokenizer.encode(f"#### {e.answer}"), setup.stop_ids[0]] for e in examples]
    limit = limits.max_prompt_length
    fit = [n for n, row in enumerate(encoded) if len(row) <= limit and len(worked[n]) <= limits.total_generation_steps]
    columns = bucket(max(len(worked[n]) for n in fit), limits.total_generation_steps)
    prompts_NS, prompt_lengths_N = _padded([encoded[n] for n in fit], limit, setup.pad_id)
    answers = [_padded([rows[n] for n in fit], columns, setup.pad_id) for rows in (worked, bare)]
    answers_2NT, lengths_2N = (np.stack(arrays) for arrays in zip(*answers, strict=True))
    return Lessons(prompts_NS, prompt_lengths_N, answers_2NT, lengths_2N)


def _padded(rows: list[list[int]], length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    return pad(rows, length, pad_id), np.array([len(row) for row in rows], np.int32)
