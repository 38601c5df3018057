"""A script in the sandbox: what is recorded of it."""

import os
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from podwright.errors import UserError
from podwright.sandbox import evaluation, read
from podwright.sandbox.evaluation import Evaluated
from tests.evaluated import evaluate
from tests.unit.sandbox import namespaces

pytestmark = pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing())


def run(folder: Path, text: str, **values: str) -> Evaluated:
    script = folder / "run_recipe.sh"
    script.write_text(text)
    return evaluate(script, values, user="first_last", home="/homes/first_last")


def arguments(folder: Path, text: str, **values: str) -> tuple[str, ...]:
    """Those of the only call of xpk in `text`."""
    result = run(folder, text, **values)
    assert result.sandboxed and not result.problem, result
    (call,) = [call for call in result.calls if call.name == "xpk"]
    return call.argv[1:]


def test_a_recipe_gives_the_arguments_of_one_workload(tmp_path: Path) -> None:
    result = run(tmp_path, RECIPE, PROJECT_ID="my project", BASE_OUTPUT_DIR="gs://bucket/out")
    (call,) = result.workloads()
    assert not result.problem and result.exit_code == 0
    assert call.argv == (
        *(
            "xpk",
            "workload",
            "create",
            "--project=my",
            "project",
            "--workload=first-last-a-tag-of-more-t-20260101-0000",
        ),
        "--command=set -e && export LIBTPU_INIT_ARGS='   --xla_a=1   --xla_b=True ' && "
        "python3 -m maxtext steps=30 quantization='fixed,-224,224' path=gs://bucket/out/*.arrayrecord | "
        "tee train.log && gsutil cp train.log gs://bucket/out/train-${TPU_WORKER_ID}.log",
    )
    assert call.env == {
        "PROJECT_ID": "my project",
        "BASE_OUTPUT_DIR": "gs://bucket/out",
        "WORKLOAD_NAME": "first-last-a-tag-of-more-t-20260101-0000",
    }


RECIPE = r"""#!/bin/bash
set -e; set -o pipefail
UV_VENV_PATH="${HOME}/.local/bin/venv"
source "${UV_VENV_PATH}/bin/activate"
if ! pip show xpk &> /dev/null; then
    echo "pip install xpk==1.4.0"
    exit 1
fi
export PROJECT_ID=""
export BASE_OUTPUT_DIR="" # for example, gs://<your_gcs_bucket>
export WORKLOAD_NAME="$(printf "%.26s" "${USER//_/-}-a-tag-of-more-than-26-characters")-$(date +%Y%m%d-%H%M)"
XLA_FLAGS=" \
  --xla_a=1 \
  --xla_b=True "
MAXTEXT_ARGS="\
steps=30 \
quantization='fixed,-224,224' \
path=${BASE_OUTPUT_DIR}/*.arrayrecord"

xpk workload create \
  --project=$PROJECT_ID \
  \
  --workload="${WORKLOAD_NAME}" \
  --command="set -e && export LIBTPU_INIT_ARGS='${XLA_FLAGS}' && \
python3 -m maxtext ${MAXTEXT_ARGS} | tee train.log && \
gsutil cp train.log ${BASE_OUTPUT_DIR}/train-\${TPU_WORKER_ID}.log"
  
"""


