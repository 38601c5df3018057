"""A launch script becomes a recipe whose command runs the same program, with the same words and variables."""

import functools
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import script
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, filled
from podwright.sandbox import container, read
from podwright.sandbox.container import ContainerCommand
from tests.unit.recipe.maxtext.example import example
from tests.unit.recipe.maxtext.launch_script import REFUSED, SCRIPT, VALUES, changed
from tests.unit.recipe.maxtext.oracle import NOW, USER, started

README = """
-   Libtpu version: 0.0.32.dev20251215+nightly
-   Jax version: 0.8.2
-   Maxtext version: maxtext-tutorial-v1.5.0
-   Python: 3.11
-   XPK: 1.7.0
"""


def imported(
    text: str = SCRIPT, path: str = "/tree/toy-1b/4k-bf16-tpu7x-4x4x4/xpk/run_recipe.sh", **values: str
) -> ImportedScript:
    return read.read(Path(path), text, {"USER": USER, "HOME": "/house/x"} | values, NOW, {"README.md": README})


@functools.cache
def recipe(text: str = SCRIPT, **values: str) -> MaxTextRecipe:
    return load.require(load.parse(imported(text, **values).recipe), MaxTextRecipe)


def split(text: str) -> ContainerCommand:
    return container.split(text, read._Runs(Path("/x/run.sh"), "", {}, NOW, {}, False).hear)


def test_the_parts_of_a_script_are_values_of_a_recipe() -> None:
    got = recipe()
    assert (got.name, got.topology, got.num_slices) == ("toy-1b-4k-bf16-tpu7x-4x4x4", "tpu7x-4x4x4", 1)
    assert got.launch.model_dump() == {
        "module": "MaxText.train",
        "base_config": "MaxText/configs/base.yml",
        "python": "python3",
        "setup": (
            "set -o pipefail",
            "cd /deps",
            "pip install git+https://example.com/kernels.git@4936e75 --no-deps",
            "echo 'Starting training ...'",
        ),
        "after": "| tee train.log && gsutil cp train.log ${BASE_OUTPUT_DIR}/logs/train-${TPU_WORKER_ID}.log",
    }
    assert got.xla_flags == (
        "--xla_tpu_scoped_vmem_limit_kib=65536",
        "--xla_tpu_rwb_fusion=false",
        "--xla_enable_async_all_gather=true",
    )
    assert got.environment == {
        "ENABLE_PATHWAYS_PERSISTENCE": "1",
        "ARTIFACT_DIR": "${BASE_OUTPUT_DIR}",
        "JAX_PLATFORMS": "tpu,cpu",
        "MAXTEXT_PKG_DIR": "/deps/src",
        "HF_HUB_CACHE": "/dev/shm",
    }
    assert got.xpk == {"priority": "very-high", "max-restarts": "0", "enable-debug-logs": ""}
    assert got.versions.model_dump() == {
        "maxtext": "maxtext-tutorial-v1.5.0",
        "jax": "0.8.2",
        "libtpu": "0.0.32.dev20251215+nightly",
        "python": "3.11",
        "xpk": "1.8.0",
    }


def test_arguments_are_decoded_and_keep_their_order() -> None:
    got = recipe().arguments
    assert list(got)[:3] == ["output_dir", "model_name", "per_device_batch_size"]
    assert got["grain_train_files"] == "/data/mounted/c4/3.0.1/*.arrayrecord"
    assert got["weight_quantization_calibration_method"] == "fixed,-224,224"
    assert got["prompt"] == "a singer in dim lighting. She smiles."
    assert got["jax_cache_dir"] == "${BASE_OUTPUT_DIR}/data_v1/jax_cache/"
    assert got["base_output_directory"] == "${YOUR_GCS_BUCKET_PATH}"


