"""The rendered scripts, really run with stand-ins for gcloud, kubectl, docker, git and xpk; and read by shellcheck and gcloud's linter."""

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from podwright.recipe.maxtext.schema import command
from tests.unit.recipe.maxtext.example import RAW, example
from tests.unit.targets.gke.rendered import Scripts, path_of

SETUP, SUBMIT, POOL, CLEANUP = "setup_training_env.sh", "submit_toy.sh", "node_pool.sh", "cleanup.sh"
SHELLCHECK = path_of("shellcheck")
DESCRIBE = "gcloud artifacts docker images describe*"
NO_IMAGE = {DESCRIBE: ("ERROR: (gcloud.artifacts.docker.images.describe) Image not found.\n", 1)}
V6E: dict[str, Any] = {"topology": "v6e-16", "num_slices": 2}
STORAGE: dict[str, Any] = {"xpk": RAW["xpk"] | {"storage": "data volume"}}


CALL = re.compile(r"(?:^ *|\$\(|if |! |\) )gcloud((?: [a-z][a-z-]*)+)", re.MULTILINE)


def variants(tmp_path: Path) -> list[Scripts]:
    """Every branch of the templates."""
    full = {"versions": {"maxtext": "v1", "jax": "0.9.2", "libtpu": "0.0.37", "xpk": "1.8.0"}}
    given: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        (full, {"reservations": ["r-1", "r-2"], "zones": ["us-central1-a", "us-central1-b"]}),
        (V6E, {"machine_type": "ct6e-standard-4t"}),
        ({"topology": "tpu7x-2x2x1"}, {"image": "gcr.io/p/i:v1"}),
        (STORAGE, {}),
        ({}, {"queue": "mine", "namespace": "team-a"}),
        ({"image": "fixed:1"}, {"image": ""}),
        (V6E, {"machine_type": "ct6e-standard-4t", "provisioning": "flex-start", "gcloud": ["--disk-size=200"]}),
        ({"topology": "tpu7x-2x2x1"}, {"provisioning": "flex-start", "queue": "mine"}),
    ]
    made = []
    for number, (changes, settings) in enumerate(given):
        (tmp_path / str(number)).mkdir()
        made.append(Scripts(tmp_path / str(number), example(**changes), **settings))
    return made


@pytest.mark.skipif(not SHELLCHECK, reason="shellcheck is not installed")
def test_every_script_is_clean_for_shellcheck(tmp_path: Path) -> None:
    files = [str(file) for each in variants(tmp_path) for file in each.path.glob("*.sh")]
    done = subprocess.run([SHELLCHECK, "--shell=bash", *files], capture_output=True, text=True, check=False)
    assert len(files) == 36 and done.stdout == ""


def test_every_script_says_what_it_does_and_is_executable(tmp_path: Path) -> None:
    for each in variants(tmp_path):
        for file in each.path.glob("*.sh"):
            text = file.read_text()
            assert text.startswith(f"#!/usr/bin/env bash\n# {file.name}: ") and f"#   bash {file.name}" in text
            assert file.stat().st_mode & 0o100 and "{%" not in text and "{{" not in text
            assert subprocess.run(["bash", "-n", str(file)], check=False).returncode == 0


def recorded(tmp_path: Path) -> tuple[list[list[str]], str]:
    """Every call of gcloud that the scripts make in all their branches, and the text of all of them."""
    calls: list[list[str]] = []
    text = ""
    stockout = {"gcloud container node-pools create*": ("", 1)}
    for each in variants(tmp_path):
        text += "".join(file.read_text() for file in each.path.glob("*.sh"))
        runs: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
            (SETUP, (), {}),
            (SETUP, (), NO_IMAGE),
            (POOL, (), {}),
            (POOL, (), {"gcloud compute resource-policies describe*": ("", 1)} | stockout),
            (CLEANUP, ("--pools",), {"gcloud container node-pools list*name=*": "pw-pool"}),
        ]
        for name, words, answers in runs:
            each.run(name, *words, answers=answers)
            calls += each.calls("gcloud")
    one = Scripts(tmp_path)
    one.run(CLEANUP, "--pools", answers={"*node-pools list*name=*": "x", "*node-pools describe*": "tpu7x-4x4x4"})
    return calls + one.calls("gcloud"), text


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
def test_every_gcloud_call_passes_gclouds_own_linter(tmp_path: Path) -> None:
    calls, text = recorded(tmp_path)
    commands = sorted({subprocess.list2cmdline(["gcloud", *argv[1:]]) for argv in calls})
    written = {" ".join(words.split()) for words in CALL.findall(_code(text))}
    called = {" ".join(argv[1:]) for argv in calls}
    assert [words for words in written if not any(line.startswith(words) for line in called)] == []
    (tmp_path / "commands.json").write_text(json.dumps([{"command_string": command} for command in commands]))
    argv = ["gcloud", "meta", "lint-gcloud-commands", f"--commands-file={tmp_path}/commands.json"]
    rows = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert len(rows) == len(commands) > 15
    assert [(row["command_string"], row.get("error_message")) for row in rows if not row["success"]] == []


