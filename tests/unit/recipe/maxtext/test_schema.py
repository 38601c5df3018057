"""The parts of a recipe of MaxText, and the command that they make."""

import subprocess
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, filled
from tests.unit.recipe.maxtext.example import RAW, example


def test_the_command_gives_maxtext_each_argument_as_it_stands_in_the_recipe() -> None:
    text = command(
        example(launch=RAW["launch"] | {"python": "show", "setup": ["show() { printf '[%s]' \"$@\"; }"], "after": ""})
    )
    shown = subprocess.run(["bash", "-c", filled(text, {"BASE_OUTPUT_DIR": "gs://b"})], capture_output=True, text=True)
    assert shown.stdout == (
        "[-m][MaxText.train][MaxText/configs/base.yml][model_name=toy][grain_train_files=/data/*.arrayrecord][prompt=two words]"
        "[base_output_directory=gs://b][run_name=][steps=30]"
    ), shown.stderr


def test_the_flags_of_the_compiler_are_a_variable_of_the_container() -> None:
    assert (
        "export LIBTPU_INIT_ARGS='--xla_tpu_scoped_vmem_limit_kib=65536 --xla_enable_async_all_gather=true' && cd /app"
        in command(example())
    )


def test_a_file_of_python_is_started_without_m() -> None:
    assert "&& python3 MaxText/train.py" in command(example(launch={"module": "MaxText/train.py"}))


def test_what_a_user_fills_in_is_listed_once_without_variables_of_the_pod() -> None:
    assert example().variables == ("WORKLOAD_IMAGE", "BASE_OUTPUT_DIR", "WORKLOAD_NAME")


def test_quantized_recipes_are_fp8() -> None:
    assert example().precision == "bf16"
    assert example(arguments={"quantization": "fp8_full"}).precision == "fp8"


def test_an_unknown_slice_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UserError, match="topology 4x4x5; type topology=tpu7x-4x4x4"):
        example(topology="tpu7x-4x4x5")


def test_a_smoke_run_changes_the_steps() -> None:
    recipe = load.smoke(example(), 3)
    assert isinstance(recipe, MaxTextRecipe)
    assert recipe.arguments["steps"] == "3"


def test_an_argument_is_set_by_its_key_and_stays_a_text() -> None:
    raw = {**RAW, "arguments": dict(RAW["arguments"])}
    for override in ("arguments.steps=5", "arguments.use_qwix=True", "environment.A=1=2", "versions.maxtext=0.2.5"):
        load._override(raw, override)
    recipe = load.require(load.parse(raw), MaxTextRecipe)
    assert recipe.arguments == RAW["arguments"] | {"steps": "5", "use_qwix": "True"}
    assert recipe.environment["A"] == "1=2" and recipe.versions.maxtext == "0.2.5"
    with pytest.raises(UserError, match=r"unknown key argument\.steps"):
        load._override(raw, "argument.steps=5")


LAUNCH = RAW["launch"]
HOSTILE = ["1$(touch x)", "1\ntouch x #", "1;touch x", "1`touch x`", "1\x1b[2J", "1 && touch x", "1'", '1"', "1\u2028x"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", ["versions.xpk", "versions.maxtext", "image", "name", "launch.module", "launch.python", "launch.base_config"])  # fmt: skip
def test_no_shell_text_where_scripts_have_a_word(key: str, value: str) -> None:
    section, _, name = key.partition(".")
    changes = {"launch": LAUNCH | {name: value}} if section == "launch" else {section: {name: value} if name else value}
    with pytest.raises(UserError, match=r"must |has the control character") as refused:
        example(**changes)
    assert key in str(refused.value) and str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"environment": {"A;touch x": "1"}}, "environment: its key A;touch x"),
        ({"xpk": {"a b": "s"}}, "xpk: its key a b"),
        ({"arguments": {"a b": "s"}}, "arguments: its key a b"),
        ({"arguments": {"steps": "3\n4"}}, "arguments.steps='3\\n4' has the control character"),
        ({"environment": {"A\nB": "s"}}, "environment: its key 'A\\nB'"),
        ({"xpk": {"env": "a\tb"}}, "has the control character"),
        ({"xla_flags": ["--a\n--b"]}, "xla_flags="),
        ({"description": "a\x1bb"}, "description="),
    ],
)
def test_keys_and_texts_that_are_refused(changes: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UserError) as refused:
        example(**changes)
    assert refusal in str(refused.value)


def test_what_an_import_writes_is_legal() -> None:
    versions = {"xpk": "0.16.1", "libtpu": "0.0.38 (nightly, 2026-01-02)", "maxtext": "tpu-recipes/v0.1.4", "jax": ""}
    launch = LAUNCH | {"python": "FOO=1 python3 -u", "module": "/tmp/train.sh", "after": "a\nb"}
    for image in ("gcr.io/${PROJECT_ID}/${USER_}_runner:a", "maxtext_base_image", "${WORKLOAD_IMAGE}"):
        assert example(versions=versions, launch=launch, image=image).image == image