def test_what_was_typed_fills_the_call_and_leaves_the_recipe_as_it_is() -> None:
    values = VALUES | {"MOUNTED": "/lustre"}
    got = imported(SCRIPT, **values)
    assert f"--docker-image={VALUES['WORKLOAD_IMAGE']}" in got.argv and "--cluster=a-cluster" in got.argv
    assert "output_dir=gs://a-bucket/runs" in got.argv[-1]
    assert recipe(SCRIPT, **values) == recipe(MOUNTED="/lustre")
    assert recipe(MOUNTED="/lustre").arguments["grain_train_files"] == "/lustre/c4/3.0.1/*.arrayrecord"


def test_differences_and_repetitions_are_in_the_notes() -> None:
    assert imported().notes == {
        "versions.xpk": "1.8.0 in the script, 1.7.0 in the README beside it",
        "arguments.output_dir": "there more than once: the last one counts, not ${BASE_OUTPUT_DIR}",
    }


def test_the_command_of_the_recipe_starts_the_same_program() -> None:
    values = VALUES | {"your-gcs-bucket-path": "gs://b", "WORKLOAD_NAME": "w"}
    fill = {**values, "YOUR_GCS_BUCKET_PATH": "gs://b"}
    original = imported(SCRIPT, **values).argv[-1].removeprefix("--command=")
    words, variables = started(original)
    again_words, again_variables = started(filled(command(recipe()), fill))
    keys = {word.partition("=")[0]: word for word in words}
    assert again_words == list(keys.values())
    flags = variables.pop("LIBTPU_INIT_ARGS"), again_variables.pop("LIBTPU_INIT_ARGS")
    assert flags[0].split() == flags[1].split() and variables == again_variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python3 MaxText/train.py MaxText/configs/base.yml steps=1", {"module": "MaxText/train.py", "arguments": {"steps": "1"}}),
        ("set -e; export A=1\npython -u -m MaxText.train base.yml x=1 --flag y=2 2>&1 | tee l; echo done", {
            "python": "python -u", "environment": {"A": "1"}, "arguments": {"x": "1", "y": "2"}, "after": "--flag 2>&1 | tee l; echo done"}),
        ("export P=$PATH:/x && python3 -m MaxText.train base.yml run_name=$HOSTNAME x=${A}", {
            "setup": ["export P=$PATH:/x"], "after": "run_name=$HOSTNAME x=${A-}"}),
        ("D=/deps; cd $D && mkdir -p $D/a || true; python3 -m MaxText.train base.yml x=$D", {
            "setup": ["D=/deps", "cd /deps", "mkdir -p $D/a || true"], "arguments": {"x": "/deps"}}),
        ("if [ -d /x ]; then A=1; fi; python3 -m MaxText.train base.yml x=1", {"setup": ["if [ -d /x ]; then A=1; fi"]}),
        ("python3 -m pip install -e . && python3 -m MaxText.train base.yml", {"setup": ["python3 -m pip install -e ."]}),
        ("gsutil cp gs://b/t.sh /tmp/t.sh && bash /tmp/t.sh", {"module": "/tmp/t.sh", "setup": ["gsutil cp gs://b/t.sh /tmp/t.sh"]}),
    ],
)  # fmt: skip
def test_commands_of_other_forms_are_split(text: str, expected: dict[str, Any]) -> None:
    parts = split(text)
    assert {key: getattr(parts, key) for key in expected} == expected


TRAIN = "set -e && python3 -m MaxText.train base.yml x=1"


