"""What a run refuses because of its lengths, and that the remedy, typed once, is refused no more."""

import dataclasses
import itertools

import pytest

from podwright.data.layouts import Example
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe import positions
from podwright.recipe.schema import GrpoData, Rollout
from podwright.train.grpo import prompts
from podwright.train.grpo.token_limits import PromptTokens, TokenLimits


def limits(prompt, steps, train, test, answers=(), max_positions=2048):
    parts = [PromptTokens("training", len(train), train), PromptTokens("test", len(test), test)]
    rollout = Rollout(max_prompt_length=prompt, total_generation_steps=steps)
    return TokenLimits(rollout, max_positions, parts, list(zip(train, answers, strict=False)))


def refusal(checked):
    with pytest.raises(UserError) as refused:
        checked.require()
    return refused.value


def remedied(checked):
    """With what the refusal says to type."""
    fix = refusal(checked).fix
    assert fix.startswith("type ")
    pairs = (override.removeprefix("rollout.").split("=") for override in fix.removeprefix("type ").split())
    lengths = {key: int(value) for key, value in pairs}
    return dataclasses.replace(checked, rollout=checked.rollout.model_copy(update=lengths))


@pytest.mark.parametrize(
    ("checked", "what", "fix"),
    [
        (
            limits(3, 24, [20, 30], [40]),
            "no training prompt fits rollout.max_prompt_length=3: the shortest of 2 has 20 tokens, the longest 30",
            "type rollout.max_prompt_length=40",
        ),
        (
            limits(35, 24, [20, 30], [40]),
            "no test prompt fits rollout.max_prompt_length=35: the shortest of 1 has 40 tokens, the longest 40",
            "type rollout.max_prompt_length=40",
        ),
        (
            limits(3, 24, [20, 30], [40], [25, 50]),
            "no training prompt fits rollout.max_prompt_length=3: the shortest of 2 has 20 tokens, the longest 30",
            "type rollout.max_prompt_length=40 rollout.total_generation_steps=50",
        ),
        (
            limits(40, 24, [20, 30], [40], [25, 50]),
            "no worked answer of the warm start fits rollout.total_generation_steps=24 "
            "and its prompt 40 tokens: the shortest has 25",
            "type rollout.total_generation_steps=50",
        ),
        (
            limits(20, 24, [20, 30], [10], [30, 20]),
            "no worked answer of the warm start fits rollout.total_generation_steps=24 "
            "and its prompt 20 tokens: the shortest has 20",
            "type rollout.max_prompt_length=30 rollout.total_generation_steps=30",
        ),
        (
            limits(3, 24, [3000], [10]),
            "no training prompt fits rollout.max_prompt_length=3: the shortest of 1 has 3000 tokens, the longest 3000",
            "give shorter examples, or a model with more than 2,048 positions",
        ),
    ],
)
def test_a_refusal_names_lengths_that_are_enough_for_everything(checked, what, fix):
    assert (refusal(checked).what, refusal(checked).fix) == (what, fix)


def test_a_remedy_is_refused_no_more():
    """For every combination; where it leaves the model positions enough, nothing is left out either."""
    lengths = (3, 30, 900)
    for prompt, steps, train, test, answer in itertools.product(lengths, repeat=5):
        checked = limits(prompt, steps, [train, train + 5], [test], [answer, answer + 2], max_positions=2048)
        try:
            checked.require()
        except UserError as e:
            assert "rollout.total_generation_steps=0" not in e.fix
            better = remedied(checked)
            better.require()
            assert better.left_out() == [] and positions.exceeded(better.rollout, 2048) is None


def test_a_remedy_keeps_to_the_positions_of_the_model():
    better = remedied(limits(3, 24, [20, 5000], [30]))
    assert better.rollout.max_prompt_length == 2048 - 24
    better.require()
    assert better.left_out() == ["1 of 2 training prompts (50%)"]


def test_what_is_left_out_is_counted_and_of_a_sample_estimated():
    assert limits(25, 24, [20, 30, 40], [10], [25, 20, 20]).left_out() == [
        "2 of 3 training prompts (66.7%)",
        "3 of 3 answers of the warm start (100%)",
    ]
    assert limits(40, 25, [20, 30, 40], [10], [25, 20, 20]).left_out() == []
    sampled = PromptTokens("training", 1000, [1, 2, 3, 9])
    checked = TokenLimits(Rollout(max_prompt_length=5, total_generation_steps=24), 2048, [sampled])
    assert checked.left_out() == ["250 of 1,000 training prompts (25%)"]
    assert checked.longest() == 9 and checked.enough() == "rollout.max_prompt_length=9"


