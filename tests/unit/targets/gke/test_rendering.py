"""`podwright render`: what is filled in, what is refused in one line, and which files are written, kept and replaced."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.cli.app import main
from podwright.cli.exit_codes import ExitCode
from podwright.errors import UserError
from podwright.recipe.maxtext.schema import MaxTextVersions, command, command_lines
from podwright.targets.gke import folder, jobset, rendering, workload
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.targets.gke.entry import ENTRY, gke
from tests.unit.targets.gke.rendered import Scripts

HOSTILE = ["$(touch HERE)", "`touch HERE`", "'; touch HERE; '", '"; touch HERE; "', "x & touch HERE", "$HOME", "*", "<(touch HERE)"]  # fmt: skip
LINE_BREAKS = ["a\tb", "a\nb", "a\rb", "a\x1bb"]


def rendered(recipe: Any = None, typed: dict[str, str] | None = None, **settings: Any) -> rendering.RenderedFolder:
    return rendering.render(recipe or example(), gke(**settings), "pod", typed or {})


def container(text: str) -> dict[str, Any]:
    pod = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0]
    return found


def test_the_lines_of_a_command_are_the_command() -> None:
    for recipe in (example(), example(launch={"module": "train.sh"}, xla_flags=[], arguments={})):
        assert " ".join(command_lines(recipe)) == command(recipe)
    assert "--xla_enable_async_all_gather=true' &&" in command_lines(example())


def test_rendering_is_pure_and_its_yaml_reads_back() -> None:
    first, second = rendered(), rendered()
    assert first == second
    text = first.files["jobset.yaml"]
    assert yaml.safe_load(text)["metadata"]["name"] == "${WORKLOAD_NAME}" and "!!" not in text
    assert "gs://my-bucket/runs" in text and "${BASE_OUTPUT_DIR}" not in "".join(first.files.values())


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_argument_reaches_maxtext_as_it_is_and_no_shell(tmp_path: Path, value: str) -> None:
    """The container's command is really run, with stand-ins for what it starts."""
    checked = example(
        arguments={"prompt": value, "steps": "3"}, environment={"NOTE": value}, xpk={"experiment-name": value}
    )
    versions = MaxTextVersions.model_construct(xpk=f"1.8.0{value}")
    # without the checks of a recipe, which refuse the rest: quoting alone has to hold
    recipe = checked.model_copy(update={"image": f"img:1{value}", "versions": versions, "name": value})
    scripts = Scripts(tmp_path, recipe)
    run_in(tmp_path, scripts, container(scripts.rendered.files["jobset.yaml"])["command"][2])
    assert json.loads((tmp_path / "seen").read_text()) == [f"prompt={value}", value]
    assert scripts.run("setup_training_env.sh")[0] in (0, 1)
    code, out = scripts.run(scripts.rendered.submit, "xpk", WORKLOAD_NAME="r")
    assert code == 0, out
    assert (
        f"--docker-image=img:1{value}" in scripts.calls("xpk")[0]
        and f"--experiment-name={value}" in scripts.calls("xpk")[0]
    )
    given = next(word for word in scripts.calls("xpk")[0] if word.startswith("--command=")).removeprefix("--command=")
    run_in(tmp_path, scripts, given)
    assert json.loads((tmp_path / "seen").read_text()) == [f"prompt={value}", value]
    (scripts.bin / "xpk").unlink()
    assert f"type pip install {shlex.quote(f'xpk==1.8.0{value}')}, or" in scripts.run(scripts.rendered.submit, "xpk")[1]
    assert not list(tmp_path.rglob("HERE"))


def run_in(tmp_path: Path, scripts: Scripts, text: str) -> None:
    show = "import json, os, sys; print(json.dumps([a for a in sys.argv if 'prompt=' in a] + [os.environ['NOTE']]))"
    (scripts.bin / "python3").write_text(f'#!/bin/bash\nexec /usr/bin/python3 -c "{show}" "$@" > "{tmp_path}/seen"\n')
    (scripts.bin / "sleep").write_text("#!/bin/bash\n")
    for name in ("gsutil", "cd", "tee", "python3", "sleep"):
        (scripts.bin / name).touch()
        (scripts.bin / name).chmod(0o755)
    env = {"PATH": f"{scripts.bin}:/usr/bin:/bin", "CALLS": str(tmp_path / "c"), "ANSWERS": "/dev/null"}
    text = text.replace("cd /app", "true")
    subprocess.run(["bash", "-c", text], env=env, cwd=tmp_path, check=False, capture_output=True, timeout=30)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_of_a_variable_is_quoted_or_refused(value: str) -> None:
    """In an argument it is quoted; in shell text of the recipe it would be read by the shell, and is refused."""
    inside = example(arguments=RAW["arguments"] | {"path": "${DATA}/x"}, launch=RAW["launch"] | {"after": ""})
    words = container(rendered(inside, {"DATA": value}).files["jobset.yaml"])["command"][2]
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {argument(words)}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"path={value}/x\n"
    after = example(launch=RAW["launch"] | {"after": "| tee ${DATA}/log"})
    with pytest.raises(UserError, match="would be read by a shell"):
        rendered(after, {"DATA": value})