@pytest.mark.parametrize(
    ("text", "setup", "after"),
    [
        (f"{TRAIN} ; X=1 Y=2", [], "; X=1 Y=2"),
        (f"{TRAIN}; echo done; exit 1", [], "; echo done; exit 1"),
        (f"{TRAIN} b=2; rm -rf /x z=3", [], "; rm -rf /x z=3"),
        (f"{TRAIN}\n# a comment\necho done\n# another", [], "; echo done"),
        (f"{TRAIN}; watch.sh & echo done", [], "; { watch.sh & }; echo done"),
        (f"{TRAIN} 2>&1 | tee log.txt", [], "2>&1 | tee log.txt"),
        (f"{TRAIN} 2>/dev/null y=2 > log", [], "2>/dev/null > log"),
        (f"{TRAIN} run_name=$HOME/$(date +%F)-x", [], "run_name=$HOME/$(date +%F)-x"),
        (f"{TRAIN} y=$(touch '/tmp/a b') z=`id -u`", [], "y=$(touch '/tmp/a b') z=`id -u`"),
        (f"export A=1 & sleep 9 & {TRAIN}", ["{ export A=1 & }", "{ sleep 9 & }"], ""),
        (f"export A=$HOME && {TRAIN[10:]}", ["export A=$HOME"], ""),
        (f"A=$HOME/$(id -u) {TRAIN[10:]}", ["export A=$HOME/$(id -u)"], ""),
        (f"D=/x; ! test -d $D && {TRAIN}", ["D=/x", "! test -d $D"], ""),
    ],
)
def test_separators_and_shell_text_around_training_are_kept(text: str, setup: list[str], after: str) -> None:
    parts = split(text)
    assert (parts.setup, parts.after, parts.arguments["x"]) == (setup, after, "1")
    assert "A" not in parts.environment and not {"X", "Y"} & set(parts.arguments)


PRINTS = '#!/bin/bash\necho "A=$A" "${@:2}" | tr " " "\\n" | sort | tr "\\n" " "\n'


@pytest.mark.parametrize(
    "text",
    [
        f"{TRAIN} ; X=1 Y=2; echo $X$Y; exit 3",
        f"{TRAIN}\n# a comment\necho done\n# another\n",
        f"{TRAIN} y=$HOME z=`id -u` w=$(echo a b) 2>&1 v='a;b&c' | cat; echo '#no'",
        f"export A=1 & echo first & wait; {TRAIN}",
        "A=$HOME/$(id -u) python3 -m MaxText.train base.yml x=1 && echo done || true",
        f"D=/none; ! test -d $D && {TRAIN}; sleep 0 & wait; echo last",
    ],
)
def test_a_command_and_that_of_its_recipe_do_the_same(tmp_path: Path, text: str) -> None:
    """Both are run by bash, with a program in place of python3 that prints its words."""
    (tmp_path / "python3").write_text(PRINTS)
    (tmp_path / "python3").chmod(0o755)
    parts = split(text)
    launch = {key: getattr(parts, key) for key in ("module", "base_config", "python", "setup", "after")}
    rebuilt = command(example(launch=launch, arguments=parts.arguments, environment=parts.environment, xla_flags=[]))
    outputs = [
        subprocess.run(
            ["bash", "-c", f"({shell_text}) & wait $!; echo $?"],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": "/house of x"},
        ).stdout
        for shell_text in (text, rebuilt)
    ]
    assert outputs[0] == outputs[1] and "x=1" in outputs[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TRAIN} & wait", "training runs in the background (&), where its exit code is lost"),
        (f"{TRAIN} y=a&b z=3", "training runs in the background (&)"),
        (f"{TRAIN} # y=2", "# y=2 is a comment: nothing in it reaches MaxText"),
        (f"{TRAIN} \\\n# y=2\nz=3", "# y=2 is a comment: nothing in it reaches MaxText"),
        (f"{TRAIN} || true", "training has || true behind it, which hides its exit code"),
        (f"! {TRAIN[10:]}", "! before training turns its exit code round"),
        (f"{TRAIN} <<EOF\nx\nEOF\n", "line 1: a here-document is not read"),
        ("env A=1 python3 -m MaxText.train b.yml", "starts no training that is known: env A=1 python3 -m MaxText.train"),
        ("for i in 1; do\npython3 -m MaxText.train b.yml; done", "starts no training that is known: for i in 1; do"),
    ],
)  # fmt: skip
def test_what_would_be_lost_of_a_command_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        split(text)
    assert message in caught.value.what