def _code(text: str) -> str:
    """Without comments."""
    return re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)


def test_a_cluster_that_has_everything_passes(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path)
    code, out = scripts.run(SETUP)
    assert code == 0 and "missing:" not in out and "ok: image us-docker.pkg.dev" in out
    assert not scripts.calls("docker") and not scripts.calls("git")


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ({"gcloud auth list*": ""}, "error: no account is active"),
        ({"gcloud container clusters describe*": ("", 1)}, "error: cluster my-cluster in us-central1 cannot be described"),
        ({"gcloud container clusters describe*status*": "ERROR"}, "error: cluster my-cluster is ERROR"),
        ({"gcloud*get-credentials*": ("", 1)}, "error: kubectl has no access to cluster my-cluster"),
        ({"gcloud compute machine-types*": ("", 1)}, "missing: zone us-central1-ai1a has no machine type tpu7x-standard-4t"),
        ({"gcloud compute resource-policies*": ("", 1)}, "missing: workload policy tpu7x-128-4x4x4-placement-policy;"),
        ({"kubectl*get nodes*": ("", 1)}, "error: the nodes of cluster my-cluster cannot be listed"),
        ({"kubectl*get nodes*": ""}, "missing: 0 of 16 nodes with tpu7x 4x4x4 and policy"),
        ({"kubectl*get nodes*": "n\n" * 15}, "missing: 15 of 16 nodes with tpu7x 4x4x4 and policy"),
        ({"kubectl*get crd*": ("", 1)}, "missing: JobSet is not installed"),
        ({"kubectl*localqueues*": ("", 1)}, "missing: namespace default has no queue multislice-queue"),
        ({"kubectl*priorityclass*": ("", 1)}, "missing: the cluster has no PriorityClass very-high"),
        ({"gcloud storage buckets*": ("", 1)}, "missing: bucket gs://my-bucket cannot be described"),
        (NO_IMAGE, "missing: image us-docker.pkg.dev/my-project/images/maxtext:v1 could not be built"),
    ],
)  # fmt: skip
def test_what_is_missing_is_one_line(tmp_path: Path, answers: dict[str, Any], line: str) -> None:
    code, out = Scripts(tmp_path).run(SETUP, answers=answers)
    lines = [each for each in out.splitlines() if each.startswith(("missing:", "error:"))]
    assert code == 1 and any(each.startswith(line) for each in lines) and len(lines) <= 2, out


def test_a_priority_that_only_kubernetes_may_create_is_not_to_be_created(tmp_path: Path) -> None:
    answers = {"kubectl*priorityclass*": ("", 1)}
    _, out = Scripts(tmp_path, priority="high").run(SETUP, answers=answers)
    assert "; type kubectl create priorityclass high --value=500 --context=" in out, out
    _, out = Scripts(tmp_path, priority="system-high").run(SETUP, answers=answers)
    assert "; set priority of the target to one of: kubectl get priorityclasses --context=" in out, out
    assert "create priorityclass" not in out, out


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ('Error from server (NotFound): localqueues.kueue.x-k8s.io "multislice-queue" not found', "; podwright target check pod names the queues there are"),
        ("E1123 07:02:09 memcache.go\nUnable to connect to the server: EOF", ", or it cannot be seen: Unable to connect to the server: EOF"),
    ],
)  # fmt: skip
def test_what_kubectl_prints_is_shown_only_where_it_says_more(tmp_path: Path, error: str, says: str) -> None:
    code, out = Scripts(tmp_path).run(SETUP, answers={"kubectl*localqueues*": (f"{error}\n", 1)})
    assert code == 1 and "NotFound" not in out and "memcache" not in out, out
    assert "missing: namespace default has no queue multislice-queue of Kueue" in out and says in out, out