def argument(text: str) -> str:
    """The word of `path=` in a command, as it stands there."""
    start = text.index("'path=") if "'path=" in text else text.index("path=")
    return text[start : text.index(" profiler=xplane")]


@pytest.mark.parametrize("value", LINE_BREAKS)
def test_a_value_that_cannot_be_printed_is_refused(value: str) -> None:
    with pytest.raises(UserError, match="a character that cannot be printed"):
        rendered(example(arguments={"a": "${DATA}"}), {"DATA": value})


def test_a_value_with_a_variable_is_refused() -> None:
    with pytest.raises(UserError, match=r"DATA='\$\{HOME\}' has a variable"):
        rendered(example(arguments={"a": "${DATA}"}), {"DATA": "${HOME}"})
    with pytest.raises(UserError, match="the recipe has no value of HOME"):
        rendered(example(arguments={"a": "${HOME}"}))


def test_no_trace_is_added_to_another_program() -> None:
    assert rendered(example(launch={"module": "src.maxdiffusion.train_wan"})).added == {}


def test_a_line_break_in_the_command_is_refused() -> None:
    with pytest.raises(UserError, match="has a line break"):
        rendered(example(launch=RAW["launch"] | {"after": "true\nfalse"}))


@pytest.mark.parametrize(
    ("option", "owner"),
    [
        *((name, "a target has it") for name in ("cluster", "project", "zone", "namespace")),
        ("workload", "a run has a name of its own"),
        *((name, "the slice is topology of the recipe") for name in ("device-type", "tpu-type")),
        ("num-slices", "num_slices of the recipe has it"),
        ("docker-image", "image of the recipe has it"),
        ("command", "launch and arguments of the recipe are it"),
    ],
)
def test_an_option_that_is_decided_elsewhere_is_refused(option: str, owner: str) -> None:
    with pytest.raises(UserError) as refused:
        rendered(example(xpk={option: "other"}))
    assert refused.value.what == f"a recipe cannot set xpk.{option}: {owner}"
    assert refused.value.fix.startswith(f"leave xpk.{option} out; ")


def test_a_base_image_is_that_of_the_recipe() -> None:
    assert rendered(example(xpk={"base-docker-image": "a/b:1"}, image="a/b:1")).by_hand
    with pytest.raises(UserError, match=r"xpk\.base-docker-image=a/b:1, and its image is my-registry"):
        rendered(example(xpk={"base-docker-image": "a/b:1"}), image="my-registry/x:1")


@pytest.mark.parametrize("value", ["$(id)", "Very_High", "a b", "1a"])
@pytest.mark.parametrize("option", ["priority", "scheduler", "docker-image-pull-secret"])
def test_a_name_in_the_recipe_is_a_name_of_the_cluster(option: str, value: str) -> None:
    if option != "priority" and value in ("Very_High", "1a"):
        value += "!"
    with pytest.raises(UserError, match=f"xpk.{option}=.* is no "):
        rendered(example(xpk={option: value}))


def test_names_of_recipes_cannot_end_a_comment() -> None:
    files = rendered(example().model_copy(update={"name": "a\ntouch HERE"})).files
    assert not [text for text in files.values() if "\ntouch HERE" in text]