@pytest.mark.parametrize(
    ("prompt", "steps", "longest", "overrides"),
    [
        (1_000_000, 24, None, "rollout.max_prompt_length=2024"),
        (1_000_000, 24, 43, "rollout.max_prompt_length=43"),
        (56, 2000, None, "rollout.total_generation_steps=1992"),
        (56, 2000, 43, "rollout.max_prompt_length=43"),
        (56, 2000, 60, "rollout.max_prompt_length=60 rollout.total_generation_steps=1988"),
        (5000, 5000, None, "rollout.max_prompt_length=1024 rollout.total_generation_steps=1024"),
    ],
)
def test_lengths_beyond_the_positions_of_the_model(prompt, steps, longest, overrides):
    """By themselves, and where the longest prompt is known."""
    rollout = Rollout(max_prompt_length=prompt, total_generation_steps=steps)
    refused = positions.exceeded(rollout, 2048)
    assert refused and refused.what == (
        f"rollout.max_prompt_length={prompt} and rollout.total_generation_steps={steps} are {prompt + steps:,} tokens, "
        "the model has 2,048 positions"
    )
    if longest is None:
        assert refused.fix == f"type {overrides}"
    else:
        assert TokenLimits(rollout, 2048, [PromptTokens("test", 1, [longest])]).enough() == overrides
    assert positions.exceeded(Rollout(max_prompt_length=1024, total_generation_steps=1024), 2048) is None


EXAMPLES = [Example(f"{n} + 1?", str(n + 1), f"#### {n + 1}") for n in range(3)]


def saved(folder, template):
    Tokenizer.train([e.question for e in EXAMPLES], 300).save(folder)
    (folder / "chat_template.jinja").write_text(template)
    return prompts.load_tokenizer(folder, 384)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("", "the chat template leaves the user's message out: every prompt is the same text; fix chat_template.jinja"),
        (
            "user: hello",
            "the chat template leaves the user's message out: every prompt is the same text; fix chat_template",
        ),
        (
            "{{ raise_exception('no system') }}",
            r"the chat template cannot be rendered \(no system\); fix chat_template",
        ),
    ],
)
def test_a_template_that_makes_no_prompts_is_refused(tmp_path, template, says):
    with pytest.raises(UserError, match=says) as refused:
        prompts.tokenized(EXAMPLES, saved(tmp_path, template), GrpoData(source="arithmetic"))
    assert refused.value.what.startswith(f"{tmp_path}: ")


def test_a_test_without_a_question_is_refused(tmp_path):
    tokenizer = saved(tmp_path, "{{ messages[0].content }}")
    with pytest.raises(UserError, match="there is no question to test on; give data with at least one question"):
        prompts.encode([], tokenizer, GrpoData(source="arithmetic"), Rollout(), 2048)


def test_a_prompt_without_a_token_is_refused(tmp_path):
    tokenizer = saved(tmp_path, "{{ '' if messages[0].content[0] in '123456789' else messages[0].content }}")
    with pytest.raises(UserError, match="makes a prompt without a token"):
        prompts.tokenized(EXAMPLES, tokenizer, GrpoData(source="arithmetic"))


def test_a_tokenizer_with_more_ids_than_the_model_has_rows_is_refused(tmp_path):
    saved(tmp_path, "{{ messages[0].content }}")
    with pytest.raises(UserError, match=r"the tokenizer of .* has \d+ tokens, the model 200; give a checkpoint"):
        prompts.load_tokenizer(tmp_path, 200)


def test_an_end_of_answers_outside_the_vocabulary_is_refused(tmp_path):
    saved(tmp_path, "{{ messages[0].content }}")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9999}')
    with pytest.raises(UserError, match=r"eos_token_id=9999 of .* is outside .* of 384; write the"):
        prompts.load_tokenizer(tmp_path, 384)


@pytest.mark.parametrize(("ids", "outside"), [("9999", 9999), ("-1", -1), ("[5, 384]", 384)])
def test_without_a_generation_config_the_ends_of_config_json_are_those(tmp_path, ids, outside):
    saved(tmp_path, "{{ messages[0].content }}")
    (tmp_path / "config.json").write_text(f'{{"eos_token_id": {ids}}}')
    with pytest.raises(UserError, match=rf"eos_token_id={outside} of .* is outside .* of 384; write the"):
        prompts.load_tokenizer(tmp_path, 384)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert prompts.load_tokenizer(tmp_path, 384)
