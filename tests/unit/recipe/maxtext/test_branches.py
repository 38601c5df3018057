"""The recipe of a script has the words that bash passes, whichever variables its conditions depend on."""

import pytest

from podwright.recipe import load
from podwright.recipe.maxtext import lint
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, filled
from tests.unit.recipe.maxtext.oracle import started
from tests.unit.recipe.maxtext.test_read import imported

CALL = """
xpk workload create --cluster=c --project=p --zone=us-central1-a --device-type=tpu7x-4x4x4 --docker-image=i --workload=abc --command="\\
python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-8b $Q base_output_directory=$BASE_OUTPUT_DIR/x run_name=abc"
"""
YES, NO = 'Q="quantization=fp8"', 'Q="dtype=bfloat16"'
FORMS = {
    "set to nothing": f'X=""; if [ -n "$X" ]; then {YES}; else {NO}; fi',
    "not set": f'if [ -n "$X" ]; then {YES}; else {NO}; fi',
    "a word alone": f'if [ "$X" ]; then {YES}; else {NO}; fi',
    "without quotes": f"if [ -n $X ]; then {YES}; else {NO}; fi",
    "test -z": f'test -z "$X" && {NO} || {YES}',
    "!=": f'if [ "$X" != "" ]; then {YES}; else {NO}; fi',
    "a value": f'if [[ $X == fp8 ]]; then {YES}; else {NO}; fi',
    "double brackets": f"[[ $X ]] && {YES} || {NO}",
    "not": f"if ! [[ -z $X ]]; then {YES}; else {NO}; fi",
    "case": f'case "$X" in "") {NO};; *) {YES};; esac',
    "a pattern of case": f'case "" in "$X") {NO};; *) {YES};; esac',
    ":+": 'Q="dtype=bfloat16${X:+ quantization=fp8}"',
    "+": "Q=${X+quantization=fp8}; Q=${Q:-dtype=bfloat16}",
    "a length": f"if [ ${{#X}} -gt 0 ]; then {YES}; else {NO}; fi",
    "another variable": f'Y="$X"; if [ -n "$Y" ]; then {YES}; else {NO}; fi',
    "a substitution": f'if [ -n "$(echo $X)" ]; then {YES}; else {NO}; fi',
    "a function": f'f() {{ if [ -n "$1" ]; then {YES}; else {NO}; fi; }}; f "$X"',
}  # fmt: skip
INDIRECT = {"case", "a pattern of case", ":+", "+", "another variable", "a function"}
"""forms with which the value that a target has is as good as the typed one: neither is empty"""


def recipe_of(result: ImportedScript) -> MaxTextRecipe:
    return load.require(load.parse(result.recipe), MaxTextRecipe)


def starts_the_same(result: ImportedScript) -> bool:
    original = next(word for word in result.argv if word.startswith("--command=")).partition("=")[2]
    return started(original) == started(filled(command(recipe_of(result)), result.filled))


@pytest.mark.parametrize("name", ["FP8", "BASE_OUTPUT_DIR", "ZONE"])
@pytest.mark.parametrize("form", FORMS)
def test_the_recipe_takes_the_branch_that_bash_takes_and_names_the_variable(form: str, name: str) -> None:
    result = imported("set -e\n" + FORMS[form].replace("X", name) + CALL)
    assert starts_the_same(result)
    assert recipe_of(result).arguments["base_output_directory"] == "${BASE_OUTPUT_DIR}/x"
    assert [(each.name, each.value) for each in result.deciding] == [(name, "")]
    (finding,) = [each for each in lint.of_script(result) if each.check == "branch"]
    assert (
        finding.message.startswith(f"{name} decides more of what is launched") and f"an empty {name}" in finding.message
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_typed_value_takes_its_own_branch(form: str) -> None:
    script = 'BASE_OUTPUT_DIR=""\n' + FORMS[form].replace("X", "BASE_OUTPUT_DIR") + CALL
    result = imported(script, BASE_OUTPUT_DIR="gs://b")
    assert starts_the_same(result)
    assert recipe_of(result).arguments["base_output_directory"] == "${BASE_OUTPUT_DIR}/x"
    assert {each.value for each in result.deciding} == (set() if form in INDIRECT else {"gs://b"})


@pytest.mark.parametrize(
    "harmless",
    [
        'if [ -z "$FP8" ]; then echo none; fi',
        'if [ -n "$FP8" ]; then echo none; exit 1; fi',
        "ZONE=${ZONE:-us-central1-a}",
        'if [ -z "$ZONE" ]; then ZONE=us-central1-a; fi',
        ": ${FP8:=}",
        'for x in a "$FP8"; do echo $x; done',
    ],
)
def test_a_condition_that_changes_no_word_is_no_finding(harmless: str) -> None:
    result = imported(f"Q=steps=3\n{harmless}{CALL}")
    assert starts_the_same(result) and not result.deciding


def test_a_loop_over_an_empty_variable_has_no_turn() -> None:
    assert starts_the_same(imported(f"Q=steps=3; for x in $FP8; do {YES}; done{CALL}"))


@pytest.mark.parametrize("change", ["${ZONE:0:4}", "${ZONE^^}", "${ZONE//-/_}", "$(echo $ZONE | cut -c1-4)"])
def test_a_value_whose_text_the_script_changes_stays_a_value(change: str) -> None:
    script = f'ZONE="us-central1-a"\nQ="zone={change}"{CALL}'.replace("--zone=us-central1-a", "--zone=$ZONE")
    result = imported(script)
    assert starts_the_same(result)
    assert [each.name for each in result.deciding] == ["ZONE"]
    (finding,) = [each for each in lint.of_script(result) if each.check == "branch"]
    assert finding.message.endswith("the recipe has the words for ZONE=us-central1-a")


def test_a_default_that_is_empty_leaves_the_variable_open() -> None:
    result = imported(f"Q=tag=${{TAG:-}}{CALL}")
    assert recipe_of(result).arguments["tag"] == "${TAG}" and not result.deciding


def test_a_branch_of_a_training_script_is_left_to_the_container() -> None:
    branch = f'if [ -n "$FP8" ]; then {YES}; else {NO}; fi'
    result = imported(f'FP8=""\n{branch}\npython3 -m MaxText.train c.yml steps=3 $Q\n', topology="tpu7x-4x4x4")
    assert recipe_of(result).arguments == {"steps": "3"}
    assert recipe_of(result).launch.after == "$Q" and branch in recipe_of(result).launch.setup
    words = started(filled(command(recipe_of(result)), {"FP8": ""}))[0]
    assert words[-1] == "dtype=bfloat16"
