"""Arguments of MaxText typed on the command line: any key, and the value as it is typed."""

from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext.schema import MaxTextRecipe
from tests.unit.recipe.maxtext.example import RAW, example


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("arguments.steps=50", "50"),
        ("arguments.use_qwix=True", "True"),
        ("arguments.learning_rate=3e-6", "3e-6"),
        ("arguments.mesh=[a,b]", "[a,b]"),
        ("arguments.tag='a b'", "a b"),
        ("arguments.empty=", ""),
        ("environment.PATH=/a:/b", "/a:/b"),
        ("xpk.priority=medium", "medium"),
    ],
)
def test_a_value_reaches_maxtext_as_it_is_typed(typed: str, expected: str) -> None:
    recipe = load.require(load.override(example(), [typed]), MaxTextRecipe)
    table, key = typed.partition("=")[0].split(".")
    assert getattr(recipe, table)[key] == expected
    before = getattr(example(), table)
    assert {**before, key: expected} == getattr(recipe, table) and list(getattr(recipe, table))[: len(before)] == list(
        before
    )


def test_numbers_and_truth_values_of_a_file_are_text_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(load.written(RAW | {"arguments": {"steps": 30, "megablox": True, "lr": 0.5}}))
    recipe = load.require(load.load(str(path)), MaxTextRecipe)
    assert recipe.arguments == {"steps": "30", "megablox": "true", "lr": "0.5"}


def test_an_unknown_key_is_answered_with_that_of_maxtext() -> None:
    with pytest.raises(UserError, match=r"unknown key steps; type arguments\.steps=VALUE, if MaxText has it"):
        load.override(example(), ["steps=50"])
    with pytest.raises(UserError, match="unknown key topologie; did you mean topology"):
        load.override(example(), ["topologie=v6e-16"])


@pytest.mark.parametrize("value", ["banana", "local", "8xH100-80GB"])
def test_a_topology_that_is_no_slice_of_tpus_is_refused(value: str) -> None:
    with pytest.raises(UserError, match=rf"topology={value} is no TPU slice.*; type topology=tpu7x-4x4x8"):
        load.override(example(), [f"topology={value}"])
    with pytest.raises(UserError, match=r"has 2 slices; type topology=v6e-16, and num_slices=2"):
        load.override(example(), ["topology=2x v6e-16"])
