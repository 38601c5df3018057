"""The command line with which xpk submits a run, and what its output lets one conclude."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe import load
from podwright.recipe.maxtext import xpk
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.shell import Shell
from podwright.targets.base import Job
from podwright.targets.gke import attempt, xpk_calls
from podwright.targets.gke.target import Gke
from podwright.targets.gke.workload import resolved
from podwright.targets.google.replies import Consequence
from tests import real_xpk
from tests.unit.recipe.maxtext.example import example
from tests.unit.recipe.maxtext.launch_script import VALUES
from tests.unit.recipe.maxtext.test_read import imported
from tests.unit.targets.gke.entry import gke

OWN = gke(submit="xpk", xpk="1.16.0")
NAME = "pw-r-12345678-a1"


def options_of(argv: tuple[str, ...]) -> dict[str, str]:
    return xpk.options(argv, "1.16.0").values


def test_the_call_has_the_options_of_the_launch_script_in_their_order() -> None:
    of_script = imported(**VALUES)
    recipe = load.require(load.parse(of_script.recipe), MaxTextRecipe)
    theirs = options_of(of_script.argv)
    given = {name: VALUES.get(name, "x") for name in recipe.variables}
    ours = options_of(xpk_calls.workload_create(resolved(recipe, given | {"WORKLOAD_IMAGE": "img"}), OWN, NAME))
    of_target = ("cluster", "project", "zone", "workload", "docker-image", "command")
    assert {k: v for k, v in ours.items() if k not in of_target} == {
        k: v for k, v in theirs.items() if k not in of_target
    }
    assert [ours[key] for key in of_target[:5]] == ["my-cluster", "my-project", "us-central1-ai1a", NAME, "img"]
    own_order = [key for key in ours if key in recipe.xpk]
    assert own_order == [key for key in theirs if key in recipe.xpk]


def test_an_attempt_of_xpk_is_its_call_with_nothing_of_ours_in_the_jobset(tmp_path: Path) -> None:
    job = Job(tmp_path, 1, tmp_path, recipe=example().model_dump(mode="json"))
    objects = attempt.attempt_of(job, OWN, NAME, "12345678", "multislice-queue", pinned=True)
    assert objects.xpk[:3] == ("xpk", "workload", "create") and f"--workload={NAME}" in objects.xpk
    assert objects.xpk[-1].startswith("--command=set -e && ") and "run_name=pw-r-12345678 " in objects.xpk[-1]
    assert "--docker-image=us-docker.pkg.dev/my-project/images/maxtext:v1" in objects.xpk
    assert objects.container == "jax-tpu" and "podwright" not in str(objects.jobset)


def test_a_dry_run_shows_the_call_of_xpk_between_those_of_pools_and_entry(tmp_path: Path) -> None:
    own = gke(submit="xpk", xpk="1.16.0", provisioning="spot", topology="tpu7x-4x4x4")
    target = Gke(Shell(), "pod", own)
    assert target.provisioner
    request = target.provisioner.describe_request(tmp_path, 1.0, 1, ())
    job = Job(tmp_path, 1, tmp_path, created=1.0, allocation=request.name, recipe=example().model_dump(mode="json"))
    rendered = target.render(job)
    assert rendered.handle["queue"] == "multislice-queue" and rendered.handle["pods"] == 16
    shown = [" ".join(call.argv) for call in target.planned_calls(rendered, request)]
    name = rendered.handle["jobset"]
    for text, part in zip(
        shown,
        [
            "replace --filename=-",
            "resource-policies create workload-policy tpu7x-128-4x4x4-placement-policy",
            f"node-pools create {request.name}-0",
            f"xpk workload create --cluster=my-cluster --project=my-project --zone=us-central1-ai1a --workload={name}",
            f"patch jobset/{name} --type=merge",
            f"delete jobsets --field-selector=metadata.name={name}",
            f"node-pools delete {request.name}-0",
            f"delete jobsets.jobset.x-k8s.io,configmaps,secrets --selector=podwright-run={job.run_tag}",
            "replace --filename=-",
        ],
        strict=True,
    ):
        assert part in text


def test_the_containers_are_those_of_the_version_that_submits(tmp_path: Path) -> None:
    job = Job(tmp_path, 1, tmp_path, recipe=example(versions={"xpk": "1.16.0"}).model_dump(mode="json"))
    names = [attempt.attempt_of(job, gke(submit="xpk", xpk=v), NAME, "t", "q", False).container for v in ("", "1.8.0")]
    assert names == ["jax-tpu", "jax-tpu-1"]


def test_a_cluster_in_one_zone_is_called_by_that_zone() -> None:
    own = gke(submit="xpk", region="us-central1-c", zones=["us-central1-a", "us-central1-c"])
    assert "--zone=us-central1-c" in xpk_calls.workload_create(example(), own, NAME)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"xpk": {"dry-run": ""}}, r"xpk\.dry-run of the recipe submits nothing"),
        ({"xpk": {"use-pathways": ""}}, r"xpk\.use-pathways of the recipe creates no JobSet"),
        ({"xpk": {"max-restarts": "3"}}, r"xpk\.max-restarts=3 .*; type xpk\.max-restarts=0"),
        ({"xpk": {"ttl-seconds-after-finished": "60"}}, r"type xpk\.ttl-seconds-after-finished=600 or more"),
        ({"xpk": {"cluster": "c"}}, r"cannot set xpk\.cluster: a target has it"),
    ],
)
def test_what_could_not_be_followed_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        attempt.require_submittable(example(**changes), OWN)


def test_options_that_only_xpk_carries_out_are_submitted_by_it() -> None:
    attempt.require_submittable(example(xpk={"storage": "bucket-1", "deploy-stacktrace-sidecar": ""}), OWN)
    with pytest.raises(UserError, match=r"only xpk carries out --storage of the recipe.*set submit=xpk"):
        attempt.require_submittable(example(xpk={"storage": "bucket-1"}), gke())


def test_a_run_without_a_version_of_xpk_is_refused() -> None:
    with pytest.raises(UserError, match=r"names a version of xpk.*set xpk=1\.16\.0 in the target's file"):
        attempt.require_submittable(example(), gke(submit="xpk"))


@pytest.fixture
def xpk_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a folder that is all of PATH but the system's."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin" / "xpk"


def test_only_the_wanted_version_of_xpk_submits(xpk_in_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"xpk 1\.16\.0 is not installed on this machine; type pip install xpk==1\.16\.0"
    ):
        xpk_calls.require_installed("1.16.0", Shell().ask)
    xpk_in_path.write_text("#!/bin/sh\necho '[XPK] Starting xpk v1.8.0'; echo '[XPK] xpk_version: 1.8.0'\n")
    xpk_in_path.chmod(0o755)
    assert xpk_calls.require_installed("1.8.0", Shell().ask) == "1.8.0"
    with pytest.raises(UserError, match=r"is 1\.8\.0, and the run needs 1\.16\.0; .*or set xpk=1\.8\.0 in the target"):
        xpk_calls.require_installed("1.16.0", Shell().ask)
    assert xpk_calls.check(OWN, Shell().ask)[0].level == "error"
    assert "this machine has xpk 1.8.0" in xpk_calls.check(gke(submit="xpk"), Shell().ask)[0].what
    xpk_in_path.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named xpk' >&2; exit 1\n")
    with pytest.raises(UserError, match="xpk version fails: ModuleNotFoundError"):
        xpk_calls.require_installed("1.16.0", Shell().ask)


@pytest.mark.long
def test_xpk_itself_says_before_a_run_what_it_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"xpk 1\.16\.0 is not installed"):
        xpk_calls.require_accepted(xpk_calls.versioned(example(), OWN), OWN, no_xpk)
    program = real_xpk.installed("1.16.0")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    for name, value in {"HOME": str(tmp_path), "TELEMETRY_ENABLED": "false", "PIP_NO_INDEX": "1"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".config").mkdir()
    cases: dict[str, dict[str, Any]] = {
        "": {"xpk": {"priority": "very-high"}},
        "Options: this xpk does not know --wait-for-it": {"xpk": {"wait-for-it": ""}},
        "Options: xpk refuses its command line: argument --priority: invalid choice": {"xpk": {"priority": "highest"}},
    }
    for message, changes in cases.items():
        recipe = xpk_calls.versioned(example(**changes), OWN)
        refused = contextlib.nullcontext() if not message else pytest.raises(UserError, match=message)
        with refused:
            xpk_calls.require_accepted(recipe, OWN, Shell().ask)


def no_xpk(*_: object) -> tuple[int, str, str]:
    raise FileNotFoundError("xpk")


TEXTS = [
    # printed by xpk 1.16.0 on the simulated cluster, or read in its source
    (
        "[XPK] Workload scheduling validation failed. XPK will not create the workload w. The nodepool for the requested device type tpu7x-256 is not present on the cluster my-cluster.\n[XPK] XPK failed, error code 1",
        Consequence.FINAL,
        "NoEntry: ConfigMap my-cluster-resources-configmap, in which xpk looks slices up, has no tpu7x-256",
    ),
    (
        "[XPK] w is requesting 2 slice/slices of tpu7x-256, which is 64 VMs, but the cluster only contains 32 VMs of tpu7x-256. XPK will not create this workload.",
        Consequence.FINAL,
        "TooFew: ConfigMap my-cluster-resources-configmap says that the cluster has 32 machines of tpu7x-256, and the run needs 64",
    ),
    (
        "[XPK] Task Check if Workload Already Exists failed with 1\n[XPK] ****\n[XPK] b'error: the server doesn\\'t have a resource type \"workloads\"\\n'\n[XPK] ****\n[XPK] List Job request returned ERROR 1",
        Consequence.FINAL,
        "NoKueue: cluster my-cluster has no Kueue",
    ),
    (
        "usage: xpk [-h] ...\nxpk: error: unrecognized arguments: --use-parallel-containers --foo",
        Consequence.FINAL,
        "Options: this xpk does not know --use-parallel-containers --foo",
    ),
    (
        "xpk workload create: error: argument --device-type: invalid choice: 'tpu7x-9x9x9' (closest matches: tpu7x-8x8x8)",
        Consequence.FINAL,
        "Options: xpk refuses its command line: argument --device-type: invalid choice",
    ),
    (
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
        Consequence.FINAL,
        "NoLogin: xpk has no application-default credentials",
    ),
    (
        "[XPK] Couldn't translate project id: my-project to project number. Error: 403 Cloud Resource Manager API has not been used",
        Consequence.FINAL,
        "NoProjectNumber: xpk may not look up the number of project my-project: 403 Cloud",
    ),
    (
        "[XPK] Failed to validate your docker image, check that the docker image exists. You may be able to find the img in my-project.",
        Consequence.FINAL,
        "NoImage: gcloud does not show xpk the image",
    ),
    (
        "Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout\n[XPK] Task: `Creating Workload` terminated with code `1`",
        Consequence.UNKNOWN,
        "Unreachable: ",
    ),
    (
        'Error from server (InternalError): error when creating "/tmp/x": Internal error occurred: failed calling webhook "mjobset.kb.io": no endpoints available for service "jobset-webhook-service"',
        Consequence.REPEAT,
        "WebhookDown: mjobset.kb.io",
    ),
    (
        "[XPK] Service account: xpk-sa already exists. Skipping its creation.\n[XPK] Role: pod-reader already exists. Skipping its creation.\nValueError: something new\n[XPK] XPK failed, error code 1",
        Consequence.UNKNOWN,
        "Unclear: xpk says 'ValueError: something new'",
    ),
    (
        "[XPK] w already exists, do you want to overwrite it? (y/N): Traceback (most recent call last):\nEOFError: EOF when reading a line",
        Consequence.REPEAT,
        "Deleting: Kueue still has a workload of this name",
    ),
    ("", Consequence.UNKNOWN, "Unclear: xpk says 'nothing'"),
]


@pytest.mark.parametrize(("text", "consequence", "reason"), TEXTS)
def test_output_of_xpk_that_created_nothing_has_a_consequence(text: str, consequence: Consequence, reason: str) -> None:
    reply = xpk_calls.conclusion(text, OWN)
    assert (reply.consequence, reply.reason[: len(reason)]) == (consequence, reason)
    assert bool(reply.fix) == (consequence is Consequence.FINAL)