def test_what_is_left_out_of_a_command_is_in_the_notes() -> None:
    notes = split("set -x; time python3 -m MaxText.train base.yml x=1; echo done").notes
    assert "-e and -o pipefail alone" in notes["set -x"] and "left out" in notes["time"]
    assert "no argument of MaxText" in notes["; echo done"] and "begins with set -e" in notes["; echo done"]
    semicolon = imported(changed("| tee train.log", "; echo ${WORKLOAD_NAME}")).notes
    assert "; echo ${WORKLOAD_NAME}" in next(key for key in semicolon if key.startswith("; "))
    message = refused(changed("${MAXTEXT_ARGS} | tee train.log", "${MAXTEXT_ARGS} run_name=${WORKLOAD_NAME} || true"))
    assert "|| true" in message and "\ue000" not in message


def test_a_call_without_a_slice_says_what_to_write() -> None:
    message = refused(changed("  --device-type=tpu7x-4x4x4 \\\n", ""))
    assert message.endswith("or its value is empty; write --device-type=tpu7x-4x4x4 in the script")


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        imported(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "steps", "expected"),
    [
        ("", "${STEPS:-40}", "40"),
        ("", "${STEPS-40}", "40"),
        (': "${STEPS:=40}"', "$STEPS", "40"),
        ('STEPS=""; STEPS+=40', "$STEPS", "40"),
        ('for n in 4 0; do STEPS="$STEPS$n"; done', "$STEPS", "40"),
        ("", "${STEPS:-}", "${STEPS}"),
        ('STEPS=""', "$STEPS", "${STEPS}"),
    ],
)
def test_a_value_that_the_script_has_itself_is_no_placeholder(before: str, steps: str, expected: str) -> None:
    text = changed("steps=30", f"steps={steps}").replace("MAXTEXT_ARGS=", f"{before}\nMAXTEXT_ARGS=", 1)
    assert recipe(text).arguments["steps"] == expected
    assert ("STEPS" in imported(text).unset) == (expected == "${STEPS}" and not before)
    if "for" not in before:  # what is typed follows lines of assignments alone, as docs/sandbox.md says
        assert recipe(text, STEPS="7").arguments["steps"] == "7"


@pytest.mark.parametrize("word", ["${1:?no steps}", "${2?}"])
def test_a_missing_positional_value_is_to_be_written_out(word: str) -> None:
    assert "does not reach its call of xpk workload create" in refused(changed("steps=30", f"steps={word}"))


@pytest.mark.parametrize("variable", ["$RANDOM", "$0", "$$", "$SECONDS", "$HOSTNAME"])
def test_a_value_of_the_machine_is_to_be_written_out(variable: str) -> None:
    message = refused(changed("steps=30", f"steps={variable}"))
    assert "depends on a file, or on what differs at each run; write the value out in a copy of the script" in message


def test_the_remedy_for_a_value_that_depends_on_a_program_leads_on() -> None:
    condition = "test -e /data && export STEPS=7"
    text = changed("steps=30", "steps=$STEPS").replace("MAXTEXT_ARGS=", f"{condition}\nMAXTEXT_ARGS=", 1)
    assert " steps= " in refused(text) and "of its call of xpk depends on a file" in refused(text)
    assert recipe(text.replace(condition, f"{condition}\nSTEPS=9")).arguments["steps"] == "9"


def test_a_file_to_source_without_a_name_is_passed_over() -> None:
    read_script = imported(changed("set -e\n", "source $VENV\nset -e\n"))
    assert read_script.recipe["arguments"] == recipe().arguments


def test_a_call_of_xpk_in_a_comment_does_not_count() -> None:
    text = "# submitted by xpk workload create\npython3 -m MaxText.train base.yml model_name=m steps=4\n"
    assert imported(text, topology="tpu7x-64").recipe["arguments"]["steps"] == "4"
    assert imported("# calls xpk workload create\nXPK=xpk\n" + SCRIPT.replace("xpk workload", "$XPK workload")).argv


