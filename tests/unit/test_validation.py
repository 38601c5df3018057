"""Every wrong value of a recipe is refused in one line of this project's own words."""

import re

import pytest

from podwright.errors import UserError
from podwright.recipe import load

RECIPE = "qwen3-tiny-arithmetic-grpo"


@pytest.mark.parametrize(
    ("override", "what", "fix"),
    [
        ("training.max_steps=0", "training.max_steps=0: must be greater than 0", "training.max_steps: GRPO steps"),
        ("training.max_steps=null", "training.max_steps=null: must be a whole number", "GRPO steps"),
        ("training.max_steps=true", "training.max_steps=true: must be a number", "GRPO steps"),
        ("training.max_steps=[2]", "training.max_steps=[2]: must be a whole number", "GRPO steps"),
        ("training.max_steps=1.5", "training.max_steps=1.5: must be a whole number", "GRPO steps"),
        ("training=5", "training=5: must be keys with values, written {key: value}", "change this value"),
        ("optimizer.learning_rate=1,5", "optimizer.learning_rate=1,5: must be a number", "peak learning rate"),
        ("optimizer.learning_rate=false", "optimizer.learning_rate=false: must be a number", "peak learning rate"),
        ("optimizer.learning_rate=.inf", "optimizer.learning_rate=Infinity: must be a finite number", "peak"),
        ("optimizer.b1=1.0", "optimizer.b1=1.0: must be less than 1", "AdamW's first decay rate"),
        ("optimizer.warmup_ratio=1.1", "optimizer.warmup_ratio=1.1: must be at most 1", "share of the steps"),
        ("grpo.mask_truncated=perhaps", "grpo.mask_truncated=perhaps: must be true or false", "leave completions"),
        ("grpo.loss=ppo", "grpo.loss=ppo: must be 'grpo', 'dr_grpo', 'dapo', 'gspo' or 'cispo'", "the policy loss"),
        ("name=a b", "name=a b: must match the pattern ^[a-z0-9][a-z0-9.-]*$", "name: model-task-method"),
        ("data.source=", 'data.source="": must not be empty', "data.source: 'arithmetic'"),
        ("data.source=~no-user/x", "must not begin with ~no-user, which is no user", "a .jsonl file"),
        ("rewards=[]", "rewards=[]: must have at least 1", "rewards that are added up"),
        ("rewards=3", "rewards=3: must be a list, written [first, second]", "rewards that are added up"),
        ("rewards=[3]", "rewards.0=3: must be keys with values", "change this value"),
        ("mesh={fsdp: 2, fsdp: 3}", "has the key fsdp twice", "leave one out"),
        ("kind=pretrain", "the kind of a recipe cannot be changed", "name a recipe of that kind"),
    ],
)
def test_a_wrong_value_is_named_in_plain_words(override: str, what: str, fix: str) -> None:
    with pytest.raises(UserError) as refused:
        load.load(RECIPE, [override])
    assert what in refused.value.what and fix in refused.value.fix


@pytest.mark.parametrize("typed", ["123", "1e5", "yes", "[x]", "2024-01-01", "a #b", "a: b", " lead", "trail ", "&a x"])
def test_the_value_of_a_text_key_is_what_was_typed(typed: str) -> None:
    assert load.load(RECIPE, [f"data.source={typed}"]).data.source == typed
    assert load.load(RECIPE, [f"data.source='{typed}'"]).data.source == typed


def test_a_list_that_holds_itself_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="must be keys with values"):
        load.load(RECIPE, ["rewards=&r [*r]"])


@pytest.mark.parametrize("name", [RECIPE, "qwen3-0.6b-pretrain", "phase1-tiny", "phase2-tiny"])
def test_no_wrong_value_is_answered_in_the_words_of_the_library(name: str) -> None:
    recipe = load.load(name)
    values = [
        "null",
        "true",
        "-7",
        "1.5",
        "words",
        "[]",
        "[1]",
        "{}",
        "{a: 1}",
        "''",
        ".nan",
        "1e400",
        "99999999999999999999",
    ]
    for key in load.fields(type(recipe)):
        for value in values:
            try:
                load.override(recipe, [f"{key}={value}"])
            except UserError as e:
                assert not re.search(r"Input should|should|valid|validation|instance of|Value error", e.what), e


@pytest.mark.parametrize(
    ("recipe", "override", "values"),
    [
        (
            "qwen3-tiny-arithmetic-grpo",
            ["grpo.overlong_buffer=64", "rollout.total_generation_steps=32"],
            ["grpo.overlong_buffer=64", "rollout.total_generation_steps=32"],
        ),
        ("qwen3-tiny-arithmetic-grpo", ["grpo.num_generations=1"], ["grpo.num_generations=1 must be at least 2"]),
        ("phase2-tiny", ["data.num_train=0"], ["data.num_train=0 and data.num_test="]),
        ("phase1-tiny", ["data.num_test=0"], ["data.num_train=", "data.num_test=0"]),
    ],
)
def test_a_message_of_two_keys_has_both_values(recipe: str, override: list[str], values: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        load.load(recipe, override)
    assert all(value in refused.value.what for value in values)
