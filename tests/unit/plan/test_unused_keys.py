"""A key that another key's value leaves without effect is named in the plan."""

from pathlib import Path

import pytest

from podwright.plan import kinds
from podwright.plan.checks import unused_keys
from podwright.plan.make import make
from podwright.plan.options import Destination, PlanOptions
from podwright.recipe.load import load, shipped
from tests.unit.plan.test_multimodal import said


def findings(folder: Path, level: str, name: str, *overrides: str) -> str:
    recipe = load(name, list(overrides))
    plan = make(recipe, Destination("nowhere"), PlanOptions(cwd=folder))
    return " | ".join(said(list(plan.findings), level))


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        (
            "phase1-tiny",
            "text_encoder.source=minilm-dir",
            "text_encoder.source=minilm-dir would not be read with text_encoder.name=tiny, which has random weights; "
            "type text_encoder.name=minilm, or text_encoder.source=random",
        ),
        ("phase1-tiny", "encoders.image_weights=a.pt", "type encoders.image=mobilenetv4_conv_small, or"),
        ("phase2-tiny", "encoders.audio_weights=a.pth", "would not be read with encoders.audio=tiny"),
    ],
)
def test_weights_that_would_not_be_read_are_refused(tmp_path: Path, name: str, override: str, message: str) -> None:
    (tmp_path / override.partition("=")[2]).touch()
    assert message in findings(tmp_path, "error", name, override)


@pytest.mark.brief(3)
@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("phase1-tiny", ["text_encoder.pooling=cls"], "text_encoder.pooling=cls has no effect with text_encoder.name"),
        ("phase1-tiny", ["encoders.audio_pooling=purrsight"], "type encoders.audio=cnn14, or leave encoders.audio_poo"),
        ("phase1-tiny", ["encoders.image_weights=pretrained"], "has no effect with encoders.image=tiny"),
        ("phase2-tiny", ["model.lora_alpha=8"], "model.lora_alpha=8.0 has no effect with model.lora_rank=0; type mo"),
        ("phase2-tiny", ["model.lora_target_modules=[q_proj]"], "model.lora_target_modules=[q_proj] has no effect"),
        ("phase2-tiny", ["optimizer.lora_factor=2"], "optimizer.lora_factor=2.0 has no effect"),
        ("qwen3-tiny-arithmetic-grpo", ["model.lora_alpha=8"], "has no effect with model.lora_rank=0"),
        ("qwen3-tiny-arithmetic-grpo", ["grpo.beta=0", "grpo.kl=k1"], "grpo.kl=k1 has no effect with grpo.beta=0"),
        ("qwen3-tiny-arithmetic-grpo", ["grpo.epsilon_high=0.28"], "type grpo.num_iterations=2, or leave grpo.epsi"),
        ("almodel-tiny", ["optimizer.name=adamw", "optimizer.momentum=0.9"], "optimizer.momentum=0.9 has no effect"),
        ("almodel-tiny", ["data.eos_id=3"], "data.eos_id=3 has no effect with data.source=arithmetic"),
    ],
)
def test_other_values_without_effect_are_warned_of(
    tmp_path: Path, name: str, overrides: list[str], message: str
) -> None:
    assert message in findings(tmp_path, "warning", name, *overrides)
    assert "has no effect" not in findings(tmp_path, "warning", name)


@pytest.mark.parametrize("name", shipped())
def test_no_shipped_recipe_has_a_key_without_effect(name: str) -> None:
    recipe = load(name)
    assert unused_keys.check(recipe, kinds.of(recipe).unused_keys) == []
