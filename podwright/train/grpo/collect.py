"""From prompts to a batch with advantages: rollouts on the device, rewards on the host, groups chosen and put together.

Every process rewards completions that live on its own devices, each completion one process; the small matrices of rewards
are then made known to all, so that every process takes the same decisions. Shape suffixes: P prompts, G completions per prompt, T tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from podwright.data.tokenizer import Tokenizer
from podwright.models.qwen3 import Group
from podwright.recipe.schema import GrpoRecipe
from podwright.train.grpo import loss, reward
from podwright.train.grpo.program import GrpoBatch, GrpoSetup
from podwright.train.grpo.prompts import Prompts, bucket
from podwright.train.grpo.rollout import Completions
from podwright.train.mesh import batch_sharding, combined, gather, gathered, own_rows, to_device, together
from podwright.train.program import Program


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One rollout of a batch of prompts, and what its completions earned."""

    group: Group
    completions: Completions
    rewards: dict[str, np.ndarray]
    """by function, [P, G] float32, unweighted"""
    total_PG: np.ndarray
    lengths_PG: np.ndarray
    stopped_PG: np.ndarray
    prompt_lengths_P: np.ndarray
    own_s: float
    """of this process alone: decoding and rewarding what it answers for"""


@dataclasses.dataclass(frozen=True)
class Collector:
    setup: GrpoSetup
    programs: dict[str, Program]
    prompts: Prompts
    tokenizer: Tokenizer
    rewards: list[reward.LoadedReward]
    zeros: Collection[reward.Row] = ()
    """for which a reward did not return in an earlier attempt: they count as 0.0"""

    def sample(self, params: Any, used: int, number: int) -> Sampled:
        """Rollout `number` of the run, on the questions that follow the first `used`."""
        recipe = self.setup.recipe
        chosen = self.prompts.take(self.prompts.indices(used, recipe.batch_size, recipe.seed))
        tokens = to_device(chosen.tokens_NS, self.setup.mesh)
        lengths = to_device(chosen.lengths_N, self.setup.mesh)
        completions = self.programs["rollout"](params, tokens, lengths, np.int32(number))
        rewards, own_s = self._score(chosen, completions)
        total = sum(r.weight * rewards[r.name] for r in self.rewards)
        return Sampled(
            Group(tokens, lengths, completions.tokens_PGT),
            completions,
            rewards,
            np.asarray(total, np.float32),
            gather(completions.lengths_PG),
            gather(completions.stopped_PG),
            chosen.lengths_N,
            own_s,
        )

    def _score(self, chosen: Prompts, completions: Completions) -> tuple[dict[str, np.ndarray], float]:
        """Each reward of every completion, [P, G], on every process; and the seconds that this one took for its own."""
        shape = jax.block_until_ready(completions).lengths_PG.shape
        begin = time.perf_counter()
        texts = own_texts(completions, self.tokenizer)
        mine = sorted(texts)
        columns = {
            name: [getattr(chosen.examples[p], name) for p in mine for _ in range(shape[1])]
            for name in ("question", "answer", "solution")
        }
        prompts = [chosen.texts[p] for p in mine for _ in range(shape[1])]
        known = {r.name: np.zeros(shape, np.float32) for r in self.rewards}
        timeout = None
        with together():
            completed = [text for p in mine for text in texts[p]]
            try:
                # A process whose devices hold only copies of what others reward has nothing to ask.
                scored = reward.score(self.rewards, prompts, completed, columns, self.zeros) if mine else {}
            except reward.RewardTimeout as e:
                timeout = e.record
            own_s = time.perf_counter() - begin
        if timeout := next(filter(None, gathered(timeout)), None):
            raise reward.RewardTimeout(timeout)
        for name, values in scored.items():
            known[name][mine] = np.asarray(values, np.float32).reshape(len(mine), shape[1])
        return {name: combined(rows) for name, rows in known.items()}, own_s

    def collect(self, params: Any, used: int, number: int) -> tuple[Sampled, int]:
        """A batch worth learning from, and how many rollouts it took.

        With dynamic sampling, groups that teach nothing give way to groups of further rollouts.
        """
        recipe = self.setup.recipe
        size = recipe.batch_size
        rounds = [self.sample(params, used, number)]
        uneven = advantages(rounds[0], recipe).any(axis=1)
        while len(rounds) <= recipe.grpo.dynamic_sampling and uneven.sum() < size:
            n = len(rounds)
            rounds.append(self.sample(params, used + n * size, number + n))
            uneven = np.concatenate([uneven, advantages(rounds[n], recipe).any(axis=1)])
        order = np.argsort(~uneven, kind="stable")[:size] if len(rounds) > 1 else np.arange(size)
        return self._merge(rounds, order), len(rounds)

    def _merge(self, rounds: list[Sampled], order: np.ndarray) -> Sampled:
        """The groups `order` of all rounds as one batch, cut to as many token columns as its longest completion needs."""
        longest = int(np.concatenate([r.lengths_PG for r in rounds])[order].max())
        num = bucket(longest, self.setup.recipe.rollout.total_generation_steps)

        parts = tuple((r.group, r.completions) for r in rounds)
        group, completions = _join(parts, order, num, batch_sharding(self.setup.mesh))
        names = ("total_PG", "lengths_PG", "stopped_PG", "prompt_lengths_P")
        host = {name: np.concatenate([getattr(r, name) for r in rounds])[order] for name in names}
        rewards = {name: np.concatenate([r.rewards[name] for r in rounds])[order] for name in rounds[0].rewards}
        return Sampled(group, completions, rewards, **host, own_s=sum(r.own_s for r in rounds))

    def batch(
        self, sampled: Sampled, advantages_PG: np.ndarray, old: Array | None, reference: Array | None
    ) -> GrpoBatch:
        mesh = self.setup.mesh
        return GrpoBatch(
            sampled.group,
            sampled.completions.lengths_PG,
            to_device(counted(sampled, self.setup.recipe), mesh),
            to_device(advantages_PG, mesh),
            sampled.completions.logps_PGT,
            old,
            reference,
        )