def test_a_missing_image_is_built_of_the_versions_of_the_recipe(tmp_path: Path) -> None:
    versions = {"maxtext": "v1.5.0", "jax": "0.9.2.dev1", "libtpu": "0.0.37+nightly"}
    scripts = Scripts(tmp_path, example(versions=versions), jax="0.9.3")
    (scripts.bin / "built").write_text('#!/bin/bash\necho built "$@" >> "$CALLS"\n')
    files = {**NO_IMAGE, "git ls-files*image.sh*": f"{scripts.bin}/built\n", "git ls-files*": "d/run.Dockerfile\n"}
    code, out = scripts.run(SETUP, answers=files)
    assert code == 0 and "was built" in out
    calls = [" ".join(argv) for argv in scripts.calls()]
    assert "git checkout --quiet v1.5.0" in calls
    assert "built MODE=nightly JAX_VERSION=0.9.3 LIBTPU_VERSION=0.0.37+nightly" in calls  # the target's version counts
    (build, push) = [each for each in calls if each.startswith("docker")]
    assert "--file=d/run.Dockerfile --tag=us-docker.pkg.dev/my-project/images/maxtext:v1" in build
    assert push == "docker push us-docker.pkg.dev/my-project/images/maxtext:v1"


FAILING_STEPS = {
    "git clone*": "could not be cloned",
    "git checkout*": "has no version v1.5.0",
    "git ls-files*image.sh*": "the files of MaxText v1.5.0 cannot be listed",
    "git ls-files*Dockerfile*": "the files of MaxText v1.5.0 cannot be listed",
    "dependencies*": "the image of its dependencies was not built",
    "docker build*": "docker build failed",
    "docker push*": "docker push failed",
}
"""calls in their order, with what is said where one fails"""


@pytest.mark.parametrize("step", FAILING_STEPS)
def test_a_step_of_the_image_that_fails_ends_its_build(tmp_path: Path, step: str) -> None:
    scripts = Scripts(tmp_path, example(versions={"maxtext": "v1.5.0"}))
    shutil.copy(scripts.bin / "git", scripts.bin / "dependencies")
    files = {
        "git ls-files*image.sh*": f"{scripts.bin}/dependencies\n",
        "git ls-files*Dockerfile*": "d/run.Dockerfile\n",
    }
    code, out = scripts.run(SETUP, answers={**NO_IMAGE, **files, step: ("", 1)})
    assert code == 1 and FAILING_STEPS[step] in out and "ok: image" not in out, out
    assert "missing: image us-docker.pkg.dev/my-project/images/maxtext:v1 could not be built" in out
    calls = [" ".join(argv) for argv in scripts.calls()]
    order = list(FAILING_STEPS)
    later = [pattern for pattern in order[order.index(step) + 1 :] if not step.startswith("git ls-files")]
    assert not [call for call in calls for pattern in later if fnmatch(call, pattern)]
    assert step == "docker push*" or not [call for call in calls if call.startswith("docker push")]


@pytest.mark.parametrize(
    "error",
    [
        "ERROR: (gcloud.artifacts.docker.images.describe) PERMISSION_DENIED: Permission 'artifactregistry.dockerimages.get' denied on resource (or it may not exist).",
        "ERROR: (gcloud.artifacts.docker.images.describe) Reauthentication failed. cannot prompt during non-interactive execution.",
        "",
    ],
)  # fmt: skip
def test_an_image_whose_registry_does_not_answer_is_not_built(tmp_path: Path, error: str) -> None:
    scripts = Scripts(tmp_path, example(versions={"maxtext": "v1.5.0"}))
    code, out = scripts.run(SETUP, answers={DESCRIBE: (f"WARNING: ...\n{error}\n" if error else "", 1)})
    (line,) = [line for line in out.splitlines() if line.startswith("error:")]
    assert code == 1 and line.startswith("error: whether image us-docker.pkg.dev/my-project/images/maxtext:v1 exists")
    assert line.endswith(error or "its registry gave no reason")
    assert not scripts.calls("git") and not scripts.calls("docker")


def test_an_image_that_is_not_built_here_is_not_missing(tmp_path: Path) -> None:
    code, out = Scripts(tmp_path, example(image="fixed:1"), image="").run(SETUP, answers={"docker*": ("", 1)})
    assert code == 0 and "note: image fixed:1 cannot be described from here" in out


def test_another_version_of_xpk_is_said(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, example(versions={"xpk": "1.16.0"}))
    assert "note: xpk 1.8.0 is installed and the recipe says 1.16.0" in scripts.run(SETUP)[1]
    assert "note:" not in Scripts(tmp_path, example(versions={"xpk": "1.8.0"})).run(SETUP)[1]


