"""Settings of GRPO that are taken and do not do what their names say are warned of, with a value that is not."""

import re

import pytest

from podwright.plan.checks import clipping
from podwright.recipe import load, models
from podwright.recipe.schema import GrpoRecipe

DIMS = models.find("qwen3-tiny")


def recipe(*overrides: str) -> GrpoRecipe:
    return load.require(load.load("qwen3-tiny-arithmetic-grpo", overrides), GrpoRecipe)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["grpo.epsilon=0.3", "grpo.epsilon_high=0.1"], "grpo.epsilon_high=0.1 is below grpo.epsilon=0.3"),
        (["grpo.epsilon=1"], "grpo.epsilon=1 clips no ratio from below"),
        (["rollout.top_k=100000000"], "rollout.top_k=100000000 keeps all 512 tokens of the vocabulary"),
        (["rollout.top_k=512"], "rollout.top_k=512 keeps all 512 tokens"),
    ],
)
def test_a_setting_without_its_effect_is_warned_of_with_a_value_to_type(overrides: list[str], message: str) -> None:
    (finding,) = clipping.check(recipe(*overrides), DIMS)
    assert finding.level == "warning" and finding.message.startswith(message)
    typed = re.findall(r"([\w.]+)=([\d.]+)", finding.fix)
    assert typed
    kept = [text for text in overrides if text.partition("=")[0] not in dict(typed)]
    assert not clipping.check(recipe(*kept, *(f"{key}={value}" for key, value in typed)), DIMS)


def test_limits_as_published_are_not_warned_of() -> None:
    for overrides in (
        ["grpo.epsilon=0.2", "grpo.epsilon_high=0.28"],
        ["grpo.loss=cispo", "grpo.epsilon=1", "grpo.epsilon_high=0.5"],
        ["rollout.top_k=511"],
    ):
        assert not clipping.check(recipe(*overrides), DIMS)
    assert not clipping.check(recipe("rollout.top_k=100000000"), None)