@functools.partial(jax.jit, static_argnums=(2, 3))
def _join(parts: Any, order: np.ndarray, num: int, sharding: jax.sharding.NamedSharding) -> Any:
    """Rows `order` of the concatenated parts, their first `num` token columns."""

    def pick(*arrays: Array) -> Array:
        rows = jnp.concatenate(arrays)[order] if len(arrays) > 1 else arrays[0]
        return jax.lax.with_sharding_constraint(rows[:, :, :num] if rows.ndim == 3 else rows, sharding)

    return jax.tree.map(pick, *parts)


def own_texts(completions: Completions, tokenizer: Tokenizer) -> dict[int, list[str]]:
    """Row of the batch -> texts of its completions, for the rows that this process answers for."""
    lengths = own_rows(completions.lengths_PG)
    stopped = own_rows(completions.stopped_PG)
    texts = {}
    for p, tokens_GT in own_rows(completions.tokens_PGT).items():
        ends = lengths[p] - stopped[p]  # the stop token is not part of the text
        texts[p] = [tokenizer.decode(row[:end].tolist()) for row, end in zip(tokens_GT, ends, strict=True)]
    return texts


def counted(sampled: Sampled, recipe: GrpoRecipe) -> np.ndarray:
    """Which completions are in the loss, [P, G] bool."""
    counted_PG: np.ndarray = sampled.stopped_PG | (not recipe.grpo.mask_truncated)
    return counted_PG


def advantages(sampled: Sampled, recipe: GrpoRecipe) -> np.ndarray:
    """[P, G] float32, after the length penalty; 0 where a completion is not in the loss, and all 0 in a group that teaches nothing.

    The one test of it, for updates, dynamic sampling and figures.
    """
    limit, buffer = recipe.rollout.total_generation_steps, recipe.grpo.overlong_buffer
    return counted(sampled, recipe) * loss.advantages(
        sampled.total_PG + loss.overlong_penalty(sampled.lengths_PG, limit, buffer), recipe.grpo.loss
    )


def figures(sampled: Sampled, advantages_PG: np.ndarray, recipe: GrpoRecipe) -> dict[str, Any]:
    """What metrics.jsonl says of a batch of completions."""
    equal_P = ~advantages_PG.any(axis=1)
    return {
        "reward": sampled.total_PG.mean(),
        **{f"reward/{name}": values.mean() for name, values in sampled.rewards.items()},
        "advantage_std": advantages_PG.std(),
        "frac_reward_zero_std": equal_P.mean(),
        "frac_masked": 1 - counted(sampled, recipe).any(axis=1).mean(),
        "equal_reward": sampled.total_PG[equal_P].mean() if equal_P.any() else None,
        "completion_length": sampled.lengths_PG.mean(),
        "completion_length_max": int(sampled.lengths_PG.max()),
        "completion_clipped": 1 - sampled.stopped_PG.mean(),
    }


class Clock:
    """Seconds of a step by phase; a phase ends when its arrays are there, not when they were asked for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = self._start = time.perf_counter()

    def mark(self, phase: str, wait_for: Any = None) -> None:
        jax.block_until_ready(wait_for)
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def total(self) -> float:
        return self._last - self._start
