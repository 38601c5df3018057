"""`podwright recipe import` of MaxText launch scripts: one, by words, a whole tree, a fork's own script, and where to launch."""

import json
import os
import shlex
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from podwright.cli import app
from podwright.cli.recipe_names import load_named
from podwright.errors import UserError
from podwright.recipe.load import load
from podwright.recipe.maxtext.schema import MaxTextRecipe
from tests.unit.recipe.maxtext.launch_script import SCRIPT, VALUES
from tests.unit.sandbox import namespaces

TRAIN = """#!/bin/bash
set -e
export LIBTPU_INIT_ARGS="--xla_a=1 --xla_b=2"
CODE=/app/code
gsutil -m cp -r gs://a-bucket/fork ${CODE}
cp ${CODE}/my_model.yml ${CODE}/src/MaxText/configs/models/
cd $CODE
RUN=fork-$(date +%Y%m%d)
python3 -m MaxText.train src/MaxText/configs/base.yml \\
  model_name=my_model run_name=$RUN \\
  base_output_directory=gs://a-bucket/out \\
  ici_fsdp_parallelism=16 ici_tensor_parallelism=4 steps=10
"""
SUBMIT = """xpk workload create --cluster=a-cluster --project=a-project --zone=us-central1 --workload=fork-64dev-test \\
  --device-type=tpu7x-64 --num-slices=1 --docker-image=gcr.io/a-project/runner \\
  --command="gsutil cp gs://a-bucket/fork/train.sh /tmp/train.sh && bash /tmp/train.sh"
"""


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(tmp_path / "targets.yaml"))
    return tmp_path / "targets.yaml"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with two models, of which one has two configurations, and a script of another launcher; the current directory is empty."""
    root = tmp_path / "tree"
    for name in ("toy-1b/4k-bf16-tpu7x-4x4x4/xpk", "toy-1b/4k-fp8-tpu7x-4x4x8/xpk", "big-2b/8k-bf16-tpu7x-4x4x4"):
        folder = root / "training" / name
        folder.mkdir(parents=True)
        shape = name.split("tpu7x-")[1].partition("/")[0]
        (folder / "run_recipe.sh").write_text(SCRIPT.replace("tpu7x-4x4x4", f"tpu7x-{shape}"))
    (root / "training" / "old.sh").write_text("python3 -m benchmarks.benchmark_runner xpk --num_slices=1\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("USER", "tester")
    monkeypatch.setenv("LOGNAME", "somebody_else")
    return root


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = app.main(["recipe", "import", *argv])
    return (code, *capsys.readouterr())


PAIRS = [f"{name}={value}" for name, value in VALUES.items()]


def test_a_directory_becomes_a_recipe_that_bash_agrees_with(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4"
    code, out, err = call(capsys, str(folder), *PAIRS, "arguments.steps=50", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["out"] == "toy-1b-4k-bf16-tpu7x-4x4x4.recipe.yaml"
    assert load(document["out"]).model_dump(mode="json") == document["recipe"]
    assert document["recipe"]["arguments"]["steps"] == "50"
    assert document["argv"][:4] == ["xpk", "workload", "create", "--cluster=a-cluster"]
    assert any(word.startswith("--workload=tester-toy-1b") for word in document["argv"])
    assert document["command"] == ["podwright", "plan", document["out"]]
    assert document["bash"] == {"evaluated": not namespaces.missing(), "why_not": document["bash"]["why_not"]}
    assert "placeholder" in [finding["check"] for finding in document["findings"]]
    again = call(capsys, str(folder), *PAIRS, "arguments.steps=50", "--json")
    assert again[0] == 0, "the same recipe may be written again"
    assert "exists already; name another file with --out" in call(capsys, str(folder), *PAIRS)[2]


def test_the_exit_code_says_whether_a_recipe_is_written(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not what the findings are: those are in the answer, and a plan judges them."""
    script = tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4" / "xpk" / "run_recipe.sh"
    code, out, err = call(capsys, str(script), "--out", "r.yaml")
    assert (code, err) == (0, "") and "error: placeholder: " in out and Path("r.yaml").exists()
    script.write_text(SCRIPT.replace("steps=30", "steps=30 hf_access_token=hf_" + "aB3" * 12))
    code, out, err = call(capsys, str(script), "--out", "secret.yaml")
    assert (code, err) == (0, "") and "error: secret: " in out
    assert app.main(["plan", "secret.yaml"]) == 3 and "secret" in capsys.readouterr().out
    script.write_text(SCRIPT.replace("--zone=$ZONE", "--zone=$RANDOM"))
    code, out, err = call(capsys, str(script), "--out", "none.yaml")
    assert (code, out) == (2, "") and err.count("\n") == 1 and not Path("none.yaml").exists()


