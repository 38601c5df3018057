"""Every wrong value of a recipe is refused in one line that names its key."""

import ast
import re
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import load, schema

RECIPE = "qwen3-tiny-arithmetic-grpo"


@pytest.mark.parametrize(
    ("override", "what", "fix"),
    [
        (
            "training.max_steps=0",
            "neither training.max_steps nor training.num_epochs is set",
            "training.num_epochs=1 with",
        ),
        ("training.max_steps=-1", "training.max_steps=-1: must ", "training.max_steps: GRPO steps"),
        (
            "training.num_epochs=2",
            "training.max_steps=80 and training.num_epochs=2 are both set",
            "type training.max_steps=0 to train 2 epochs, or training.num_epochs=0 to train 80 steps",
        ),
        ("training.max_steps=null", "training.max_steps=null: must ", "GRPO steps"),
        ("training.max_steps=true", "training.max_steps=true: must be a number", "GRPO steps"),
        ("training.max_steps=[2]", "training.max_steps=[2]: must ", "GRPO steps"),
        ("training.max_steps=1.5", "training.max_steps=1.5: must ", "GRPO steps"),
        ("training=5", "training=5: must be keys with values, written {key: value}", "change this value"),
        ("optimizer.learning_rate=1,5", "optimizer.learning_rate=1,5: must ", "peak learning rate"),
        ("optimizer.learning_rate=false", "optimizer.learning_rate=false: must be a number", "peak learning rate"),
        ("optimizer.learning_rate=.inf", "optimizer.learning_rate=Infinity: must be a finite number", "peak"),
        (
            "data.max_operations=99999",
            "data.max_operations=99999: must ",
            "steps in a problem, at most 50",
        ),
        ("optimizer.b1=1.0", "optimizer.b1=1.0: must be less than 1", "AdamW's first decay rate"),
        ("optimizer.warmup_ratio=1.1", "optimizer.warmup_ratio=1.1: must ", "share of the steps"),
        ("grpo.mask_truncated=perhaps", "grpo.mask_truncated=perhaps: must ", "leave completions"),
        ("grpo.loss=ppo", "grpo.loss=ppo: must be 'grpo', 'dr_grpo', 'dapo', 'gspo' or 'cispo'", "the policy loss"),
        (
            "optimizer.learning_rate=1e300",
            "must be 0, or from 1.2e-38 to 3.4e+38 in size, as floats of 32",
            "peak learning",
        ),
        ("rollout.top_p=1e-300", "must be 0, or from 1.2e-38 to 3.4e+38 in size, as floats of 32", "likeliest tokens"),
        ("rollout.min_p=1e-300", "must be 0, or from 1.2e-38 to 3.4e+38 in size, as floats of 32", "drop tokens"),
        ("grpo.beta=1e300", "must be 0, or from 1.2e-38 to 3.4e+38 in size, as floats of 32", "weight of the KL"),
        ("rollout.top_p=0", "rollout.top_p=0: must be greater than 0", "likeliest tokens"),
        ("rollout.temperature=5e-324", "must be at least 0.001", "divides the logits"),
        ("rollout.temperature=1.3e-38", "must be at least 0.001", "divides the logits"),
        (
            "rewards=[{function: a:b, weight: 0}, {function: c:d, weight: 0}]",
            "all rewards have weight 0: no completion is better than another",
            "type rewards=[{function: a:b, weight: 1}]",
        ),
        (
            "warm_start={max_steps: 3, learning_rate: 1}",
            "warm_start.batch_size is missing",
            "type warm_start.batch_size=VALUE: ",
        ),
        ("name=a b", "name=a b: must ", "name: model-task-method"),
        ("data.source=", 'data.source="": must ', "data.source: 'arithmetic'"),
        ("data.source=~no-user/x", "must not begin with ~no-user, which is no user", "a file of rows"),
        ("rewards=[]", "rewards=[]: must have at least 1", "rewards that are added up"),
        ("rewards=3", "rewards=3: must ", "rewards that are added up"),
        ("rewards=[3]", "rewards.0=3: must be keys with values", "change this value"),
        ("mesh={fsdp: 2, fsdp: 3}", "the key fsdp is there twice", "quote it"),
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
def test_every_wrong_value_is_refused_in_one_line(name: str) -> None:
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
                assert "\n" not in str(e) and len(str(e)) <= 240, e


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


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        (RECIPE, ["grpo.num_generations=1"]),
        (RECIPE, ["grpo.overlong_buffer=24"]),
        (RECIPE, ["grpo.overlong_buffer=2", "rollout.total_generation_steps=1"]),
        (RECIPE, ["training.gradient_accumulation_steps=3"]),
        (RECIPE, ["training.gradient_accumulation_steps=2000000000", "batch_size=1048573"]),
        ("almodel-tiny", ["training.gradient_accumulation_steps=999"]),
        ("phase1-tiny", ["data.num_train=0"]),
        ("phase2-tiny", ["data.num_train=0", "data.num_test=0"]),
        ("phase1-tiny", ["data.num_test=1000001"]),
        ("phase2-tiny", ["data.num_train=2000000"]),
        ("phase1-tiny", ["data.root=x"]),
        ("phase2-tiny", ["data.root=x"]),
    ],
)
def test_what_to_type_for_keys_that_contradict_each_other_is_accepted(recipe: str, overrides: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        load.load(recipe, overrides)
    typed = re.findall(r"[\w.]+=\w*", refused.value.fix)
    assert refused.value.fix.startswith("type ") and typed
    changed = {text.partition("=")[0] for text in typed}
    load.load(recipe, [*(text for text in overrides if text.partition("=")[0] not in changed), *typed])


def test_every_validator_of_a_recipe_says_what_to_type() -> None:
    for path in Path(schema.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                "model_validator" in ast.unparse(d) for d in node.decorator_list
            ):
                raised = [
                    ast.unparse(n.exc.func)
                    for n in ast.walk(node)
                    if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)
                ]
                assert {*raised} <= {"RefusedValue"}, f"{path.name}: {node.name}"