def test_a_script_without_xpk_is_refused() -> None:
    with pytest.raises(UserError, match="does not call xpk workload create; name a script that calls xpk"):
        imported("python3 -m benchmarks.other xpk --device_type=v6e-256\n")


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("python3 benchmarks/benchmark_runner.py xpk --device_type=v6e-256\n", "benchmark_runner"),
        ("python3 -m MaxText.benchmark_runner xpk --device_type=v6e-256\n", "benchmark_runner"),
        ("xpk workload create-pathways --cluster=c --tpu-type=v6e-16\n", "workload create-pathways"),
        ("xpk.py workload  create-pathways \\\n --cluster=c\n", "workload  create-pathways"),
    ],
)
def test_a_script_of_another_launcher_is_named_as_one(text: str, launcher: str) -> None:
    with pytest.raises(UserError, match=f"starts its training by {launcher}, which is not read yet"):
        imported(f"# not xpk workload create\n{text}")
    assert "benchmark_runner" not in script.why_unread("# benchmark_runner\n")


@pytest.mark.parametrize("before", ["exit 0", "xpk() { echo no; }"])
def test_a_call_of_xpk_that_is_not_reached_is_named(before: str) -> None:
    message = refused(changed("set -e\n", f"{before}\nset -e\n"))
    assert "does not reach its call of xpk workload create" in message


def test_an_unknown_slice_is_refused_with_one_to_type() -> None:
    message = refused(changed("tpu7x-4x4x4", "tpu9x-4x4x4"))
    assert message.endswith("--device-type=tpu9x-4x4x4 is no TPU slice; type --device-type=tpu7x-4x4x4")


def test_a_slice_that_is_not_sold_is_refused() -> None:
    with pytest.raises(UserError, match=r"no tpu7x slice is sold with topology 4x4x6; type --device-type=\S+ or .*"):
        imported(changed("tpu7x-4x4x4", "tpu7x-4x4x6"))


def test_the_name_comes_from_the_folders() -> None:
    assert recipe().name == "toy-1b-4k-bf16-tpu7x-4x4x4"
    assert imported(SCRIPT, path="/house/me/my runs/run.sh").recipe["name"] == "my-runs"


def test_what_a_script_and_its_user_say_of_the_cluster_is_kept_for_a_target() -> None:
    text = SCRIPT.replace('CLUSTER_NAME=""', 'CLUSTER_NAME="theirs"').replace(
        "--project=$PROJECT_ID", "--project=<project>"
    )
    got = imported(text, WORKLOAD_NAME="mine", ZONE="us-east5-a")
    assert got.target == {"cluster": "theirs", "zone": "us-east5-a"} and "--cluster=theirs" in got.argv


@pytest.mark.long
def test_a_script_with_a_large_array_is_read_within_a_minute() -> None:
    """780 KB on one line; a reader that looks at each character by itself takes 12 s of processor time for it."""
    elements = " ".join(f"k{number}=v{number}" for number in range(60_000))
    text = changed("set -e\n", f"LARGE=({elements})\nset -e\n").replace("steps=30", "steps=${LARGE[7]#*=v}")
    begun_s = time.process_time()
    assert recipe(text).arguments["steps"] == "7"
    assert time.process_time() - begun_s < 60


def test_a_variable_of_a_target_that_the_script_only_uses_is_left_to_the_target() -> None:
    text = changed('export BASE_OUTPUT_DIR="" # for example, gs://<your_gcs_bucket>\n', "")
    for values in ({}, {"BASE_OUTPUT_DIR": "gs://typed/x"}):
        got = recipe(text, **values)
        assert got.arguments["output_dir"] == "${BASE_OUTPUT_DIR}" and "gs://typed" not in str(got)
    assert "output_dir=gs://typed/x" in imported(text, BASE_OUTPUT_DIR="gs://typed/x").argv[-1]
    own = changed('export BASE_OUTPUT_DIR=""', 'export BASE_OUTPUT_DIR="${BASE_OUTPUT_DIR:-gs://own/x}"')
    assert recipe(own).arguments["output_dir"] == "gs://own/x"
    assert recipe(own, BASE_OUTPUT_DIR="gs://typed/x").arguments["output_dir"] == "gs://typed/x"


