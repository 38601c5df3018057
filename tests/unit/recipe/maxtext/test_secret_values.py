"""Values that look like secrets are refused by plan, render and run, named by an import, and never shown."""

from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.plan import kinds
from podwright.recipe.maxtext import lint, secret_values
from podwright.targets.gke import attempt, rendering, workload
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.targets.gke.entry import gke

LONG = "hf_" + "a1B2" * 8
KEY_OF_WANDB = "0123456789abcdef" * 2 + "01234567"


def recipe(section: str, key: str, value: Any) -> Any:
    return example(**{section: RAW[section] | {key: value}})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("arguments", "hf_access_token", "hf_abc"),
        ("arguments", "tokenizer_path", f"https://user:{LONG}@huggingface.co/x"),
        ("environment", "HF_TOKEN", "hf_abc"),
        ("environment", "WANDB_API_KEY", KEY_OF_WANDB),
        ("environment", "MY_SECRET", "swordfish"),
        ("environment", "DB_PASSWORD", "swordfish"),
        ("environment", "NOTE", f"log in with {LONG}"),
        ("xpk", "env", "HF_TOKEN=hf_abc"),
        ("launch", "setup", [f"huggingface-cli login --token {LONG}"]),
        ("launch", "setup", [f"wandb login {KEY_OF_WANDB}"]),
        ("launch", "after", "| HF_TOKEN=hf_abc tee log"),
    ],
)
def test_a_value_that_looks_like_a_secret_is_refused_without_being_shown(section: str, key: str, value: Any) -> None:
    wrong = recipe(section, key, value)
    (error,) = [f for f in kinds.of(wrong).checks(wrong, _slice(wrong), Path()) if f.level == "error"]
    (named,) = [f for f in lint.of_recipe(wrong) if f.check == "secret"]
    with pytest.raises(UserError) as render:
        rendering.render(wrong, gke(), "pod", {})
    with pytest.raises(UserError) as run:
        attempt.require_submittable(workload.resolved(wrong, {}), gke())
    for what, fix in ((error.message, error.fix), (named.message, named.fix), (render.value.what, render.value.fix), (run.value.what, run.value.fix)):  # fmt: skip
        assert what.startswith(f"{section}.{key} looks like a secret")
        assert "kubectl create secret generic podwright-env --from-env-file=FILE" in fix
        assert not any(text in what + fix for text in ("hf_abc", LONG, KEY_OF_WANDB, "swordfish"))


def _slice(of: Any) -> Any:
    return kinds.of(of).written_for(of)


def test_a_variable_that_is_filled_in_is_looked_at_then() -> None:
    open_recipe = recipe("environment", "HF_TOKEN", "${HF_TOKEN}")
    assert secret_values.keys(open_recipe) == []
    with pytest.raises(UserError, match=r"environment\.HF_TOKEN"):
        rendering.render(open_recipe, gke(), "pod", {"HF_TOKEN": "hf_abc"})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("arguments", "hf_access_token", ""),
        ("arguments", "reasoning_start_token", "<think>"),
        ("arguments", "solution_end_token", "SOLUTION"),
        ("arguments", "max_num_batched_tokens", "4096"),
        ("environment", "HF_TOKEN", "$HF_TOKEN"),
        ("environment", "SSH_KEY", "/keys/id"),
        ("environment", "TOKEN", "<your token>"),
        ("xpk", "docker-image-pull-secret", "registry"),
        ("launch", "setup", ['export HF_TOKEN="$TOKEN"', "export X=1"]),
    ],
)
def test_names_paths_and_marks_are_no_secrets(section: str, key: str, value: Any) -> None:
    assert secret_values.keys(recipe(section, key, value)) == []


@pytest.mark.parametrize(
    ("section", "key", "value", "line"),
    [
        ("arguments", "hf_access_token", "hf_abc", "HF_TOKEN=..."),
        ("arguments", "some_api_key", "swordfish", "M_SOME_API_KEY=..."),
        ("environment", "WANDB_API_KEY", KEY_OF_WANDB, "WANDB_API_KEY=..."),
        ("launch", "setup", [f"wandb login {KEY_OF_WANDB}"], "WANDB_API_KEY=..."),
        ("launch", "setup", ["export MY_TOKEN=swordfish"], "MY_TOKEN=..."),
        ("xpk", "env", "MY_TOKEN=swordfish", "MY_TOKEN=..."),
    ],
)
def test_the_variable_that_takes_its_place_is_named(section: str, key: str, value: Any, line: str) -> None:
    wrong = recipe(section, key, value)
    problem = secret_values.problem(wrong)
    assert problem
    assert problem[1].endswith(f"podwright-env --from-env-file=FILE with a line {line}: pods get its variables")


def test_pods_of_a_maxtext_recipe_read_the_secret() -> None:
    files = rendering.render(example(), gke(), "pod", {}).files
    assert "envFrom:" in files[rendering.MANIFEST] and "name: podwright-env" in files[rendering.MANIFEST]
