"""Values of MaxText's arguments by the types of its configuration, as pydantic and YAML take them there."""

import pytest

from podwright.recipe.maxtext import argument_types, published


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable_checkpointing", "maybe"),
        ("enable_checkpointing", ""),
        ("steps", "1.5"),
        ("steps", "ten"),
        ("steps", "inf"),
        ("gradient_accumulation_steps", "0"),
        ("learning_rate", "fast"),
        ("learning_rate", "-1"),
        ("mesh_axes", "data"),
        ("dataset_type", "Synthetic"),
        ("decoder_block", "lama2"),
        ("query_proj", "keep"),
    ],
)
def test_a_value_of_another_type_is_named(key: str, value: str) -> None:
    problem = argument_types.wrong(key, value)
    assert problem and problem.what.startswith(f"{key}={value} is n")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable_checkpointing", "False"),
        ("enable_checkpointing", "yes"),
        ("enable_checkpointing", "0"),
        ("steps", "1e3"),
        ("steps", "1_000"),
        ("steps", "-1"),
        ("steps", "0x10"),
        ("steps", "${STEPS}"),
        ("learning_rate", "3.e-5"),
        ("learning_rate", "0"),
        ("mesh_axes", "['data', 'fsdp']"),
        ("train_data_columns", "text"),
        ("attn_logits_soft_cap", ""),
        ("attn_logits_soft_cap", "None"),
        ("dataset_type", "synthetic"),
        ("profiler", ""),
        ("run_name", "maybe"),
        ("a_key_of_a_fork", "anything"),
    ],
)
def test_a_value_that_maxtext_takes_is_none(key: str, value: str) -> None:
    assert argument_types.wrong(key, value) is None


def test_every_published_run_has_keys_and_values_of_these_types() -> None:
    for run in published.runs():
        assert argument_types.unknown(run.arguments) == [], run.recipe
        assert [w for key, value in run.arguments.items() if (w := argument_types.wrong(key, value))] == [], run.recipe


def test_every_type_is_one_that_is_read() -> None:
    for key, type_ in argument_types.types().items():
        base = type_.removesuffix("?").partition(">=")[0]
        assert base in ("", "bool", "int", "float", "list", "dict") or "|" in base, key