def test_a_typed_key_changes_the_recipe_and_not_the_call_of_the_script(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4")
    typed = ("xpk.priority=low", "arguments.steps=50")
    code, out, err = call(capsys, folder, *PAIRS, *typed, "--json", "--out", "changed.yaml")
    assert code == 0, err
    document = json.loads(out)
    recipe = document["recipe"]
    assert recipe["xpk"]["priority"] == "low" and recipe["arguments"]["steps"] == "50"
    assert "--priority=very-high" in document["argv"] and " steps=30 " in document["argv"][-1]


def test_line_ends_of_windows_and_a_byte_order_mark_are_read(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noon = SimpleNamespace(now=lambda: datetime(2026, 11, 26, 12, 0))  # the name of a workload has the minute in it
    monkeypatch.setattr("podwright.cli.imports.datetime", noon)
    texts = {"unix": SCRIPT, "dos": SCRIPT.replace("\n", "\r\n"), "bom": "\ufeff" + SCRIPT}
    for name, text in texts.items():
        Path(f"{name}.sh").write_bytes(text.encode())
    documents = [json.loads(call(capsys, f"{name}.sh", *PAIRS, "--json", "--out", f"{name}.yaml")[1]) for name in texts]
    for document in documents:
        del document["out"], document["command"], document["recipe"]["source"], document["recipe"]["name"]
    assert documents[0]["argv"] and documents[0] == documents[1] == documents[2]


@pytest.mark.parametrize(
    ("typed", "refusal"),
    [
        ("xpk.workload=zzz", "a recipe cannot set xpk.workload: a run has a name of its own; leave xpk.workload out; type --name"),
        ("xpk.cluster=c", "a recipe cannot set xpk.cluster: a target has it; leave xpk.cluster out; set cluster of the target"),
        ("xpk.device-type=v6e-16", "a recipe cannot set xpk.device-type: the slice is topology of the recipe; "),
        ("xpk.num-node=3", "xpk workload create has no option --num-node, in any version until 1.16.0; did you mean --num-nodes?"),
        ("xpk.qqqqqqqq=3", "xpk workload create has no option --qqqqqqqq, in any version until 1.16.0; leave it out, or"),
        ("launch.nonsense=3", "unknown key launch.nonsense"),
        ("environment.LIBTPU_INIT_ARGS=--a", "environment.LIBTPU_INIT_ARGS would be overwritten: it is made of xla_flags; write its flags into xla_flags"),
    ],
)  # fmt: skip
def test_a_key_that_a_recipe_cannot_have_is_refused_in_one_line(
    tree: Path, capsys: pytest.CaptureFixture[str], typed: str, refusal: str
) -> None:
    code, out, err = call(capsys, str(tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4"), typed)
    assert (code, out) == (2, "") and err.startswith(f"error: {refusal}") and err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_words_are_looked_up_in_a_tree(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = call(capsys, "toy fp8 4x4x8", "--tree", str(tree))
    assert code == 0 and "wrote toy-1b-4k-fp8-tpu7x-4x4x8.recipe.yaml" in out, err
    monkeypatch.chdir(tree)
    assert "wrote big-2b-8k-bf16-tpu7x-4x4x4.recipe.yaml" in call(capsys, "big", "bf16", "ZONE=us-east5-a")[1]
    several = call(capsys, "toy-1b")[2]
    assert "2 launch scripts in . match 'toy-1b'; add a word: toy-1b-4k-bf16-tpu7x-4x4x4, toy-1b-4k-fp8" in several
    none = call(capsys, "toy int8")[2]
    assert "none of the 3 launch scripts in . has toy and int8 in its path; leave a word out" in none


def test_a_tree_becomes_a_table_and_with_out_files(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, str(tree), "--out", "recipes")
    lines = out.splitlines()
    assert code == 0 and lines[1].split()[:5] == ["big-2b-8k-bf16-tpu7x-4x4x4", "toy-1b", "tpu7x-4x4x4", "bf16", "30"]
    assert "not read: training/old.sh: it starts its training by benchmark_runner, which is not read yet" in out
    assert sorted(path.name for path in Path("recipes").iterdir()) == [
        f"{row.split()[0]}.recipe.yaml" for row in lines[1:4]
    ]
    rows = json.loads(call(capsys, str(tree), "--json")[1])
    assert [row["topology"] for row in rows["rows"]] == ["tpu7x-4x4x4", "tpu7x-4x4x4", "tpu7x-4x4x8"]
    assert list(rows["unread"]) == ["training/old.sh"]


def test_a_tree_of_which_nothing_is_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "run.sh").write_text(SUBMIT.replace("=tpu7x-64", "=$(python slice.py)"))
    out = tmp_path / "recipes"
    code, text, error = call(capsys, str(tmp_path / "tree"), "--out", str(out))
    assert code == 2 and not out.exists() and "0 recipes" not in text
    assert error.startswith(
        f"error: none of the 2 scripts in {tmp_path / 'tree'} can be read: a/run.sh: run.sh: what python"
    )
    assert f"import one of them, such as {tmp_path / 'tree/a/run.sh'}, with NAME=VALUE" in error
    code, text, _ = call(capsys, str(tmp_path / "tree"), "--json")
    assert code == 2 and "none of the 2 scripts" in json.loads(text)["error"]


def test_a_script_of_a_fork_is_read_with_the_launch_script_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fork").mkdir()
    (tmp_path / "fork" / "train.sh").write_text(TRAIN)
    (tmp_path / "fork" / "submit.sh").write_text(SUBMIT)
    code, out, err = call(capsys, "fork", "--json")
    assert code == 0, err
    document = json.loads(out)
    recipe = document["recipe"]
    assert (recipe["topology"], recipe["image"]) == ("tpu7x-2x4x4", "gcr.io/a-project/runner")
    assert recipe["launch"] == {
        "module": "MaxText.train",
        "base_config": "src/MaxText/configs/base.yml",
        "python": "python3",
        "setup": [
            "gsutil -m cp -r gs://a-bucket/fork /app/code",
            "cp /app/code/my_model.yml /app/code/src/MaxText/configs/models/",
            "cd /app/code",
            "RUN=fork-$(date +%Y%m%d)",
        ],
        "after": "run_name=$RUN",
    }
    assert recipe["xla_flags"] == ["--xla_a=1", "--xla_b=2"] and recipe["arguments"]["ici_fsdp_parallelism"] == "16"
    assert document["target"] == [
        *("podwright", "target", "add", "a-cluster", "kind=gke"),
        *("project=a-project", "cluster=a-cluster", "region=us-central1"),
    ]
    (tmp_path / "fork" / "submit.sh").unlink()
    assert "train.sh does not say on which slice it trains; type topology=tpu7x-4x4x4" in call(capsys, "fork")[2]
    alone = json.loads(call(capsys, "fork", "topology=tpu7x-64", "--json", "--out", "alone.yaml")[1])
    assert alone["argv"] == [] and alone["recipe"]["launch"] == recipe["launch"]


@pytest.mark.parametrize(
    ("own", "typed", "number"),
    [
        ("", ["num_slices=2"], 2),
        ("", ["NUM_SLICES=2"], 2),
        ("", ["topology=2x tpu7x-64"], 2),
        ("NUM_SLICES=2\n", [], 2),
        ("NUM_SLICES=${NUM_SLICES:-1}\n", ["NUM_SLICES=3"], 3),
        ("NUM_SLICES=${MEGASCALE_NUM_SLICES:-1}\n", ["num_slices=3"], 3),
        ("NUM_SLICES=$(nproc)\n", ["NUM_SLICES=4"], 4),
        ("NUM_SLICES=\n", [], 1),
    ],
)
def test_a_training_script_keeps_its_number_of_slices(
    tree: Path, capsys: pytest.CaptureFixture[str], own: str, typed: list[str], number: int
) -> None:
    Path("train.sh").write_text(own + TRAIN.replace("steps=10", "steps=10 dcn_data_parallelism=2"))
    code, out, err = call(capsys, "train.sh", "topology=tpu7x-64", *typed, "--json")
    assert code == 0, err
    recipe = json.loads(out)["recipe"]
    assert (recipe["topology"], recipe["num_slices"]) == ("tpu7x-2x4x4", number)


@pytest.mark.parametrize(
    ("own", "typed", "refusal"),
    [
        ("", ["num_slices=two"], "num_slices=two is no whole number above 0; write num_slices=1"),
        ("", ["NUM_SLICES=0"], "NUM_SLICES=0 is no whole number above 0; write NUM_SLICES=1"),
        ("NUM_SLICES=$(nproc)\n", [], "train.sh line 1: NUM_SLICES is known only where the script runs; type NUM_SLICES=1, or"),
        ("", ["topology=2x tpu7x-64", "num_slices=3"], "topology=2x tpu7x-64 has 2 slices, and num_slices=3; leave one of the two out"),
    ],
)  # fmt: skip
def test_a_number_of_slices_that_is_not_known_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], own: str, typed: list[str], refusal: str
) -> None:
    Path("train.sh").write_text(own + TRAIN)
    code, out, err = call(capsys, "train.sh", "topology=tpu7x-64", *typed)
    assert (code, out) == (2, "") and err.startswith(f"error: {refusal}") and err.count("\n") == 1


def test_where_to_launch_becomes_words_for_a_target(
    tmp_path: Path, targets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tpu-recipes").mkdir()
    path = tmp_path / "config.yaml"
    path.write_text(
        "project_id: a-project\ncluster_name: a-cluster\nreservations:\n- {name: first, zone: us-central1-ai1a}\n- {name: second, zone: us-central1-c}\n"
        "default_zone: us-central1-ai1a\nbase_output_dir: gs://a-bucket/runs\nworkload_image: gcr.io/a-project/runner\n"
        "tpu_recipes_path: ~/tpu-recipes\nowner: me\n"
    )
    code, out, err = call(capsys, str(path), "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["target"] == [
        *("podwright", "target", "add", "a-cluster", "kind=gke", "project=a-project", "cluster=a-cluster"),
        *("zones=[us-central1-ai1a, us-central1-c]", "bucket=gs://a-bucket/runs", "image=gcr.io/a-project/runner"),
        *("reservations=[first, second]", "recipes=~/tpu-recipes"),
    ]
    assert document["notes"]["owner"] == "a target has no such key: not used"
    zones = "zones is [us-central1-ai1a, us-central1-c]"
    assert document["notes"]["default_zone"] == zones
    typed = shlex.join(document["target"])
    assert call(capsys, str(path))[1].splitlines()[-1] == f"type: {typed}"
    assert app.main(document["target"][1:]) == 0 and "bucket: gs://a-bucket/runs" in targets.read_text()
    path.write_text("project_id: a\ncluster_name: b\n")
    assert "config.yaml has no default_zone; add a line default_zone: VALUE" in call(capsys, str(path))[2]


@pytest.mark.parametrize(
    ("reservations", "refusal"),
    [
        ("[{name: r, zone: us-east5-a}]", "reservation r is in us-east5-a, which is no zone of the region of default_zone=us-central1-a; leave it out"),
        ("{first: us-central1-b, r: us-east5-a}", "reservation r is in us-east5-a, which is no zone of the region"),
        ("[projects/p/zones/us-east5-a/reservations/r]", "reservation projects/p/zones/us-east5-a/reservations/r is in us-east5-a, which"),
        ("[{name: r, zone: banana}]", "reservation r is in banana, which is no zone of the region of default_zone=us-central1-a"),
    ],
)  # fmt: skip
def test_a_reservation_that_the_cluster_cannot_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reservations: str, refusal: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"project_id: p\ncluster_name: c\ndefault_zone: us-central1-a\nreservations: {reservations}\n")
    code, out, err = call(capsys, str(path))
    assert (code, out) == (2, "") and err.startswith(f"error: {path}: {refusal}") and err.count("\n") == 1


def test_a_reservation_by_its_full_name_adds_its_zone(
    tmp_path: Path, targets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    name = "projects/p-project/zones/us-central1-b/reservations/r"
    path.write_text(f"project_id: p-project\ncluster_name: c\ndefault_zone: us-central1-a\nreservations: [{name}]\n")
    target = json.loads(call(capsys, str(path), "--json")[1])["target"]
    assert "zones=[us-central1-a, us-central1-b]" in target
    assert app.main(target[1:]) == 0 and "us-central1-b" in targets.read_text()


def test_without_a_sandbox_a_script_is_read_only_where_it_is_trusted(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tree / "training" / "big-2b")
    argv = json.loads(call(capsys, folder, "--json", "--out", "one.yaml")[1])["argv"]
    monkeypatch.setattr("podwright.sandbox.evaluation._why_not", lambda: "no user namespaces")
    script = Path(folder, "8k-bf16-tpu7x-4x4x4", "run_recipe.sh")
    code, out, err = call(capsys, folder)
    assert (code, out) == (2, "") and err.startswith(
        "error: run_recipe.sh is read by bash in a sandbox, and there is none here: no user"
    )
    assert f"type podwright recipe import {script} --trust, which" in err and err.count("\n") == 1
    document = json.loads(call(capsys, folder, "--json", "--trust", "--out", "two.yaml")[1])
    assert [word for word in document["argv"] if "-20" not in word] == [word for word in argv if "-20" not in word]
    assert Path("two.yaml").read_text() == Path("one.yaml").read_text()
    (finding,) = [finding for finding in document["findings"] if finding["check"] == "bash"]
    assert finding["level"] == "warning" and finding["message"].startswith("bash has run the script without a sandbox")


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("rm -rf {victim}", "calls rm, which without a sandbox is not run"),
        ("PATH=/usr/bin:$PATH; rm -rf {victim}", ""),
        ("export PATH=/usr/bin && rm -rf {victim}", ""),
        ("env rm -rf {victim}", "calls env, which without a sandbox is not run"),
        ("sudo rm -rf {victim}; bash -c 'rm -rf {victim}'", "calls bash, which without a sandbox is not run"),
        ("rm -rf ~/* $HOME; touch ~/x", "calls rm, which"),
        ("/usr/bin/touch {victim}/new", "/usr/bin/touch: restricted"),
        ("hash -p /usr/bin/touch new; new {victim}/new", "hash: /usr/bin/touch: restricted"),
        ("command -p touch {victim}/new", "command: -p: restricted"),
        ("exec touch {victim}/new", "exec: restricted"),
        ("echo x > {victim}/new", "new: restricted: cannot redirect output, which without a sandbox is not run"),
        ("echo x 2>&1 &>> {home}/file", "file: restricted: cannot redirect output"),
        ("eval 'echo x >| {victim}/new' 2> /dev/null", "new: restricted: cannot redirect output"),
        ("source {home}/file; echo ${{SECRET?none}}", "none"),
        ('echo "${{NEEDED:?is needed}}"', "type NEEDED=VALUE"),
        ("history -s x; history -w {victim}/new", "calls history"),
        ("read -r line < /dev/tcp/127.0.0.1/9", "/dev/tcp/127.0.0.1/9: restricted"),
        ("kill -0 $PPID", "calls kill"),
        ("for file in *; do [[ $file != *.so ]] || exit 3; done; cat() {{ echo x > {victim}/new; }}; export -f cat", ""),
        ("while :; do :; done", "did not end within 10 s"),
    ],
)  # fmt: skip
def test_a_trusted_script_changes_nothing_outside(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, before: str, message: str
) -> None:
    monkeypatch.setattr("podwright.sandbox.evaluation._why_not", lambda: "no user namespaces")
    victim, home = tree / "victim", tree / "home"
    for folder in (victim, home):
        folder.mkdir()
        (folder / "file").write_text("SECRET=secret\n")
    tree.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    path = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    (path.parent / "library.so").write_bytes(b"\x7fELF\0")
    path.write_text(SCRIPT.replace("set -e\n", f"{before.format(victim=victim, home=home)}\nset -e\n", 1))
    # As an ordinary user, for files of root are protected from the user that root becomes.
    monkeypatch.setattr("podwright.sandbox.evaluation.is_root", lambda: False)
    code, _, err = call(capsys, str(path), "--trust")
    assert (code, err) == (0, "") if not message else (code == 2 and message in err and err.count("\n") == 1)
    assert [file.read_text() for file in (*victim.iterdir(), *home.iterdir())] == ["SECRET=secret\n"] * 2


def test_values_of_a_file_that_is_sourced_give_way_to_those_that_were_typed(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4"
    (folder / "env.sh").write_text("export ZONE=us-east5-a\nexport PROJECT_ID=other\n")
    text = (folder / "run_recipe.sh").read_text().replace('echo "===', 'source env.sh\necho "===')
    (folder / "run_recipe.sh").write_text(text)
    document = json.loads(call(capsys, str(folder), "PROJECT_ID=mine", "--json")[1])
    assert {"--project=mine", "--zone=us-east5-a"} <= set(document["argv"])


def test_what_is_typed_counts_for_every_script_of_a_tree(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, str(tree), "ZONE=us-east5-a", "arguments.steps=3", "--out", "recipes")[0] == 0
    assert {load(str(path)).model_dump()["arguments"]["steps"] for path in Path("recipes").iterdir()} == {"3"}
    code, _, err = call(capsys, str(tree), "ZONEE=us-east5-a", "--out", "others")
    assert (
        code == 2 and f"there is no variable or placeholder ZONEE in the scripts of {tree}; did you mean ZONE?" in err
    )
    assert not Path("others").exists()


@pytest.mark.parametrize(
    ("pair", "fix"),
    [
        ("PROJECT_IDD=p", "did you mean PROJECT_ID?"),
        ("topology=tpu7x-5x5x5", "import without it, and type podwright plan RECIPE topology=tpu7x-5x5x5"),
        ("num_slices=2", "import without it, and type podwright plan RECIPE num_slices=2"),
        ("steps=3", "type arguments.steps=3"),
        ("bananas=2", "leave it out"),
    ],
)
def test_a_value_without_its_variable_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], pair: str, fix: str
) -> None:
    code, _, err = call(capsys, str(tree / "training" / "big-2b"), pair)
    assert code == 2 and f"there is no variable or placeholder {pair.partition('=')[0]} in " in err and fix in err
    (tree / "train.sh").write_text(TRAIN)
    if not pair.startswith(("topology", "num_slices")):
        code, _, err = call(capsys, str(tree / "train.sh"), "topology=tpu7x-64", pair)
        assert code == 2 and f"there is no variable or placeholder {pair.partition('=')[0]} in " in err


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("--num-slices=1", "--num-slice=2", "has no option --num-slice, in any version until 1.16.0; did you mean --num-slices?"),
        ("--docker-image=", "--docker-imag=", "has no option --docker-imag, in any version until 1.16.0; did you mean --docker-image?"),
        ("--num-slices=1", "--num-slices=1 --tpu-type=v6e-16", "takes one of --device-type=tpu7x-4x4x4 and --tpu-type=v6e-16; leave --tpu-type or --device-type out"),
        ("--num-slices=1", "--num-slices=two", "--num-slices=two is no whole number above 0; write --num-slices=1"),
        ("--device-type=tpu7x-4x4x4", '--device-type="$DT"', "--device-type, or its value is empty; type DT=tpu7x-4x4x4"),
        ("--device-type=tpu7x-4x4x4", "--device-type=banana", "--device-type=banana is no TPU slice; type --device-type=tpu7x-4x4x8"),
        ("--device-type=tpu7x-4x4x4", "--device-type=$MOUNTED", "MOUNTED=/data/mounted is no TPU slice; type MOUNTED=tpu7x-4x4x8"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_xpk_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, message: str
) -> None:
    path = tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4" / "xpk" / "run_recipe.sh"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    code, _, err = call(capsys, str(path))
    assert code == 2 and message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("run_name", ["fork", "$(hostname)"])