def name_of(scripts: Scripts) -> str:
    return str(yaml.safe_load(scripts.submitted)["metadata"]["name"])


@pytest.mark.parametrize("user", ["me", "Some.Body_1", "007", "x" * 40, "ünï", "a.b@c"])
def test_a_run_has_a_legal_name_whoever_submits_it(tmp_path: Path, user: str) -> None:
    scripts = Scripts(tmp_path)
    (scripts.bin / "id").write_text(f"#!/bin/bash\nprintf '%s\\n' '{user}'\n")
    (scripts.bin / "id").chmod(0o755)
    code, out = scripts.run(SUBMIT)
    assert code == 0, out
    assert re.fullmatch(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?", name_of(scripts)), name_of(scripts)
    assert re.search(r"-\d{6}-\d{6}$", name_of(scripts)) and "--" not in name_of(scripts)
    assert "${WORKLOAD_NAME}" not in scripts.submitted and f"run_name={name_of(scripts)}" in scripts.submitted


@pytest.mark.parametrize("name", ["My-Run", "a b", "1run", "run-", "x" * 41, "a/b", "a&b", "a\nb"])
def test_a_name_that_is_not_legal_is_refused(tmp_path: Path, name: str) -> None:
    scripts = Scripts(tmp_path)
    code, out = scripts.run(SUBMIT, WORKLOAD_NAME=name)
    assert code == 1 and "cannot be the name of a run" in out and not scripts.calls()


@pytest.mark.parametrize("way", ["kubectl", "xpk"])
def test_a_name_that_exists_is_refused(tmp_path: Path, way: str) -> None:
    scripts = Scripts(tmp_path)
    code, out = scripts.run(SUBMIT, way, WORKLOAD_NAME="r", answers={"kubectl*get jobset r*": "jobset/r\n"})
    assert code == 1 and "a run r exists already, and xpk would delete it" in out
    assert not scripts.calls("xpk") and not [argv for argv in scripts.calls() if "create" in argv]
    assert scripts.run(SUBMIT, way, answers={"kubectl*get jobset*": ("", 1)})[0] == 1


def test_both_ways_submit_the_same_command(tmp_path: Path) -> None:
    recipe = example(arguments={**RAW["arguments"], "prompt": "it's $(id) `id` \"x\" \\ END_OF_COMMAND"}, xla_flags=["--a=1", "END_OF_COMMAND"])  # fmt: skip
    scripts = Scripts(tmp_path, recipe)
    assert scripts.run(SUBMIT, WORKLOAD_NAME="r")[0] == 0
    pod = yaml.safe_load(scripts.submitted)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert scripts.run(SUBMIT, "xpk", WORKLOAD_NAME="r")[0] == 0
    (argv,) = scripts.calls("xpk")
    given = next(word for word in argv if word.startswith("--command=")).removeprefix("--command=")
    assert f" && {given}) & PID=$!;" in pod["containers"][0]["command"][2]
    assert "prompt=it'" in given and "run_name=r " in given and "${TPU_WORKER_ID}" in given
    without = argv[: argv.index(f"--command={given}")]
    assert without[1:] == [
        "workload", "create", "--cluster=my-cluster", "--project=my-project", "--zone=us-central1-ai1a", "--workload=r",
        "--device-type=tpu7x-4x4x4", "--num-slices=1", "--docker-image=us-docker.pkg.dev/my-project/images/maxtext:v1",
        "--priority=very-high", "--max-restarts=0", "--enable-debug-logs",
    ]  # fmt: skip
    assert given.startswith(command(recipe).split(" && ")[0])


def test_xpk_submits_to_the_zone_of_the_nodes(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, zones=["us-central1-a", "us-central1-b"])
    there = {"kubectl*get nodes*jsonpath=*zone}": "us-central1-b us-central1-b"}
    assert scripts.run(SUBMIT, "xpk", WORKLOAD_NAME="r", answers=there)[0] == 0
    assert "--zone=us-central1-b" in scripts.calls("xpk")[0]
    code, out = scripts.run(SUBMIT, "xpk", WORKLOAD_NAME="r", answers={"kubectl*get nodes*": ("", 1)})
    assert code == 1 and "the cluster does not answer" in out and not scripts.calls("xpk")


@pytest.mark.parametrize(
    ("listed", "line"),
    [
        ('{"tpu7x-128":"16"}', "ok: tpu7x-128 in ConfigMap my-cluster-resources-configmap"),
        ('{"tpu7x-1280":"160"}', """--type=merge --patch='{"data":{"tpu7x-128":"16"}}'"""),
        ("", ""),
    ],
)
def test_the_setup_says_what_xpk_would_look_up(tmp_path: Path, listed: str, line: str) -> None:
    code, out = Scripts(tmp_path).run(SETUP, answers={"kubectl*get configmap*": listed})
    assert code == 0 and line in out and (listed != "" or "resources-configmap" not in out)
    assert ("note: " in out) == ("1280" in listed), out


def test_what_only_xpk_can_do_is_submitted_by_xpk(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, example(**STORAGE))
    assert any("--storage" in line and "jobset.yaml" in line for line in scripts.rendered.by_hand)
    assert scripts.run(SUBMIT)[0] == 0
    assert "--storage=data volume" in scripts.calls("xpk")[0]
    assert scripts.run(SUBMIT, "kubectl")[0] == 1


def test_kubectl_speaks_to_the_cluster_of_the_target_alone(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path, namespace="lab", queue="mine")
    assert scripts.run(SUBMIT)[0] == 0
    for argv in scripts.calls("kubectl"):
        assert argv[1:3] == ["--context=gke_my-project_us-central1_my-cluster", "--namespace=lab"]
    assert scripts.run(SUBMIT, "xpk")[0] == 1  # which knows one queue


def test_a_node_pool_has_the_flags_of_its_generation(tmp_path: Path) -> None:
    assert created(Scripts(tmp_path)) == [
        ("pw-tpu7x-4x4x4-0", "16", {"--placement-policy=tpu7x-128-4x4x4-placement-policy"})
    ]
    v6e = Scripts(tmp_path, example(**V6E), machine_type="ct6e-standard-4t")
    flags = {"--placement-type=COMPACT", "--tpu-topology=4x4"}
    assert created(v6e) == [("pw-v6e-4x4-0", "4", flags), ("pw-v6e-4x4-1", "4", flags)]
    assert created(Scripts(tmp_path, example(topology="tpu7x-2x2x1"))) == [("pw-tpu7x-2x2x1-0", "1", set())]


def created(scripts: Scripts) -> list[tuple[str, str, set[str]]]:
    """Name, nodes and placement of each pool that node_pool.sh creates."""
    assert scripts.run(POOL)[0] == 0
    calls = [argv for argv in scripts.calls("gcloud") if argv[1:4] == ["container", "node-pools", "create"]]
    rows = []
    for argv in calls:
        nodes = next(word.partition("=")[2] for word in argv if word.startswith("--num-nodes"))
        rows.append((argv[4], nodes, {word for word in argv if word.startswith(("--placement", "--tpu-topology"))}))
        assert (
            "--node-version=1.34.1-gke.100" in argv and f"--node-labels=podwright-pool={scripts_label(argv[4])}" in argv
        )
    return rows


def scripts_label(pool: str) -> str:
    return pool.removeprefix("pw-").rpartition("-")[0]


def test_reservations_are_tried_in_order_and_a_pool_that_stays_is_deleted_first(tmp_path: Path) -> None:
    """A reservation without room leaves its pool behind, which fills itself later and costs then."""
    scripts = Scripts(tmp_path, reservations=["r-1", "r-2"])
    state = tmp_path / "pool"
    (scripts.bin / "gcloud").write_text(
        "#!/bin/bash\n"
        '{ printf gcloud; printf " %q" "$@"; echo; } >> "$CALLS"\n'
        f'case "$*" in *node-pools\\ create*r-1*) echo RUNNING > {state}; exit 1 ;;\n'
        f"*node-pools\\ delete*) rm {state} ;;\n"
        f"*node-pools\\ list*) cat {state} 2>/dev/null ;;\n"
        "*currentMaster*) echo 1.34 ;; esac\nexit 0\n"
    )
    code, out = scripts.run(POOL)
    verbs = [argv[3] for argv in scripts.calls("gcloud") if argv[1:3] == ["container", "node-pools"]]
    assert code == 0 and verbs == ["list", "create", "list", "delete", "create"], out
    assert any("--reservation=r-2" in argv for argv in scripts.calls("gcloud"))


@pytest.mark.parametrize(
    ("answers", "code", "line"),
    [
        ({"*node-pools list*": "RUNNING\n"}, 0, "ok: node pool pw-tpu7x-4x4x4-0 exists"),
        ({"*node-pools list*": "ERROR\n"}, 1, "exists and is ERROR; bash cleanup.sh deletes it"),
        ({"*node-pools list*": ("", 1)}, 1, "cannot be listed"),
        ({"*node-pools create*": ("", 1)}, 1, "could not be created in any zone; the messages of gcloud are above"),
    ],
)
def test_a_pool_that_exists_is_left_as_it_is(tmp_path: Path, answers: dict[str, Any], code: int, line: str) -> None:
    scripts = Scripts(tmp_path)
    result, out = scripts.run(POOL, answers=answers)
    assert result == code and line in out
    assert not [argv for argv in scripts.calls("gcloud") if argv[3] == "delete"]


@pytest.mark.parametrize(
    ("answers", "deleted", "line"),
    [
        ({}, False, "ok: there is no node pool pw-tpu7x-4x4x4-0"),
        ({"*list*name=*": "x", "*node-pools describe*": "theirs"}, False, "was not created by node_pool.sh"),
        ({"*list*name=*": "x", "*node-pools describe*": ("", 1)}, False, "whether node_pool.sh created it is not known"),
        ({"*list*name=*": "x", "*node-pools describe*": "tpu7x-4x4x4"}, True, "ok: no node pool of node_pool.sh is left"),
        ({"*list*name=*": "x", "*describe*": "tpu7x-4x4x4", "*node-pools delete*": ("", 1)}, True, "it costs while it exists"),
        ({"*list*name=*": "x", "*describe*": "tpu7x-4x4x4", "*list*podwright-pool=*": "x"}, True, "still there: x"),
        ({"*list*name=*": ("", 1)}, False, "cannot be listed"),
        ({"*get nodes*": ("", 1)}, False, "the cluster does not answer"),
        ({"*get nodes*": "n1 n2", "*get pods*n2*": "pod/r\n"}, False, "a run is on node n2 (pod/r)"),
    ],
)  # fmt: skip
def test_the_clean_up_deletes_its_own_pools_alone(
    tmp_path: Path, answers: dict[str, Any], deleted: bool, line: str
) -> None:
    scripts = Scripts(tmp_path)
    code, out = scripts.run(CLEANUP, "--pools", answers=answers)
    assert line in out and code == (0 if "ok:" in line else 1)
    assert bool([argv for argv in scripts.calls("gcloud") if argv[3] == "delete"]) == deleted


def test_the_clean_up_of_a_run_says_what_is_left(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path)
    assert scripts.run(CLEANUP, "r")[1] == "ok: run r is gone\n"
    assert scripts.run(CLEANUP, "r", answers={"*get jobset r*": "jobset/r"})[0] == 1
    assert scripts.run(CLEANUP, "r", answers={"*delete jobset*": ("", 1)})[0] == 1
    assert scripts.run(CLEANUP)[0] == 1 and not scripts.calls()


@pytest.mark.parametrize(
    ("reservation", "answer", "line"),
    [
        ("r-1", "us-central1-a\n", "ok: reservation r-1 in us-central1-a"),
        ("r-1", "us-east5-a\nus-central1-b\n", "ok: reservation r-1 in us-central1-b"),
        ("r-1", "us-east5-a\n", "missing: reservation r-1 is in us-east5-a, and zones of the target has us-central1-a us-central1-b alone; node pools there cannot use it"),
        ("r-1", "", "missing: project my-project has no reservation r-1"),
        ("r-1", ("", 1), "note: reservations of project my-project cannot be listed: the zone of r-1 was not looked at"),
        ("projects/other/reservations/r-1/reservationBlocks/b", "us-central1-a\n", "ok: reservation r-1 in us-central1-a"),
        ("projects/other/reservations/r-1", "", "missing: project other has no reservation r-1"),
    ],
)  # fmt: skip
def test_the_zone_of_a_reservation_is_held_against_those_of_the_target(
    tmp_path: Path, reservation: str, answer: object, line: str
) -> None:
    scripts = Scripts(tmp_path, reservations=[reservation], zones=["us-central1-a", "us-central1-b"])
    _, output = scripts.run("setup_training_env.sh", answers={"gcloud compute reservations list*": answer})
    assert line in output.splitlines()
    (call,) = [argv for argv in scripts.calls("gcloud") if argv[1:3] == ["compute", "reservations"]]
    owner = "other" if "other" in reservation else "my-project"
    assert {f"--project={owner}", "--filter=name=r-1"} <= set(call)