@pytest.mark.parametrize(
    ("changes", "settings", "typed", "refusal"),
    [
        ({}, {"image": "", "bucket": ""}, {}, "has no value of WORKLOAD_IMAGE, BASE_OUTPUT_DIR; set image and bucket in the file of target pod"),
        ({}, {"bucket": ""}, {}, "has no value of BASE_OUTPUT_DIR; set bucket in"),
        ({"arguments": {"a": "${DATA}", "b": "${MORE}"}}, {}, {}, "the recipe has no value of DATA, MORE; type DATA=VALUE MORE=VALUE"),
        ({"arguments": {"a": "${DATA}"}}, {"image": ""}, {}, "set image in the file of target pod and type DATA=VALUE"),
        ({}, {}, {"DATA": "x"}, "has no variable DATA; leave it out"),
        ({}, {}, {"WORKLOAD_NAME": "n"}, "WORKLOAD_NAME names a run, and a folder is rendered for many"),
        ({"topology": "v6e-16"}, {}, {}, "machine_type=tpu7x-standard-4t is not for v6e-16"),
        ({"xpk": {"storage": "s"}}, {"queue": "q"}, {}, "only xpk carries out --storage of the recipe"),
        ({"xpk": {"turbo": "1"}, "versions": {"xpk": "1.8.0"}}, {}, {}, "xpk workload create has no option --turbo, in any version until 1.16.0; leave it out, or type versions.xpk="),
        ({"xpk": {"docker-name": "$(id)"}}, {}, {}, "xpk.docker-name=$(id) is no such name"),
    ],
)  # fmt: skip
def test_what_recipe_and_target_lack_is_one_line(
    changes: dict[str, Any], settings: dict[str, Any], typed: dict[str, str], refusal: str
) -> None:
    with pytest.raises(UserError) as refused:
        rendered(example(**changes), typed, **settings)
    assert refusal in str(refused.value) and "\n" not in str(refused.value)


def test_a_typed_value_counts_before_that_of_the_target() -> None:
    files = rendered(typed={"BASE_OUTPUT_DIR": "gs://other/x", "WORKLOAD_IMAGE": "mine:2"}, bucket="", image="").files
    assert container(files["jobset.yaml"])["image"] == "mine:2" and "gs://other/x" in files["jobset.yaml"]