def test_a_word_without_an_equals_sign_is_a_finding(
    tree: Path, capsys: pytest.CaptureFixture[str], run_name: str
) -> None:
    words = f"python3 -m MaxText.train base.yml model_name=m steps 4 run_name={run_name} | tee train.log\n"
    (tree / "train.sh").write_text(words)
    document = json.loads(call(capsys, str(tree / "train.sh"), "topology=tpu7x-64", "--json")[1])
    (finding,) = [finding for finding in document["findings"] if finding["check"] == "argument"]
    assert finding["message"] == "steps 4: a word without =, and MaxText takes KEY=VALUE"
    assert finding["fix"] == "write steps=4 in the script and import again"


@pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing())
def test_a_script_that_does_not_end_is_named_so(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    path.write_text(SCRIPT.replace('echo "===', '/usr/bin/sleep 60\necho "==='))
    code, _, err = call(capsys, str(path))
    assert code == 2 and "does not reach its call of xpk workload create (did not end within 10 s)" in err
    path.write_text(SCRIPT + "\nsetsid -f /usr/bin/sleep 60\n")
    code, out, _ = call(capsys, str(path))
    assert code == 0 and f"warning: bash: {path} left processes running in the background" in out


def test_a_script_that_stops_before_its_call_is_named_so(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    path.write_text(SCRIPT.replace('echo "===', 'cat /dev/zero\necho "==='))
    code, _, err = call(capsys, str(path))
    if not namespaces.missing():
        assert code == 2 and "report this script" not in err and "take out in a copy of the script" in err


def test_a_variable_of_bash_itself_is_not_typed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "big", "--tree", str(tree), "RANDOM=7")
    assert code == 2 and "RANDOM is set by bash itself; write a value in place of $RANDOM in a copy" in err


@pytest.mark.parametrize("words", [["A.sh", "B.sh"], ["A.sh", "none.sh", "ZONE=us-east5-a"], ["A.sh", "bf16"]])
def test_an_import_has_one_source(tree: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    for name in ("A.sh", "B.sh"):
        Path(name).write_text(SUBMIT)
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "") and "leave a word out" in err and err.count("\n") == 1


def test_a_script_that_is_no_utf8_is_a_row_of_its_tree(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    path.write_bytes(SCRIPT.replace("toy-1b-4096", "t\xf6y").encode("latin1", "replace"))
    (tree / "training" / "old.sh").write_bytes(b"# \xf6\npython3 -m benchmarks.benchmark_runner xpk\n")
    code, out, err = call(capsys, str(tree))
    assert code == 0, err
    assert "2 recipes in" in out and f"not read: {path.relative_to(tree)}: {path} is not text in UTF-8: byte" in out
    assert "not read: training/old.sh: it starts its training by benchmark_runner, which is not read yet" in out


def test_a_redirection_behind_the_arguments_is_no_finding(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text("python3 -m MaxText.train base.yml model_name=m steps=4 2>&1 | tee train.log\n")
    document = json.loads(call(capsys, "train.sh", "topology=tpu7x-64", "--json")[1])
    assert document["recipe"]["launch"]["after"] == "2>&1 | tee train.log"
    assert "argument" not in [finding["check"] for finding in document["findings"]]


def test_what_is_no_script_of_lines_is_refused_at_once(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.sh")
    assert "pipe.sh is no regular file; write the script to a file" in call(capsys, "pipe.sh")[2]


@pytest.mark.parametrize(
    ("version", "typed", "fix"),
    [
        ("1.8.0", [], "leave it out, or type versions.xpk=VERSION of a newer xpk that has it"),
        ("1.16.0", [], "leave it out, or type versions.xpk=VERSION"),
        ("1.17.0", [], ""),
        ("2.0.0", [], ""),
        ("1.8.0", ["versions.xpk=1.17.0"], ""),
    ],
)
def test_an_option_that_is_not_known_is_that_of_a_newer_xpk(
    tree: Path, capsys: pytest.CaptureFixture[str], version: str, typed: list[str], fix: str
) -> None:
    script = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    script.write_text(
        SCRIPT.replace("xpk==1.8.0", f"xpk=={version}").replace("--num-slices=1", "--num-slices=1 --turbo=3")
    )
    code, out, err = call(capsys, str(script), *typed, "--out", "r.yaml")
    if fix:
        assert code == 2 and f"has no option --turbo, in any version until 1.16.0; {fix}" in err
        return
    assert code == 0, err
    assert "inconclusive: xpk-option: --turbo is no option of xpk until 1.16.0; " in out
    assert load("r.yaml").model_dump()["xpk"]["turbo"] == "3"
    tree_code, table, _ = call(capsys, str(tree), *typed)
    assert tree_code == 0 and "3 recipes in" in table


def test_the_namespace_of_a_script_is_that_of_a_target(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tree / "training" / "big-2b" / "8k-bf16-tpu7x-4x4x4" / "run_recipe.sh"
    script.write_text(SCRIPT.replace("--cluster=$CLUSTER_NAME", "--cluster=a-cluster --namespace=team"))
    code, out, _ = call(capsys, str(script), "--out", "r.yaml")
    assert code == 0 and "kind=gke cluster=a-cluster namespace=team" in out
    assert "namespace" not in load("r.yaml").model_dump()["xpk"]


def test_what_is_typed_for_a_cluster_is_in_the_words_for_a_target(
    tree: Path, targets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4")
    target = json.loads(call(capsys, folder, *PAIRS, "--json", "--out", "typed.yaml")[1])["target"]
    assert target[3:] == [
        *("a-cluster", "kind=gke", "project=a-project", "cluster=a-cluster", "zones=[us-central1-ai1a]"),
        *("bucket=gs://a-bucket/runs", "image=gcr.io/a-project/image:tag"),
    ]
    assert app.main(target[1:]) == 0 and "us-central1-ai1a" in targets.read_text()
    script = Path(folder, "xpk", "run_recipe.sh")
    script.write_text(SCRIPT.replace("--cluster=$CLUSTER_NAME", "--cluster=theirs"))
    assert "kind=gke cluster=theirs 'zones=[us-east5-a]'\n" in call(capsys, folder, "ZONE=us-east5-a")[1]


GKE = {"kind": "gke", "project": "a-project", "cluster": "a-cluster", "zones": ["us-central1-a"]}


def test_a_launch_script_below_the_checkout_of_a_target_is_a_recipe_by_its_name(
    tree: Path, targets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_named("qwen3-tiny-arithmetic-grpo").kind == "grpo"
    with pytest.raises(UserError, match="there is no recipe 'toy-1b-fp8-4x4x8'"):
        load_named("toy-1b-fp8-4x4x8")
    target = GKE | {"recipes": str(tree)}
    targets.write_text(json.dumps({"pod": target, "wrong": target | {"cluster": "a b"}}))
    for name in ("toy-1b-4k-fp8-tpu7x-4x4x8", "toy-1b-fp8-4x4x8"):
        recipe = load_named(name, ["arguments.steps=7"])
        assert isinstance(recipe, MaxTextRecipe) and recipe.name == "toy-1b-4k-fp8-tpu7x-4x4x8"
        assert recipe.topology == "tpu7x-4x4x8" and recipe.arguments["steps"] == "7"
    assert load_named("phase1-tiny").kind == "contrastive", "shipped recipes come first"
    with pytest.raises(UserError, match=r"2 launch scripts in .* have 'toy-1b' in their path") as caught:
        load_named("toy-1b")
    assert "toy-1b-4k-bf16-tpu7x-4x4x4, toy-1b-4k-fp8-tpu7x-4x4x8" in caught.value.fix
    with pytest.raises(UserError, match="there is no recipe 'other-1b'"):
        load_named("other-1b")
    assert app.main(["recipes", "show", "toy-1b-fp8-4x4x8"]) == 0 and "tpu7x-4x4x8" in capsys.readouterr().out


def test_typed_values_that_a_target_fills_in_are_named_and_the_description_follows_the_steps(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4")
    typed = ["PROJECT_ID=my-project", "BASE_OUTPUT_DIR=gs://my-bucket/runs"]
    code, out, _ = call(capsys, folder, *typed, "arguments.steps=50", "--out", "r.yaml")
    assert code == 0
    assert "PROJECT_ID: my-project is not in the recipe: a target or its run fills it in" in out
    assert "BASE_OUTPUT_DIR: gs://my-bucket/runs is not in the recipe: a target or its run fills it in" in out
    assert load("r.yaml").model_dump()["description"] == "toy-1b on tpu7x-4x4x4, 50 steps"
    assert call(capsys, str(tree), *typed)[1].count("PROJECT_ID: my-project is not in the recipe") == 1
    assert "fills it in" not in call(capsys, folder, "--out", "plain.yaml")[1]


def test_a_second_script_of_a_folder_is_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4"
    (folder / "xpk" / "other.sh").write_text(TRAIN)
    code, out, _ = call(capsys, str(folder))
    assert code == 0 and "other.sh: not read; to import it in place of this one, name it" in out
    (folder / "xpk" / "other.sh").rename(folder / "xpk" / "train.sh")
    script = folder / "xpk" / "run_recipe.sh"
    script.write_text(script.read_text() + "# it runs train.sh\n")
    assert "not read" not in call(capsys, str(folder), "--out", "again.yaml")[1]


def test_launch_scripts_of_a_folder_have_names_of_their_own(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tree / "training" / "toy-1b" / "4k-bf16-tpu7x-4x4x4"
    (folder / "xpk" / "run_recipe.sh").rename(folder / "xpk" / "run_a.sh")
    (folder / "xpk" / "run_b.sh").write_text(SCRIPT.replace("steps=30", "steps=50"))
    code, out, err = call(capsys, str(folder), "--out", "recipes")
    names = ["toy-1b-4k-bf16-tpu7x-4x4x4-run-a", "toy-1b-4k-bf16-tpu7x-4x4x4-run-b"]
    assert (code, err) == (0, "") and [line.split()[0] for line in out.splitlines()[1:3]] == names
    assert sorted(path.name for path in Path("recipes").iterdir()) == [f"{name}.recipe.yaml" for name in names]
    assert [load(f"recipes/{name}.recipe.yaml").model_dump()["name"] for name in names] == names
    assert load(f"recipes/{names[1]}.recipe.yaml").model_dump()["arguments"]["steps"] == "50"
    assert "or name one script in place of the folder" in call(capsys, str(folder))[1]
    assert (
        app.main(["plan", str(folder / "xpk")]) == 2
        and "is a folder, and a recipe is a YAML file" in capsys.readouterr().err
    )
    several = call(capsys, "toy-1b bf16", "--tree", str(tree))[2]
    assert f"add a word: {names[0]}, {names[1]}" in several
    assert "wrote" in call(capsys, names[1], "--tree", str(tree))[1]
    (folder / "xpk" / "deep").mkdir()
    (folder / "xpk" / "deep" / "run_b.sh").write_text(SCRIPT)
    assert call(capsys, str(folder), "--out", "more")[0] == 0 and len(list(Path("more").iterdir())) == 3


def test_several_recipes_are_not_written_to_one_file(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("x")
    for out in ("all.yaml", "taken"):
        code, _, err = call(capsys, str(tree), "--out", out)
        assert code == 2 and f"has 3 launch scripts, and --out {out} names one file; type --out DIRECTORY" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "cluster_name: c\nllm_model_name: m\n",
            "settings of a launch configuration (cluster_name) and of PurrSight; split it",
        ),
        (
            "cluster_name: c\ngrpo_config:\n  beta: 0.1\n",
            "settings of a launch configuration (cluster_name) and of tunix; split it",
        ),
        ("llm_model_name: m\ngrpo_config:\n  beta: 0.1\n", "has settings of tunix and of PurrSight; split it"),
    ],
)
def test_a_file_with_the_keys_of_two_kinds_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, refusal: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"project_id: p\ndefault_zone: us-central1-a\n{text}")
    code, out, error = call(capsys, str(path))
    assert (code, out) == (2, "") and refusal in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("python3 benchmarks/benchmark_runner.py xpk --device_type=v6e-256", "benchmark_runner"),
        ("xpk workload create-pathways --tpu-type=v6e-16", "workload create-pathways"),
    ],
)
def test_a_folder_whose_script_has_another_launcher_is_named_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, launcher: str
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{text}\n")
    for place in (tmp_path, tmp_path / "run.sh"):
        assert app.main(["recipe", "import", str(place)]) == 2
        error = capsys.readouterr().err
        assert f"run.sh starts its training by {launcher}, which is not read yet; name " in error
