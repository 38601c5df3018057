"""From completions to a batch: which groups stay, what rewards add up to, and what leaves the loss; all completions are written here."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from podwright.train.grpo import collect
from podwright.train.grpo.collect import Clock, Collector
from podwright.train.grpo.reward import LoadedReward
from podwright.train.mesh import gather
from tests.unit.train import scripted

G = 2


def right(prompts, completions, *, answer, **columns):
    return [float(text.endswith(a)) for text, a in zip(completions, answer, strict=True)]


def length(prompts, completions, **columns):
    return [float(len(text)) for text in completions]


ONE = (LoadedReward("right", right, 1.0),)


def collector(text, *overrides, num=12, rewards=ONE, mesh=(1, 1, 1)):
    s = scripted.setup(f"grpo.num_generations={G}", *overrides, mesh=mesh)
    asked = scripted.encoded(s, num)
    sampler, numbers = scripted.sampler(s, asked, G, text), []

    def counted(params, tokens, lengths, number):
        numbers.append(int(number))
        return sampler(params, tokens, lengths, number)

    programs = {"rollout": dataclasses.replace(sampler, step=counted)}
    return Collector(s, programs, asked, scripted.TOKENIZER, list(rewards)), numbers


def drawn(c, used, rounds=1):
    """The questions that follow the first `used`, by their place in the data; of later rounds those after them."""
    size = c.setup.recipe.batch_size
    return c.prompts.indices(used, rounds * size, c.setup.recipe.seed)


def answer(question):
    return str(int(question.split("+")[0]) + 1)


@pytest.mark.parametrize("mesh", [(1, 1, 1), (1, 2, 2)], ids=str)
def test_rewards_are_added_up_by_their_weights_and_kept_without(mesh):
    """2.5 x right - 0.5 x length, of completions of 1 (right) and 3 characters (wrong)."""
    rewards = (LoadedReward("right", right, 2.5), LoadedReward("length", length, -0.5))
    c, numbers = collector(lambda q, g, _: answer(q) if g == 0 else "abc", num=8, rewards=rewards, mesh=mesh)
    sampled = c.sample(None, 4, 7)
    assert numbers == [7] and sampled.total_PG.dtype == np.float32
    np.testing.assert_array_equal(sampled.rewards["right"], [[1, 0]] * 4)
    np.testing.assert_array_equal(sampled.rewards["length"], [[1, 3]] * 4)
    np.testing.assert_array_equal(sampled.total_PG, [[2.0, -1.5]] * 4)
    np.testing.assert_array_equal(sampled.lengths_PG, [[2, 4]] * 4)  # with the stop token
    places = drawn(c, 4)
    np.testing.assert_array_equal(gather(sampled.group.prompts_PS), c.prompts.tokens_NS[places])
    np.testing.assert_array_equal(sampled.prompt_lengths_P, c.prompts.lengths_N[places])
    logps = gather(sampled.completions.logps_PGT)
    np.testing.assert_allclose(logps[:, :, 0], 7000 + 10 * places[:, None] + np.arange(G))


def test_every_reward_gets_the_columns_of_its_completions():
    seen = {}

    def columns(prompts, completions, *, question, answer, solution):
        seen.update(prompts=prompts, completions=completions, question=question, answer=answer, solution=solution)
        return [0.0] * len(completions)

    c, _ = collector(lambda q, g, _: f"{q}{g}", rewards=[LoadedReward("columns", columns, 1.0)])
    c.sample(None, 0, 0)
    examples = [c.prompts.examples[p] for p in drawn(c, 0) for _ in range(G)]
    assert seen["question"] == [e.question for e in examples] and seen["answer"] == [e.answer for e in examples]
    assert seen["solution"] == [e.solution for e in examples]
    assert seen["completions"] == [f"{e.question}{n % G}" for n, e in enumerate(examples)]
    assert seen["prompts"] == [c.prompts.texts[p] for p in drawn(c, 0) for _ in range(G)]


# By rollout and prompt, whether the rewards of a group differ
UNEVEN = {5: [True, False, False, True], 6: [False, True, False, False], 7: [True, True, False, False]}


def groups(*overrides):
    """A batch that is collected from question 8 and rollout 5 on; and of each of its groups, (rollout, place of its question).

    Of a group that is to be uneven the first completion is right alone; the others are all wrong, or all right by turns.
    """

    def text(question, g, number):
        p = [built.prompts.examples[n].question for n in drawn(built, 8 + 4 * (number - 5))].index(question)
        return answer(question) if (g == 0 if UNEVEN[number][p] else p % 2) else "no"

    built, numbers = collector(text, *overrides, num=24)
    sampled, rounds = built.collect(None, 8, 5)
    firsts = gather(sampled.completions.logps_PGT)[:, 0, 0]
    chosen = [divmod(round(float(x)), 1000) for x in firsts]
    return built, sampled, rounds, numbers, [(number, place // 10) for number, place in chosen]


def places(c, *rows):
    """(rollout, place of its question in the data) of (rollout, prompt)."""
    return [(number, int(drawn(c, 8 + 4 * (number - 5))[p])) for number, p in rows]


def test_without_dynamic_sampling_a_batch_is_one_rollout_as_it_came():
    c, sampled, rounds, numbers, chosen = groups()
    assert rounds == 1 and numbers == [5]
    assert chosen == places(c, (5, 0), (5, 1), (5, 2), (5, 3))
    np.testing.assert_array_equal(sampled.total_PG, [[1, 0], [1, 1], [0, 0], [1, 0]])


def test_groups_that_are_all_equal_give_way_to_uneven_ones_of_later_rollouts():
    """DAPO, section 3.2: sampling goes on until the batch is full of groups that are neither all right nor all wrong."""
    c, sampled, rounds, numbers, chosen = groups("grpo.dynamic_sampling=5")
    assert rounds == 3 and numbers == [5, 6, 7], "two and one uneven groups are not enough, two more are"
    assert chosen == places(c, (5, 0), (5, 3), (6, 1), (7, 0))
    np.testing.assert_array_equal(sampled.total_PG, [[1, 0]] * 4)
    np.testing.assert_array_equal(sampled.rewards["right"], [[1, 0]] * 4)
    rows = [place for _, place in chosen]
    np.testing.assert_array_equal(sampled.prompt_lengths_P, c.prompts.lengths_N[rows])
    np.testing.assert_array_equal(gather(sampled.group.prompts_PS), c.prompts.tokens_NS[rows])
    np.testing.assert_array_equal(gather(sampled.group.lengths_P), c.prompts.lengths_N[rows])
    np.testing.assert_array_equal(gather(sampled.completions.lengths_PG), sampled.lengths_PG)
    assert sampled.stopped_PG.all() and sampled.own_s > 0


def test_so_many_rollouts_are_added_as_are_allowed_and_no_more():
    """Then the batch is filled with the first of the groups that are all equal."""
    c, _, rounds, numbers, chosen = groups("grpo.dynamic_sampling=1")
    assert rounds == 2 and numbers == [5, 6]
    assert chosen == places(c, (5, 0), (5, 3), (6, 1), (5, 1))


def test_a_full_batch_takes_no_further_rollout():
    c, numbers = collector(lambda q, g, _: answer(q) if g else "no", "grpo.dynamic_sampling=3")
    sampled, rounds = c.collect(None, 0, 0)
    assert rounds == 1 and numbers == [0]
    np.testing.assert_array_equal(sampled.total_PG, [[0, 1]] * 4)


def test_groups_differ_by_all_that_advantages_are_of():
    """Completions near the limit differ by the length penalty alone: advantages, dynamic sampling and metrics count it alike."""
    c, numbers = collector(
        lambda q, g, _: "no" if g else "no, no, no...", "grpo.dynamic_sampling=1", "grpo.overlong_buffer=8"
    )
    sampled, rounds = c.collect(None, 0, 0)
    assert rounds == 1 and numbers == [0]
    advantages = collect.advantages(sampled, c.setup.recipe)
    assert (advantages[:, 0] < -0.5).all() and (advantages[:, 1] > 0.5).all()
    assert collect.figures(sampled, advantages, c.setup.recipe)["frac_reward_zero_std"] == 0


def test_sums_that_differ_by_rounding_are_equal_for_dynamic_sampling_and_metrics():
    """One unit of the last place apart in float32."""
    rewards = [
        LoadedReward(
            "a", lambda prompts, completions, **_: [float(n % 2) for n in range(len(completions))], 0.1 + 1e-8
        ),
        LoadedReward("b", lambda prompts, completions, **_: [1.0 - n % 2 for n in range(len(completions))], 0.1),
    ]
    c, _ = collector(lambda q, g, _: "1", "grpo.dynamic_sampling=2", rewards=rewards)
    sampled, rounds = c.collect(None, 0, 0)
    assert rounds == 3 and (np.ptp(sampled.total_PG, axis=1) > 0).all()
    advantages = collect.advantages(sampled, c.setup.recipe)
    assert not advantages.any() and collect.figures(sampled, advantages, c.setup.recipe)["frac_reward_zero_std"] == 1


def test_groups_whose_completions_are_all_cut_off_and_masked_teach_nothing():
    """Their rewards differ; of a group with one whole completion that one is in the loss, for advantages, dynamic sampling and figures."""
    masked = ("grpo.mask_truncated=true", "grpo.dynamic_sampling=2")
    c, _ = collector(lambda q, g, _: "no..." if g else f"{answer(q)}...", *masked)
    sampled, rounds = c.collect(None, 0, 0)
    advantages = collect.advantages(sampled, c.setup.recipe)
    figures = collect.figures(sampled, advantages, c.setup.recipe)
    assert rounds == 3 and not advantages.any() and (np.ptp(sampled.total_PG, axis=1) > 0).all()
    assert figures["frac_reward_zero_std"] == figures["frac_masked"] == 1
    c, _ = collector(lambda q, g, _: "no..." if g else answer(q), *masked)
    sampled, rounds = c.collect(None, 0, 0)
    advantages = collect.advantages(sampled, c.setup.recipe)
    figures = collect.figures(sampled, advantages, c.setup.recipe)
    assert rounds == 1 and (advantages[:, 0] > 0.5).all() and not advantages[:, 1].any()
    assert figures["frac_reward_zero_std"] == figures["frac_masked"] == 0


def test_a_batch_has_as_many_columns_as_its_longest_completion_needs():
    """Of 16 columns half as often as it still fits: 3 tokens need 4, 5 need 8, and 1 takes 2, an eighth."""
    for text, columns in (("ab", 4), ("abcd", 8), ("", 2), ("abcdefg", 8), ("abcdefgh", 16)):
        c, _ = collector(lambda q, g, _, text=text: text if g else "")
        sampled, _ = c.collect(None, 0, 0)
        tokens = gather(sampled.completions.tokens_PGT)
        assert tokens.shape == (4, G, columns)
        ids = [*text.encode(), scripted.STOP]
        assert tokens[0, 1, : len(ids)].tolist() == ids
        assert gather(sampled.completions.logps_PGT).shape == tokens.shape
        np.testing.assert_array_equal(gather(sampled.group.completions_PGT), tokens)


def test_advantages_are_of_rewards_after_the_length_penalty():
    """16 tokens at most and a buffer of 8: a completion of 12 loses half a point, one of 16 a whole one (DAPO, equation 13)."""
    c, _ = collector(lambda q, g, _: "12345678901" if g else "1234567890123456...", "grpo.overlong_buffer=8")
    sampled = c.sample(None, 0, 0)
    np.testing.assert_array_equal(sampled.lengths_PG, [[16, 12]] * 4)
    total = torch.tensor(sampled.total_PG) + torch.tensor([[-1.0, -0.5]] * 4)
    wanted = (total - total.mean(1, keepdim=True)) / (total.std(1, keepdim=True) + 1e-4)
    np.testing.assert_allclose(collect.advantages(sampled, c.setup.recipe), wanted, rtol=1e-5)
    plain = scripted.setup("grpo.loss=dr_grpo").recipe
    np.testing.assert_array_equal(
        collect.advantages(sampled, plain), sampled.total_PG - sampled.total_PG.mean(1, keepdims=True)
    )


@pytest.mark.parametrize("masked", [False, True])
def test_completions_that_ran_out_of_tokens_leave_the_loss_where_the_recipe_says_so(masked):
    c, _ = collector(lambda q, g, _: "2..." if g else "2", f"grpo.mask_truncated={str(masked).lower()}")
    sampled = c.sample(None, 0, 0)
    np.testing.assert_array_equal(sampled.stopped_PG, [[True, False]] * 4)
    advantages = np.arange(8, dtype=np.float32).reshape(4, 2)
    old, reference = sampled.completions.logps_PGT + 1, sampled.completions.logps_PGT + 2
    batch = c.batch(sampled, advantages, old, reference)
    np.testing.assert_array_equal(batch.counted_PG, [[True, not masked]] * 4)
    np.testing.assert_array_equal(batch.advantages_PG, advantages)
    np.testing.assert_array_equal(batch.lengths_PG, [[2, 1]] * 4)
    assert batch.group is sampled.group and batch.sampler_PGT is sampled.completions.logps_PGT
    assert batch.old_PGT is old and batch.reference_PGT is reference


def test_the_stop_token_is_no_part_of_a_text():
    c, _ = collector(lambda q, g, _: "abc..." if g else "abcd")
    texts = collect.own_texts(c.sample(None, 0, 0).completions, scripted.TOKENIZER)
    assert texts == {p: ["abcd", "abc"] for p in range(4)}


def test_the_figures_of_a_batch():
    def text(question, g, _):
        n = int(question.split("+")[0])
        return {0: "1", 1: "2"}.get(n, "no") if g == 0 else "12345..." if n == 2 else "no"

    rewards = (LoadedReward("right", right, 2.0), LoadedReward("length", length, 1.0))
    c, _ = collector(text, num=4, rewards=rewards)
    sampled = c.sample(None, 0, 0)
    advantages = np.array([[1, 2], [3, 4], [5, 6], [0, 0]], np.float32)
    # right twice; lengths of text 1, 1, 2, 2 and 2, 2, 5, 2; groups (3, 2), (3, 2), (2, 5) and (2, 2)
    assert collect.figures(sampled, advantages, c.setup.recipe) == pytest.approx(
        {
            "reward": (3 + 2 + 3 + 2 + 2 + 5 + 2 + 2) / 8,
            "reward/right": 2 / 8,
            "reward/length": (1 + 1 + 2 + 2 + 2 + 2 + 5 + 2) / 8,
            "advantage_std": np.std([1, 2, 3, 4, 5, 6, 0, 0]),
            "frac_reward_zero_std": 1 / 4,
            "frac_masked": 0,
            "equal_reward": 2,
            "completion_length": (2 + 2 + 3 + 3 + 3 + 3 + 5 + 3) / 8,
            "completion_length_max": 5,
            "completion_clipped": 1 / 8,
        }
    )


def test_a_clock_adds_up_the_seconds_of_each_phase(monkeypatch):
    now = iter([10.0, 11.0, 13.5, 14.0])
    monkeypatch.setattr(collect, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    clock = Clock()
    for phase in ("rollout_s", "update_s", "rollout_s"):
        clock.mark(phase)
    assert clock.seconds == {"rollout_s": 1.5, "update_s": 2.5} and clock.total() == 4.0


def test_every_epoch_of_questions_is_another_shuffle_in_which_each_stands_once():
    """A batch may reach into the next epoch, and any cut of the sequence into batches gives the same one."""
    c, _ = collector(lambda q, g, _: "1", num=10)
    sequence = c.prompts.indices(0, 40, 3)
    epochs = sequence.reshape(4, 10)
    np.testing.assert_array_equal(np.sort(epochs, 1), np.broadcast_to(np.arange(10), (4, 10)))
    assert len({tuple(e) for e in epochs.tolist()}) == 4 and list(epochs[0]) != list(range(10))
    assert c.prompts.indices(0, 10, 4).tolist() != sequence[:10].tolist(), "the seed counts"
    for used, size in ((3, 4), (8, 7), (25, 15)):
        np.testing.assert_array_equal(c.prompts.indices(used, size, 3), sequence[used : used + size])