def test_the_folder_of_artifacts_is_that_of_the_run() -> None:
    recipe = example(launch=RAW["launch"] | {"after": "| tee ${ARTIFACT_DIR}/log"})
    assert "tee gs://my-bucket/runs/${WORKLOAD_NAME}/log" in rendered(recipe).files["jobset.yaml"]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        ({"steps": "30"}, workload.PROFILER),
        ({"a": "b"}, workload.PROFILER),
        ({"steps": "8"}, {}),
        ({"steps": "9", "profiler_steps": "2"}, {k: v for k, v in workload.PROFILER.items() if k != "profiler_steps"}),
        ({"steps": "30", "profiler": ""}, {}),
        ({}, workload.PROFILER),
    ],
)
def test_a_trace_is_added_where_there_is_none(arguments: dict[str, str], added: dict[str, str]) -> None:
    result = rendered(example(arguments=arguments))
    assert result.added == added
    text = container(result.files["jobset.yaml"])["command"][2]
    assert all(f" {key}={value}" in text for key, value in (arguments | added).items() if value)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a recipe toy.yaml and a target pod."""
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targets.yaml").write_text(
        yaml.safe_dump(
            {"pod": ENTRY, "box": {"kind": "ssh", "hosts": ["h"]}, "small": ENTRY | {"topology": "tpu7x-4x4x4"}}
        )
    )
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(RAW))
    return tmp_path


RENDER = ["render", "toy.yaml", "--on", "pod", "-o", "out"]


def test_rendering_twice_changes_nothing_and_json_lists_the_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    assert main([*RENDER, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    names = ["setup_training_env.sh", "node_pool.sh", "submit_toy.sh", "cleanup.sh", "jobset.yaml"]
    assert [row["name"] for row in document["files"]] == names
    assert {row["state"] for row in document["files"]} == {"written"}
    assert all(Path(row["path"]).is_file() for row in document["files"])
    assert document["submit"] == ["bash", "out/submit_toy.sh"] and document["added"] == workload.PROFILER
    assert any("maxtext of the target" in line for line in document["by_hand"])
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (place / "out").iterdir()}
    assert main([*RENDER, "--json"]) == ExitCode.OK
    assert {row["state"] for row in json.loads(capsys.readouterr().out)["files"]} == {"unchanged"}
    assert before == {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in (place / "out").iterdir()}


@pytest.mark.parametrize("after", ["# rest", "; echo 'open", "| tee (", "; )", "; cat <<EOF"])
def test_a_command_that_bash_cannot_parse_is_not_rendered(
    place: Path, capsys: pytest.CaptureFixture[str], after: str
) -> None:
    assert main([*RENDER, f"launch.after={after}", "--force"]) == ExitCode.USAGE
    assert "bash cannot parse the container's command: " in capsys.readouterr().err
    assert not (place / "out").exists()


def test_an_edited_file_is_kept_unless_it_is_to_be_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RENDER) == ExitCode.OK
    edited = place / "out" / "node_pool.sh"
    edited.write_text(edited.read_text() + "# mine\n")
    assert main([*RENDER, "arguments.steps=50"]) == ExitCode.USAGE
    assert "node_pool.sh in out: edited, or not rendered; name another directory" in capsys.readouterr().err
    assert "steps=30" in (place / "out/jobset.yaml").read_text() and "# mine" in edited.read_text()
    assert main([*RENDER, "arguments.steps=50", "--force"]) == ExitCode.USAGE
    assert "# mine" in edited.read_text() and "add --overwrite" in capsys.readouterr().err
    assert main([*RENDER, "arguments.steps=50", "--overwrite"]) == ExitCode.OK
    assert "steps=50" in (place / "out/jobset.yaml").read_text() and "# mine" not in edited.read_text()


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("arguments.steps=0", "a plan of toy-4k-bf16-tpu7x-4x4x4 is refused: steps=0 is not a whole number of at least 1 and up to 1,000,000,000; type arguments.steps=30; --force"),
        ("arguments.ici_fsdp_parallelism=64", "ici_fsdp_parallelism=64 = 64 is not the 128 devices of tpu7x-4x4x4; type arguments.ici_fsdp_parallelism=128"),
        ("arguments.base_emb_dim=0", "base_emb_dim=0 is not a whole number from 1 to 10,000,000"),
    ],
)  # fmt: skip
def test_what_a_plan_refuses_is_rendered_only_by_force(
    place: Path, capsys: pytest.CaptureFixture[str], override: str, what: str
) -> None:
    assert main([*RENDER, override]) == ExitCode.USAGE
    assert what in capsys.readouterr().err and not (place / "out").exists()
    assert main([*RENDER, override, "--overwrite"]) == ExitCode.USAGE and not (place / "out").exists()
    assert main([*RENDER, override, "--force"]) == ExitCode.OK and (place / "out/jobset.yaml").is_file()


@pytest.mark.long
@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("mesh.fsdp=3", "is refused: mesh.data x fsdp x tensor = 3, not 16 devices; type mesh.fsdp=16"),
        ("batch_size=3", "a plan of qwen3-1.7b-gsm8k-grpo is refused: "),
        ("rollout.total_generation_steps=400000", "a plan of qwen3-1.7b-gsm8k-grpo is refused: "),
    ],
)
def test_what_a_plan_refuses_is_rendered_of_other_kinds_only_by_force(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, override: str, what: str
) -> None:
    monkeypatch.setattr("podwright.plan.checks.hub._look_up", lambda *_: pytest.fail("the hub was asked"))
    (place / "targets.yaml").write_text(yaml.safe_dump({"pod": ENTRY | {"topology": "v6e-16"}}))
    argv = ["render", "qwen3-1.7b-gsm8k-grpo", "--on", "pod", "-o", "out"]
    assert main([*argv, override]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert what in error and error.endswith("; --force renders it\n") and not (place / "out").exists()
    assert main([*argv, override, "--force"]) == ExitCode.OK
    assert main([*argv, "--overwrite"]) == ExitCode.OK


def test_variables_that_the_target_fills_in_are_no_error_of_a_plan(place: Path) -> None:
    after = "| tee train.log && gsutil cp train.log ${ARTIFACT_DIR}/logs/train.log"
    arguments = RAW["arguments"] | {"dataset_path": "${DATA}"}
    (place / "toy.yaml").write_text(
        yaml.safe_dump(RAW | {"launch": RAW["launch"] | {"after": after}, "arguments": arguments})
    )
    assert main([*RENDER, "DATA=gs://data/x"]) == ExitCode.OK


def test_a_file_that_is_no_longer_rendered_is_removed(place: Path) -> None:
    assert main(RENDER) == ExitCode.OK
    assert main([*RENDER, "arguments.model_name=other"]) == ExitCode.OK
    assert sorted(path.name for path in (place / "out").glob("submit*")) == ["submit_other.sh"]


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["render", "toy.yaml", "-o", "out"], "--on is missing; type --on TARGET"),
        (["render", "toy.yaml", "--on", "pod"], "-o is missing; type -o DIR"),
        (["render", "toy.yaml", "--on", "box", "-o", "out"], "target box is of kind ssh, and scripts are rendered for kind=gke"),
        (["render", "toy.yaml", "--on", "nobody", "-o", "out"], "there is no target 'nobody' in"),
        (["render", "toy.yaml", "--on", "local", "-o", "out"], "there is no target 'local' in"),
        (["render", "toy.yaml", "--on", "tpu7x-4x4x4", "-o", "out"], "there is no target 'tpu7x-4x4x4' in"),
        (["render", "toy.yaml", "--on", "po", "-o", "out"], "did you mean pod?"),
        (["render", "toy.yaml", "topology=v6e-16", "--on", "pod", "-o", "out"], "is not for v6e-16, whose hosts have 4 chips; in the target's file leave topology out, and set machine_type=ct6e-standard-4t"),
        (["render", "toy.yaml", "topology=tpu7x-1x1x1", "--on", "small", "-o", "out"], "machine_type=tpu7x-standard-4t is not for tpu7x-1x1x1, whose hosts have 1 chip; in the target\'s file leave topology out, and set machine_type=tpu7x-standard-1t"),
        (["render", "toy.yaml", "--on", "pod", "-o", "toy.yaml"], "-o toy.yaml is a file"),
        (["render", "toy.yaml", "--on", "pod", "-o", ""], "'' names no file and no directory; give a path"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(place: Path, capsys: pytest.CaptureFixture[str], argv: list[str], line: str) -> None:
    assert main(argv) == ExitCode.USAGE and line in capsys.readouterr().err


@pytest.mark.parametrize("name", ["jobset.yaml", folder.RECORD])
def test_a_directory_in_the_way_of_a_file_is_named_before_anything_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (place / "out" / name).mkdir(parents=True)
    assert main([*RENDER, "--overwrite"]) == ExitCode.USAGE
    assert f"out/{name} is a directory; remove it" in capsys.readouterr().err
    assert [path.name for path in (place / "out").iterdir()] == [name]


def test_rendered_files_have_the_modes_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        folder.write(tmp_path / "d", {"a.sh": "1\n", "b": "2\n"})
    finally:
        os.umask(before)
    assert [(tmp_path / "d" / name).stat().st_mode & 0o777 for name in ("a.sh", "b")] == [0o750, 0o640]


def test_a_record_that_is_damaged_replaces_no_file(tmp_path: Path) -> None:
    folder.write(tmp_path / "d", {"a.sh": "1\n", "b": "2\n"})
    for record in ("", "[]", '{"a.sh": 1}', '{"../x": "y"}'):
        (tmp_path / "d" / folder.RECORD).write_text(record)
        with pytest.raises(UserError, match=r"a\.sh in .*: edited"):
            folder.write(tmp_path / "d", {"a.sh": "other\n", "b": "2\n"})
    assert (tmp_path / "d" / "a.sh").read_text() == "1\n"
    assert folder.write(tmp_path / "d", {"a.sh": "1\n"}) == {"a.sh": "unchanged"}


def test_a_plan_that_needs_a_larger_slice_names_no_option_of_another_verb(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "targets.yaml").write_text(yaml.safe_dump({"pod": ENTRY | {"topology": "v6e-16"}}))
    assert main(["render", "deepseek-v3-tpu7x-256", "--on", "pod", "-o", "out"]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "type podwright plan with --fit, which searches" in error and "--on" not in error
    (place / "toy.yaml").write_text(yaml.safe_dump(RAW | {"arguments": RAW["arguments"] | {"model_name": "llama3.1-405b", "ici_fsdp_parallelism": "-1"}, "topology": "tpu7x-2x2x1"}))  # fmt: skip
    (place / "targets.yaml").write_text(yaml.safe_dump({"pod": ENTRY}))
    assert main(RENDER) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "or take a larger slice" in error and "--on" not in error


def test_an_option_of_a_newer_xpk_is_left_to_xpk() -> None:
    result = rendered(example(xpk={"turbo": "1"}, versions={"xpk": "1.17.0"}))
    assert "--turbo=1" in result.files["submit_toy.sh"]
    assert any("only xpk carries out --turbo" in line for line in result.by_hand)


@pytest.mark.parametrize("word", ["5e-4", "12e4", "0o7", "1:30", "on", "y", "0x1F"])
def test_a_text_that_a_reader_of_yaml_takes_for_another_value_stands_in_quotes(word: str) -> None:
    assert jobset.text({"value": word, "number": 5}) == f"value: '{word}'\nnumber: 5\n"