CONSTRUCTIONS = {
    "continuation lines of spaces": ("xpk a \\\n  \\\n   \\\n  b\n", ("a", "b")),
    "single quotes in double quotes": ("A=x\nxpk \"run '$A' '${A}'\"", ("run 'x' 'x'",)),
    "double quotes in single quotes": ("xpk 'say \"$A\"'", ('say "$A"',)),
    "bare values with commas": ("xpk m=fixed,-224,224", ("m=fixed,-224,224",)),
    "globs that match nothing": ("xpk gs://b/*.arrayrecord a=[x]?", ("gs://b/*.arrayrecord", "a=[x]?")),
    "globs that match": ("touch b.yml a.yml\nxpk *.yml", ("a.yml", "b.yml")),
    "escaped variables": ('xpk "train-\\${TPU_WORKER_ID}.log"', ("train-${TPU_WORKER_ID}.log",)),
    "truncation by printf": ('xpk "$(printf "%.5s" "${USER//_/-}-tag")"', ("first",)),
    "substitution": ('xpk "${USER//_/-}" "${USER%_*}" "${#USER}"', ("first-last", "first", "10")),
    "the time of date": ("xpk $(date +%Y%m%d-%H%M) $(date -u +%s)", ("20260101-0000", "1767225600")),
    "a date that the script chooses": ("xpk $(date -d @0 +%Y) $(date -d 2020-02-03 +%F)", ("1970", "2020-02-03")),
    "who runs it": ("xpk $(whoami) $USER $HOME ~", ("first_last", "first_last", "/homes/first_last", "/homes/first_last")),
    "errexit and pipefail": ("set -euo pipefail\necho a | cat > /dev/null\nxpk a", ("a",)),
    "inline comments": ('A="x" # a <b>\nxpk "$A" # c', ("x",)),
    "trailing blank lines": ("xpk a\n  \n\n  ", ("a",)),
    "no newline at the end": ("xpk a", ("a",)),
    "carriage returns": ("A=x\r\nxpk $A", ("x\r",)),
    "arrays": ('A=(a "b c")\nA+=(d)\nxpk "${A[@]}" "${A[*]}"', ("a", "b c", "d", "a b c d")),
    "associative arrays": ("declare -A A=([k]=v)\nxpk ${A[k]}", ("v",)),
    "here-documents": ("A=x\nxpk \"$(cat <<E\n  $A 'y'\nE\n)\"", ("  x 'y'",)),
    "quoted here-documents": ("read -r -d '' B <<'E'\n$A\n\\n\nE\nxpk \"$B\"", ("$A\n\\n",)),
    "unset variables": ('xpk --project=$NOTHING $NOTHING "$NOTHING"', ("--project=", "")),
    "nested variables": ('A=B\nB=x\nC="${!A}-${A:-${B}}"\nxpk $C ${D:-"$B y"}', ("x-B", "x y")),
    "functions": ('f() { local A=$1; xpk "$A"; }\nf "a b"', ("a b",)),
    "conditions": ('if [[ -z "${Z}" && 1 -lt 2 ]]; then xpk a; else xpk b; fi', ("a",)),
    "cases": ('case tpu7x-4x4x4 in tpu7x-*) xpk a ;; *) xpk b ;; esac', ("a",)),
    "newlines in arguments": ("xpk 'a\nb'", ("a\nb",)),
    "bytes that are not UTF-8": ("xpk $'\\xff\\x01'", ("\udcff\x01",)),
    "an empty argument": ("xpk '' a", ("", "a")),
    "a bare placeholder": ("xpk --project=<your-project> \\\n  --zone=<zone>", ("--project=<your-project>", "--zone=<zone>")),
    "an absolute command": ("$(command -v xpk) a", ("a",)),
    "brace expansion": ("xpk a{1,2}", ("a1", "a2")),
    "a pipe of a call": ("xpk a | tee log", ("a",)),
    "a call in the background": ("xpk a &", ("a",)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CONSTRUCTIONS.values(), ids=CONSTRUCTIONS)
def test_arguments_are_those_of_bash(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    assert arguments(tmp_path, text) == expected


def test_values_reach_the_lines_that_use_them(tmp_path: Path) -> None:
    text = 'export A=""\nexport B=${A}/data\nC="${C:-c}"\nxpk $A $B $C --x=<your-x>'
    assert arguments(tmp_path, text, A="gs://b", C="it's", X="y") == ("gs://b", "gs://b/data", "it's", "--x=y")


SETS = {
    "a line": "Z=a",
    "an export": 'export Y=b Z=""',
    "several lines": 'Z="a\nb"',
    "an output": 'Z="$(printf x)"',
    "braces": "{ Z=inner; }",
    "a list": "true && Z=a; Z=b",
    "a function": "f() { Z=inner; local Z; Z=x; }; f",
    "a declaration": "declare -x Z=a",
    "a loop": "for Z in a; do :; done",
}


@pytest.mark.parametrize("text", SETS.values(), ids=SETS)
def test_a_typed_value_counts_wherever_the_script_sets_another(tmp_path: Path, text: str) -> None:
    assert arguments(tmp_path, f"set -eu\n{text}\nxpk $Z", Z="v") == ("v",)


def test_a_readonly_variable_keeps_its_value(tmp_path: Path) -> None:
    assert arguments(tmp_path, "set -e\nreadonly Z=a\nxpk $Z", Z="v") == ("a",)


def test_the_state_of_the_shell_is_not_changed_by_typed_values(tmp_path: Path) -> None:
    text = 'f() { return 3; }\nf || xpk $?\ntrue | false | true || :\nfalse | true; xpk "${PIPESTATUS[*]}" "$Z"'
    result = run(tmp_path, text, Z="v")
    assert [call.argv[1:] for call in result.calls] == [("3",), ("1 0", "v")]


def test_values_reach_a_file_that_is_sourced(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text('export A=...\nexport B="<b>"')
    assert arguments(tmp_path, "source env.sh\nxpk $A $B", A="x", b="y") == ("x", "y")


def test_a_repeated_evaluation_is_the_same(tmp_path: Path) -> None:
    text = "xpk $RANDOM $(date +%N) $(hostname) $$ $PWD $BASH_SOURCE $0 $(tr -dc a-z0-9 < /dev/urandom | head -c 5)"
    assert arguments(tmp_path, text) == arguments(tmp_path, text)


@pytest.mark.parametrize("home", ["", "/tmp/x", "/data/users/x y"])
def test_the_home_may_be_anywhere(tmp_path: Path, home: str) -> None:
    script = tmp_path / "-run.sh"
    script.write_text('xpk "$HOME" ~ "$PWD"; touch ~/x /tmp/y; cat ~/.local/bin/venv/bin/activate')
    result = evaluate(script, {}, user="u", home=home)
    home = home or "/home/" + "u"
    assert [call.argv[1:] for call in result.calls] == [(home, home, f"{home}/recipe")] and not result.problem


def test_files_beside_the_script_are_there_but_for_hidden_ones(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("A=x")
    (tmp_path / ".env").write_text("B=y")
    (tmp_path / "link.sh").symlink_to("/etc/passwd")
    (tmp_path / "large.bin").write_bytes(bytes(2 << 20))
    assert arguments(tmp_path, "source env.sh\n. ./env.sh\nxpk $A *") == ("x", "env.sh", "run_recipe.sh")


def test_an_environment_that_is_not_there_is_activated(tmp_path: Path) -> None:
    text = 'set -e\n[ -f "${HOME}/.local/bin/venv/bin/activate" ]\nsource ~/.local/bin/venv/bin/activate\n. /opt/venv/bin/activate\ndeactivate\nxpk a'
    result = run(tmp_path, text)
    assert [call.argv for call in result.calls] == [("source", "/opt/venv/bin/activate"), ("xpk", "a")]


def test_programs_that_act_are_recorded_and_answer(tmp_path: Path) -> None:
    text = (
        "set -eo pipefail\npip install xpk==1.8.0\nV=$(pip show xpk | grep Version)\ngit clone https://example.com/maxtext.git\n"
        "cd maxtext\nsudo apt-get install x\nkubectl apply -f - <<E\nkind: Job\nE\nwhile read -r l; do gcloud $l; done <<< a\n"
        'xpk "$V" "$(gcloud config get-value project)"'
    )
    result = run(tmp_path, text, PROJECT_ID="p")
    assert not result.problem, result
    assert [call.argv for call in result.calls if call.argv[1] != "config"] == [
        ("pip", "install", "xpk==1.8.0"),
        ("pip", "show", "xpk"),
        ("git", "clone", "https://example.com/maxtext.git"),
        ("sudo", "apt-get", "install", "x"),
        ("kubectl", "apply", "-f", "-"),
        ("gcloud", "a"),
        ("xpk", "Version: 1.8.0", "p"),
    ]


def test_workloads_are_told_from_other_calls(tmp_path: Path) -> None:
    started = ("xpk", "python3 ~/xpk/xpk.py", "python -m xpk.main", "uv run xpk")
    text = "xpk version\nxpk workload list\n" + "\n".join(f"{words} workload create" for words in started)
    assert [call.argv for call in run(tmp_path, text).workloads()] == [("xpk", "workload", "create")] * len(started)


def test_a_script_that_fails_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path, "echo 'Error: no TPU_TYPE'\nexit 3")
    assert (
        result.exit_code == 3
        and result.problem == f"{tmp_path}/run_recipe.sh ended with exit code 3: Error: no TPU_TYPE"
    )


def test_without_namespaces_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation.shutil, "which", lambda name: None if name == "unshare" else f"/usr/bin/{name}")
    result = run(tmp_path, "xpk version")
    assert not result.sandboxed and result.why_not == "unshare is not installed here" and result.exit_code is None


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
@pytest.mark.parametrize(
    ("dropped", "named"),
    [
        ("-dac_override", "CAP_DAC_OVERRIDE"),
        ("-chown", "CAP_CHOWN"),
        ("-setuid,-setgid", "CAP_SETGID, CAP_SETUID"),
        ("-all", "CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_SETGID, CAP_SETUID"),
    ],
)
def test_root_of_a_hardened_container_is_answered_without_a_sandbox(tmp_path: Path, dropped: str, named: str) -> None:
    script, scratch = tmp_path / "run.sh", tmp_path / "scratch"
    script.write_text("xpk workload create\n")
    scratch.mkdir()
    program = "import sys; from pathlib import Path; from tests.evaluated import evaluate; "
    program += "e = evaluate(Path(sys.argv[1]), {}); "
    program += "print(e.sandboxed, e.why_not)"
    drop = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", program, str(script)],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"False root has no {named} here, which the sandbox needs\n", done.stderr
    assert not list(scratch.iterdir())


def test_a_folder_that_cannot_be_filled_is_answered_without_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch" / "absent"))
    result = run(tmp_path, "xpk workload create\n")
    assert not result.sandboxed
    assert result.why_not.startswith("the sandbox cannot be set up: ") and "absent" in result.why_not


@pytest.mark.parametrize("trust", [False, True])
def test_without_the_proc_of_linux_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: bool) -> None:
    monkeypatch.setattr("podwright.sandbox.stage._IDS", tmp_path / "uid_map")
    now = datetime.now().astimezone()
    with pytest.raises(UserError) as refused:
        read.read(tmp_path / "run.sh", "xpk workload create\n", {}, now, {}, trust=trust)
    assert (refused.value.code, refused.value.fix) == ("no-sandbox", "import it on a Linux machine")
    assert "/proc" in refused.value.what


def test_of_etc_a_script_sees_what_the_page_names(tmp_path: Path) -> None:
    seen = arguments(tmp_path, 'xpk workload create --seen="$(ls -A /etc | tr "\\n" " ")"')[-1].removeprefix("--seen=")
    page = (Path(__file__).parents[3] / "docs" / "sandbox.md").read_text()
    assert {"passwd", "group", "nsswitch.conf"} <= set(seen.split())
    named = {"alternatives": "`/etc/alternatives`", "ld.so.cache": "`/etc/ld.so.cache`"}
    assert all(named.get(name, f"`{name}`") in page for name in seen.split())
