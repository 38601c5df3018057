"""The objects that an attempt creates in a cluster."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe import kinds, load
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.run.attempt_job import job_of
from podwright.rundir import Record, RunDir, write_json
from podwright.shell import Shell
from podwright.targets.base import Job, Polled, Process, Stopped, run_tag
from podwright.targets.gke import attempt, attempt_parts, jobset
from podwright.targets.gke import target as target_module
from podwright.targets.gke.target import Gke
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import gke

NAME = "pw-r-12345678-a1"


def made(tmp_path: Path, recipe: MaxTextRecipe, allocation: str = "", **own: Any) -> attempt.AttemptObjects:
    job = Job(tmp_path, 1, tmp_path, recipe=recipe.model_dump(mode="json"), allocation=allocation)
    return attempt.attempt_of(job, gke(**own), NAME)


def pod_of(manifest: jobset.Manifest) -> dict[str, Any]:
    template: dict[str, Any] = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def test_a_maxtext_attempt_is_the_rendered_jobset_with_the_limits_and_labels_of_a_run(tmp_path: Path) -> None:
    recipe = example()
    result = made(tmp_path, recipe)
    manifest, spec = result.jobset, result.jobset["spec"]
    assert manifest["metadata"]["name"] == NAME and result.before == ()
    labels = {"podwright-run": run_tag(tmp_path, 0.0), "podwright-attempt": "1"}
    for of in (manifest["metadata"], spec["replicatedJobs"][0]["template"]["metadata"], pod_of(manifest)["metadata"]):
        assert of["labels"].items() >= labels.items() and of["labels"]["podwright-by"]
    assert manifest["metadata"]["labels"][jobset.QUEUE_LABEL] == "multislice-queue"
    assert spec["ttlSecondsAfterFinished"] == 3600 and spec["failurePolicy"]["maxRestarts"] == 0
    assert spec["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] == 7 * 86400
    pod = pod_of(manifest)["spec"]
    assert "${" not in pod["containers"][0]["command"][2].replace("${TPU_WORKER_ID}", "")
    assert "run_name=pw-r-12345678 " in pod["containers"][0]["command"][2]
    assert "gs://my-bucket/runs" in pod["containers"][0]["command"][2]


def test_pools_of_a_run_have_a_workload_policy_of_their_own(tmp_path: Path) -> None:
    selectors = [
        pod_of(made(tmp_path, example(), allocation).jobset)["spec"]["nodeSelector"] for allocation in ("", "pools")
    ]
    assert [jobset.POLICY_LABEL in selector for selector in selectors] == [True, False]


def test_pods_go_to_the_pools_of_the_run_where_it_has_some_and_wait_in_its_queue(tmp_path: Path) -> None:
    pinned = made(tmp_path, example(), "pools").jobset
    selector = pod_of(pinned)["spec"]["nodeSelector"]
    assert selector["podwright-run"] == run_tag(tmp_path, 0.0)
    assert jobset.POLICY_LABEL not in selector, "its pools have a policy of their own"
    assert pinned["metadata"]["labels"][jobset.QUEUE_LABEL] == "pools"
    assert "podwright-run" not in pod_of(made(tmp_path, example()).jobset)["spec"]["nodeSelector"]


def test_restarts_of_the_recipe_are_left_to_the_retries_of_the_run(tmp_path: Path) -> None:
    result = made(tmp_path, example(xpk={"max-restarts": "3", "ttl-seconds-after-finished": "1"}))
    assert result.jobset["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert result.jobset["spec"]["ttlSecondsAfterFinished"] == 3600


@pytest.mark.parametrize(
    ("changes", "own", "message"),
    [
        ({}, {"image": ""}, "has no value of WORKLOAD_IMAGE; set image"),
        ({"xpk": {"use-pathways": ""}}, {}, "only xpk carries out --use-pathways"),
        ({"xpk": {"workload": "zzz"}}, {}, "a recipe cannot set xpk.workload: a run has a name of its own"),
        ({"xpk": {"priority": "$(id)"}}, {}, "is no name of a PriorityClass"),
    ],
)
def test_what_cannot_be_submitted_is_one_line(
    tmp_path: Path, changes: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(tmp_path, example(**changes), **own)


V6E: dict[str, Any] = {"topology": "v6e-16", "machine_type": "ct6e-standard-4t"}
URL = "gs://my-bucket/runs/r-1"


def own(
    path: Path, storage: str = URL, recipe: str = "qwen3-tiny-arithmetic-grpo", **settings: Any
) -> attempt.AttemptObjects:
    """Of a recipe that podwright trains, in the directory `path` of its run."""
    record = load.load(recipe, []).model_dump(mode="json")
    job = job_of(
        kinds.find(record["kind"]), record, path, 2, path, 0.0, storage=storage, allocation="pools", takeover=True
    )
    return attempt.attempt_of(job, gke(**{**V6E, **settings}), NAME)


def test_an_attempt_of_our_trainer_has_its_code_and_the_files_of_its_run_in_a_config_map(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "r")
    write_json(run.path / "inputs.json", {"data.source": "inputs/x/data"})
    write_json(run.profiled, [3])
    result = own(run.path)
    (code,) = result.before
    assert code["metadata"]["name"] == NAME and code["metadata"]["labels"]["podwright-run"] == run_tag(run.path, 0.0)
    files = {name: json.loads(text) for name, text in code["data"].items() if name.endswith(".json")}
    assert files.pop("recipe.json")["kind"] == "grpo"
    assert files == {"storage.json": {"url": URL}, "inputs.json": {"data.source": "inputs/x/data"}, "profile.json": [3]}
    pod = pod_of(result.jobset)["spec"]
    (container,) = pod["containers"]
    options = f"--attempt 2 --storage {URL} --allocation pools --takeover"
    assert (
        " ".join(container["command"]) == f"bash /podwright/start.sh runs/r python -m podwright.train runs/r {options}"
    )
    assert [each["secretRef"] for each in container["envFrom"]] == [
        {"name": "podwright-env", "optional": True},
        {"name": NAME, "optional": True},
    ]
    assert result.variables == ("HF_TOKEN",) and pod["terminationGracePeriodSeconds"] == 180
    assert {"name": "code", "configMap": {"name": NAME, "defaultMode": 0o755}} in pod["volumes"]


def test_attempts_meet_at_ports_of_their_own(tmp_path: Path) -> None:
    recipe = load.load("qwen3-tiny-arithmetic-grpo", [])
    job, settings = Job(tmp_path, 1, tmp_path, recipe=recipe.model_dump(mode="json"), storage=URL), gke(**V6E)
    texts = [attempt.attempt_of(job, settings, f"pw-r-12345678-a{n}").before[0]["data"]["start.sh"] for n in (1, 2)]
    ports = {re.search(r"JAX_COORDINATOR_ADDRESS=.*:(\d+) ", text)[1] for text in texts}  # type: ignore[index]
    assert len(ports) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"storage": ""}, "has no bucket, and the disk of a pod ends with it; set bucket="),
        ({"topology": ""}, "has no topology, and the recipe names none"),
    ],
)
def test_what_pods_cannot_train_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        own(tmp_path / "r", **changes)
    assert message in str(refused.value)


class Kubectl(Shell):
    """kubectl that fails with `failure`, or prints `items`."""

    def __init__(self, failure: str = "", items: Sequence[Record] = ()):
        super().__init__()
        self.failure, self.items = failure, items
        self.asked = list[list[str]]()

    def ask(self, argv: Sequence[str], *_: Any, **__: Any) -> tuple[int, str, str]:
        self.asked.append([word for word in argv if not word.startswith(("--context", "--namespace", "--request"))])
        return int(bool(self.failure)), json.dumps({"kind": "List", "items": self.items}), self.failure


def handle_of(run: RunDir) -> Record:
    handle = {"run_dir": str(run.path), "attempt": 1, "jobset": "pw-r-a1", "tag": "t", "kinds": ["jobsets"]}
    return handle | {"pods": 1, "processes": 1, "pods_per_job": 1, "queue": ""}


@pytest.mark.parametrize("force", [False, True])
def test_a_stop_of_an_attempt_without_a_folder_is_acknowledged_and_asks_no_cluster(tmp_path: Path, force: bool) -> None:
    shell, run = Kubectl(), RunDir(tmp_path / "r")
    target, handle = Gke(shell, "pod", gke(**V6E)), handle_of(run)
    assert target.stop(handle, force=force) == Stopped(True) and target.release(handle).done
    assert target.poll(handle).process is Process.ABSENT and shell.asked == [] and not run.path.exists()
    run.attempt(1).mkdir(parents=True)
    assert target.stop(handle) == Stopped(True) and "delete" in shell.asked[0], "this one may have created its JobSet"


@pytest.mark.parametrize(
    ("failure", "acknowledged"),
    [
        ("", True),
        ('Error from server (NotFound): jobsets.jobset.x-k8s.io "pw-r-a1" not found', True),
        (
            'Error from server (Forbidden): jobsets.jobset.x-k8s.io "pw-r-a1" is forbidden: User "u" cannot delete',
            False,
        ),
        ("Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout", False),
    ],
)
def test_a_stop_counts_only_when_the_cluster_has_deleted_the_jobset_or_has_none(
    tmp_path: Path, failure: str, acknowledged: bool
) -> None:
    shell, run = Kubectl(failure), RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    stopped = Gke(shell, "pod", gke(**V6E)).stop(handle_of(run), force=True)
    assert stopped.acknowledged is acknowledged and bool(stopped.reason) is not acknowledged
    kinds = [words[words.index("delete") + 1] for words in shell.asked]
    assert kinds == (["jobset", "pods"] if acknowledged else ["jobset"]) and (run.attempt(1) / "stop").exists()


def test_an_ended_attempt_waits_for_its_logs_as_long_as_a_cluster_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {"conditions": [{"type": "Completed", "status": "True"}]}
    jobset_ = {"kind": "JobSet", "metadata": {"name": "pw-r-a1", "labels": {}}, "spec": {}, "status": status}
    own, run = Gke(Kubectl(items=[jobset_]), "pod", gke(**V6E)), RunDir(tmp_path / "r")
    run.attempt(1).mkdir(parents=True)
    monkeypatch.setattr(own, "_bring_logs", lambda *_: "pod p-0 does not answer")
    for _ in range(2):
        polled = own.poll(handle_of(run))
        assert (polled.process, polled.waiting) == (Process.RUNNING, "Gathering: pod p-0 does not answer")
    later = time.monotonic() + target_module.GATHER_LIMIT_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert own.poll(handle_of(run)) == Polled(Process.ENDED, 0)


def test_an_attempt_that_an_earlier_version_submitted_by_xpk_is_refused_with_its_jobset() -> None:
    handle = {"jobset": "pw-r-a1", "tag": "t", "attempt": 1, "kinds": ["jobsets"], "by_xpk": True}
    with pytest.raises(UserError, match="type kubectl delete jobset pw-r-a1"):
        attempt_parts.deletion(handle)
