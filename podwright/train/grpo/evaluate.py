"""The test: greedy, one answer a question, every question of the test set; graded by the extractor the rewards use."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from podwright.data.tokenizer import Tokenizer
from podwright.recipe.answer_numbers import extract_flexible
from podwright.rundir import write_json
from podwright.train.emit import Emitter
from podwright.train.grpo import grading
from podwright.train.grpo.collect import own_texts
from podwright.train.grpo.program import GrpoSetup
from podwright.train.grpo.prompts import Prompts
from podwright.train.grpo.rollout import Completions
from podwright.train.mesh import combined, gather, own_rows, to_device
from podwright.train.program import Program

NUM_SAMPLES = 8


@dataclasses.dataclass(frozen=True)
class Evaluator:
    setup: GrpoSetup
    program: Program
    prompts: Prompts
    tokenizer: Tokenizer
    stopping: Callable[[], bool] = lambda: False

    def run(self, params: Any) -> tuple[dict[str, Any], list[bool], list[dict[str, Any]]] | None:
        """(figures as in the `evaluation` event, strict correctness by question, the first few answers in full).

        None when `stopping()` turned true on the way.
        """
        start = time.perf_counter()
        rows = self.program.arguments[1].shape[0]
        grades: list[np.ndarray] = []
        samples: list[dict[str, Any]] = []
        for first in range(0, len(self.prompts), rows):
            if self.stopping():
                return None
            indices = np.arange(first, min(first + rows, len(self.prompts)))
            filled = np.concatenate([indices, np.full(rows - len(indices), indices[0])])  # the last batch is filled up
            out, grade = self._answer(params, self.prompts.take(filled))
            grades.append(grade[: len(indices)])
            if len(samples) < NUM_SAMPLES:
                samples += self._samples(out, indices[: NUM_SAMPLES - len(samples)])
        strict, flexible, stopped, lengths = np.concatenate(grades).T
        figures = grading.summary(strict.tolist(), flexible.tolist(), (1 - stopped).tolist(), lengths.tolist())
        return figures | {"seconds": time.perf_counter() - start}, [bool(x) for x in strict], samples

    def _answer(self, params: Any, prompts: Prompts) -> tuple[Completions, np.ndarray]:
        """The completions, and int32 [P, 4]: strict, flexible, stopped, tokens. Every process grades its own rows."""
        mesh = self.setup.mesh
        out = self.program(params, to_device(prompts.tokens_NS, mesh), to_device(prompts.lengths_N, mesh), np.int32(0))
        texts = own_texts(out, self.tokenizer)
        lengths = own_rows(out.lengths_PG)
        stopped = own_rows(out.stopped_PG)
        grades = np.zeros((len(prompts), 4), np.int32)
        for p, (text,) in texts.items():
            strict, flexible = grading.grade_one(text, prompts.examples[p].answer)
            grades[p] = strict, flexible, stopped[p][0], lengths[p][0]
        return out, combined(grades)

    def _samples(self, out: Completions, indices: np.ndarray) -> list[dict[str, Any]]:
        """The first completions, those of the questions `indices`, the same in every process."""
        tokens, lengths, stopped = (gather(x)[:, 0] for x in (out.tokens_PGT, out.lengths_PG, out.stopped_PG))
        samples = []
        for p, index in enumerate(indices):
            example = self.prompts.examples[index]
            text = self.tokenizer.decode(tokens[p, : lengths[p] - stopped[p]].tolist())
            sample = {"question": example.question, "answer": example.answer, "completion": text}
            if example.system:
                sample["system"] = example.system
            correct = grading.grade_one(text, example.answer)[0]
            samples.append(sample | {"extracted": extract_flexible(text), "correct": correct})
        return samples


def report(evaluator: Evaluator, params: Any, emit: Emitter, when: str, step: int) -> bool:
    """Evaluates and writes it down (unless stopped on the way): samples, the flags for the paired test, and last the event.

    The event says that the rest is written: a resume repeats what has none. False when stopped on the way."""
    emit.event("phase", phase="evaluation")
    if (outcome := evaluator.run(params)) is None:
        return False
    figures, strict, samples = outcome
    if when != "during":
        emit.samples([{"when": when} | sample for sample in samples])
        if emit.mine:
            write_json(emit.run.flags(when), strict)
    emit.event("evaluation", when=when, step=step, **figures)
    return True