@pytest.mark.parametrize("before", ["", 'bucket=""\n', "bucket=\n"])
def test_a_variable_in_small_letters_is_one_of_the_recipe_in_capitals(before: str) -> None:
    text = changed('MAXTEXT_ARGS="', f'{before}MAXTEXT_ARGS="').replace(
        "output_dir=${BASE", "tag=$bucket/x output_dir=${BASE"
    )
    got = recipe(text)
    assert got.arguments["tag"] == "${BUCKET}/x" and "BUCKET" in got.variables
    assert recipe(text, bucket="b").arguments["tag"] == "b/x"
    both = recipe(text.replace("tag=$bucket", "other=$BUCKET tag=$bucket"))
    assert (both.arguments["other"], both.arguments["tag"]) == ("${BUCKET}", "${BUCKET_}/x")


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("\\$DIR/base.yml", "${DIR-}/base.yml"),
        ("\\${DIR}/base.yml", "${DIR-}/base.yml"),
        ("${HOME}/base.yml", "/house/x/base.yml"),
    ],
)
def test_the_configuration_file_stays_the_first_word(config: str, kept: str) -> None:
    text = changed("MaxText/configs/base.yml", config).replace("cd /deps &&", "DIR=\\$(pwd) && cd /deps &&")
    got = recipe(text)
    assert got.launch.base_config == kept and "base.yml" not in got.launch.after
    words = command(got).split()
    assert words[words.index("MaxText.train") + 1] == kept


def test_variables_of_flags_and_of_the_configuration_file_are_filled_in() -> None:
    text = changed("--xla_tpu_rwb_fusion=false", "--xla_tpu_rwb_fusion=$RWB").replace(
        "MaxText/configs/base.yml", "$CONFIGS/base.yml"
    )
    got = recipe(text)
    assert got.xla_flags[1] == "--xla_tpu_rwb_fusion=${RWB}" and got.launch.base_config == "${CONFIGS}/base.yml"
    assert {"RWB", "CONFIGS"} <= set(got.variables)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known_is_refused(name: str) -> None:
    old, new, words = REFUSED[name]
    assert re.search(words, refused(changed(old, new)))


@pytest.mark.parametrize("line", ["{ ZONE=other; }", "case $USER in *) ZONE=other ;; esac", "read ZONE <<< other"])
def test_a_typed_value_counts_where_the_script_sets_another(line: str) -> None:
    text = changed('echo "===', f'{line}\necho "===')
    assert "--zone=other" in imported(text).argv
    assert "--zone=us-east5-a" in imported(text, ZONE="us-east5-a").argv
    passed = imported(changed("xpk workload create", "ZONE=other xpk workload create"), ZONE="us-east5-a")
    assert "--zone=us-east5-a" in passed.argv
    with pytest.raises(UserError, match="sets ZONE to 'other' itself, in place of 'us-east5-a'"):
        imported(changed('echo "===', 'trap - DEBUG; ZONE=other\necho "==='), ZONE="us-east5-a")


@pytest.mark.parametrize(
    ("steps", "value"),
    [
        ("$((10 + 4))", "14"),
        ("$(echo a,b | sed s/a,b/14/)", "14"),
        ("${#ITEMS[@]}", "2"),
        ("$(printf %s x | wc -c)", "1"),
    ],
)
def test_what_bash_computes_is_the_value(steps: str, value: str) -> None:
    text = changed("steps=30", f"steps={steps}").replace(
        "set -e\n", "ITEMS=(a b)\nsleep 9 &\ncd /none/of/it\nset -e\n", 1
    )
    assert recipe(text).arguments["steps"] == value


def test_a_file_that_lies_beside_the_script_may_be_asked_for() -> None:
    text = changed('export ZONE=""', "if [ -f env.sh ]; then source ./env.sh; fi\nsource other.sh")
    path, values = Path("/tree/toy/4k-tpu7x-4x4x4/run.sh"), {"USER": USER, "HOME": "/house/x"}
    got = read.read(path, text, values, NOW, {"env.sh": "export ZONE=us-east5-a\nexport BASE_OUTPUT_DIR=gs://env\n"})
    assert (
        got.target["zone"] == "us-east5-a" and got.notes["other.sh"] == "it is not beside the script, and was not read"
    )
