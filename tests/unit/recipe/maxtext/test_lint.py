"""What is found in a recipe and in the script it is from, with what to type."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.plan.checks import maxtext as checks
from podwright.recipe import load
from podwright.recipe.maxtext import lint
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.sandbox import read
from podwright.targets.gke import rendering
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.recipe.maxtext.launch_script import SCRIPT
from tests.unit.recipe.maxtext.oracle import NOW
from tests.unit.targets.gke.entry import gke


def found(check: str, **changes: Any) -> list[LintFinding]:
    return [finding for finding in lint.of_recipe(example(**changes)) if finding.check == check]


def of_script(text: str) -> dict[str, LintFinding]:
    imported = read.read(Path("/x/run.sh"), text, {"USER": "tester", "HOME": "/h"}, NOW, {})
    return {finding.check: finding for finding in lint.of_script(imported)}


def typed(finding: LintFinding, recipe: MaxTextRecipe) -> MaxTextRecipe:
    """The recipe with what the finding says to type."""
    words = shlex.split(finding.fix.removeprefix("type ").partition(", ")[0])
    return load.require(load.override(recipe, words), MaxTextRecipe)


def test_a_good_recipe_has_no_finding() -> None:
    assert lint.of_recipe(example()) == []


@pytest.mark.parametrize(
    ("check", "level", "changes"),
    [
        ("placeholder", "error", {"arguments": {"base_output_directory": "${YOUR_BUCKET}"}}),
        ("placeholder", "error", {"arguments": {"output_dir": "gs://<bucket>"}}),
    ],
)  # fmt: skip
def test_a_fault_is_found_and_what_it_says_to_type_mends_it(check: str, level: str, changes: dict[str, Any]) -> None:
    recipe = example(**changes)
    (finding,) = found(check, **changes)
    assert finding.level == level
    left = [f for f in lint.of_recipe(typed(finding, recipe)) if f.check == check]
    assert left == [], finding.fix


def test_an_upload_without_its_directory_is_found() -> None:
    after = "| tee train.log && gsutil cp train.log ${ARTIFACT_DIR}/logs/train-${TPU_WORKER_ID}.log"
    (finding,) = found("artifact-dir", launch=RAW["launch"] | {"after": after})
    assert finding.level == "error" and "the run counts as failed" in finding.message
    text = SCRIPT.replace('ARTIFACT_DIR="${BASE_OUTPUT_DIR}"', 'ARTIFACT_DIR=""')
    values = {"USER": "u", "HOME": "/h", "ARTIFACT_DIR": "gs://bucket/x"}
    imported = read.read(Path("/x/run.sh"), text, values, NOW, {})
    recipe = load.require(load.parse(imported.recipe), MaxTextRecipe)
    assert "gs://bucket/x/logs/" in recipe.launch.after
    assert "artifact-dir" not in [f.check for f in lint.of_recipe(recipe)]


def test_an_option_that_no_known_xpk_has() -> None:
    (finding,) = found("xpk-option", versions={"xpk": "1.8.0"}, xpk={"num-node": "2", "max-restarts": "0"})
    assert finding.level == "error" and finding.message.startswith("xpk workload create has no option --num-node")
    assert finding.fix == "did you mean --num-nodes?"
    (finding,) = found("xpk-option", versions={"xpk": "1.17.0"}, xpk={"num-node": "2"})
    assert finding.level == "inconclusive" and "xpk 1.17.0, which the recipe asks for, may have it" in finding.message


def test_an_option_that_a_run_or_a_target_decides_is_found() -> None:
    (finding,) = found("xpk-option", xpk={"workload": "zzz", "max-restarts": "0"})
    assert (
        finding.level == "error" and finding.message == "a recipe cannot set xpk.workload: a run has a name of its own"
    )
    assert finding.fix == "leave xpk.workload out; type --name NAME with podwright run"


@pytest.mark.parametrize("part", ["for i in a b\ndo\n  touch $i\ndone", "if true\nthen\n  pip list\nfi"])
def test_commands_on_several_lines_are_found_before_they_are_rendered(part: str) -> None:
    recipe = example(launch=RAW["launch"] | {"setup": ["cd /app", part]})
    (finding,) = [each for each in lint.of_recipe(recipe) if each.check == "line-break"]
    assert finding.level == "error" and f"several lines from {part.splitlines()[0]!r} on" in finding.message
    (in_plan,) = [f for f in checks.check(recipe, checks.written_for(recipe), Path()) if f.message == finding.message]
    assert (in_plan.check, in_plan.level) == ("launch", "error")
    with pytest.raises(UserError, match=r"has a line break|has the control character"):
        rendering.maxtext(recipe, gke(), "pod", {})
    one = part.replace("\n", "; ").replace("do; ", "do ").replace("then; ", "then ")
    assert not found("line-break", launch=RAW["launch"] | {"setup": ["cd /app", one]})


@pytest.mark.parametrize(
    ("after", "level", "fix"),
    [
        ("base_output_directory=$BASE_OUTPUT_DIR", "error", "type environment.BASE_OUTPUT_DIR='${BASE_OUTPUT_DIR}', which the target fills in"),
        ("x=${BASE_OUTPUT_DIR-}", "error", "type environment.BASE_OUTPUT_DIR='${BASE_OUTPUT_DIR}', which"),
        ("run_name=$RUN", "inconclusive", "type environment.RUN=VALUE"),
        ('| tee "${logdir}/x"', "inconclusive", "type environment.logdir=VALUE"),
        ("x=${RUN%%-*}", "inconclusive", "type environment.RUN=VALUE"),
    ],
)  # fmt: skip
def test_a_variable_that_the_container_does_not_have_is_found(after: str, level: str, fix: str) -> None:
    (finding,) = found("unset", launch=RAW["launch"] | {"after": after})
    assert finding.level == level and finding.fix.startswith(fix) and "its place is empty" in finding.message
    recipe = example(launch=RAW["launch"] | {"after": after})
    (in_plan,) = [f for f in checks.check(recipe, checks.written_for(recipe), Path()) if f.message == finding.message]
    assert in_plan.level == level
    name = finding.fix.partition("environment.")[2].partition("=")[0]
    assert not found("unset", launch=RAW["launch"] | {"after": after}, environment={name: "x"})


@pytest.mark.parametrize(
    ("setup", "after"),
    [
        ([], "run_name=$HOSTNAME-${TPU_WORKER_ID}"),
        (["RUN=$(date +%F)"], "run_name=$RUN"),
        (["cd /app && export RUN=1"], "run_name=${RUN}"),
        (["for i in a b; do echo $i; done"], ""),
        (["read -r A B < /x"], "a=$A b=$B"),
        ([], "a='$LITERAL' b=\\$ESCAPED c=${X:-default} d=${X:+set}"),
    ],
)
def test_a_variable_that_something_sets_is_no_finding(setup: list[str], after: str) -> None:
    assert found("unset", launch=RAW["launch"] | {"setup": setup, "after": after}) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arguments": {"output_dir": "$BUCKET/x"}}, "arguments.output_dir is '$BUCKET/x', and no shell reads it: $BUCKET is passed on"),
        ({"arguments": {"output_dir": "${bucket}/x"}}, "arguments.output_dir is '${bucket}/x', and no shell reads it: ${bucket} is"),
        ({"environment": {"HF_TOKEN": "$HF_TOKEN"}}, "environment.HF_TOKEN is '$HF_TOKEN', and no shell reads it"),
        ({"xla_flags": ["--xla_a=$A"]}, "xla_flags is '--xla_a=$A', and no shell reads it: $A is"),
    ],
)  # fmt: skip
def test_a_variable_that_would_be_passed_on_as_it_stands_is_found(changes: dict[str, Any], message: str) -> None:
    (finding,) = found("literal", **changes)
    assert finding.level == "error" and finding.message.startswith(message)


def test_a_key_of_maxtext_within_a_value_is_filled_in_by_maxtext() -> None:
    assert found("literal", arguments={"run_name": "x-${steps}", "prompt": "a $b c"}) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [(["foo"], "'foo'"), (["--xla_a=1", "true"], "'true'"), (["--xla_a=1 --xla_b=2"], "a blank: libtpu reads two")],
)
def test_a_word_that_is_no_flag_is_found(flags: list[str], named: str) -> None:
    (finding,) = found("xla-flags", xla_flags=flags)
    assert finding.level == "error" and named in finding.message
    recipe = example(xla_flags=flags)
    assert "error" in {f.level for f in checks.check(recipe, checks.written_for(recipe), Path()) if f.check == "launch"}


@pytest.mark.parametrize(
    ("launch", "named"),
    [
        ({"after": "| tee 'x"}, "a quote"),
        ({"after": "| tee x # y"}, "a comment"),
        ({"setup": ['echo "x']}, "a quote"),
        ({"setup": ["cd /x # y"]}, "a comment"),
    ],
)
def test_shell_text_that_takes_in_what_follows_is_found(launch: dict[str, Any], named: str) -> None:
    (finding,) = found("syntax", launch=RAW["launch"] | launch)
    assert finding.level == "error" and named in finding.message
    sound = {"setup": ["while read x; do echo '#'; done < /f"], "after": "2>&1 | tee a#b"}
    assert found("syntax", launch=RAW["launch"] | sound) == []


def test_a_second_training_is_named() -> None:
    after = "&& JAX=1 python3 -m MaxText.train base.yml steps=1"
    (finding,) = found("second-training", launch=RAW["launch"] | {"after": after})
    assert finding.level == "inconclusive"
    assert found("second-training", launch=RAW["launch"] | {"after": "&& python3 upload.py MaxText"}) == []


def test_flags_with_one_dash_or_a_value_of_its_own_are_flags() -> None:
    assert found("xla-flags", xla_flags=["--2a886c8_chip_config_name=x", "-xla_b", "--xla_c", "5"]) == []


def test_a_training_script_that_is_not_there_is_found() -> None:
    (finding,) = found("training-script", launch={"module": "/tmp/train.sh"}, arguments={})
    assert finding.level == "inconclusive" and finding.fix == "put train.sh beside the launch script and import again"


def test_packages_that_each_container_installs_are_found() -> None:
    (network,) = found("network", launch=RAW["launch"] | {"setup": ["cd /deps", "pip install --no-deps -e ."]})
    assert "`pip install --no-deps -e .` at its start" in network.message


def test_an_upload_to_a_folder_of_the_container_is_corrected_in_the_recipe() -> None:
    after = "| tee train.log && gsutil cp train.log /logs/train.log"
    (finding,) = found("artifact-dir", launch=RAW["launch"] | {"after": after})
    assert finding.message.startswith("the log is copied to /logs/, a folder of the container")
    assert finding.fix == "write gs://BUCKET/FOLDER before /logs/ in launch.after"


def test_a_variable_that_is_not_set_is_found_with_its_line() -> None:
    finding = of_script(SCRIPT.replace("--zone=$ZONE", "--zone=$ZONES"))["unset"]
    line = SCRIPT[: SCRIPT.index("--zone=$ZONE")].count("\n") + 1
    assert finding.message == f"the script uses ZONES (line {line}) and does not set it"
    assert finding.fix == "type ZONES=VALUE"