@pytest.mark.parametrize(
    ("overrides", "without_effect"),
    [
        (["batch_size=4", "batch_size=8"], ["batch_size=4 has no effect: batch_size=8 comes after it"]),
        (["mesh={data: 2}", "mesh.data=4"], []),
        (["mesh.data=4", "mesh={data: 2}"], ["mesh.data=4 has no effect: mesh={data: 2} comes after it"]),
        (["mesh.data=1", "data.num_train=4000", "mesh_data=3"], []),
        (
            ["seed=1", "seed=1", "seed=2"],
            ["seed=1 has no effect: seed=1 comes after it", "seed=1 has no effect: seed=2 comes after it"],
        ),
    ],
)
def test_an_override_that_a_later_one_undoes_is_named(overrides: list[str], without_effect: list[str]) -> None:
    assert load.without_effect(overrides) == without_effect


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "kind: null\n", "{}\n"])
def test_a_recipe_without_its_kind_is_told_to_have_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match="has no key kind; write kind: grpo; known: grpo, pretrain"):
        load.load(str(tmp_path / "mine.yaml"))


def test_a_folder_in_place_of_a_recipe_is_called_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder, and a recipe is a YAML file; give a YAML file"):
        load.load(str(tmp_path))
    (tmp_path / "a.yaml").write_text("kind: grpo\n")
    with pytest.raises(UserError, match=f"is a folder.*; type {tmp_path / 'a.yaml'}"):
        load.load(str(tmp_path))
    (tmp_path / "b.yml").write_text("kind: grpo\n")
    with pytest.raises(UserError, match=f"is a folder.*; type {tmp_path / 'a.yaml'}"):
        load.load(str(tmp_path))
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(UserError, match=f"is a folder.*; type {tmp_path / 'recipe.json'}"):
        load.load(str(tmp_path))
    (tmp_path / "c.yaml").mkdir()
    with pytest.raises(UserError, match=r"c\.yaml is a folder"):
        load.load(str(tmp_path / "c.yaml"))
