"""The objects that an attempt of a MaxText run creates in a cluster."""

from pathlib import Path
from typing import Any

import pytest

from podwright.errors import UserError
from podwright.recipe.maxtext.schema import MaxTextRecipe
from podwright.targets.base import Job
from podwright.targets.gke import attempt, jobset
from tests.unit.recipe.maxtext.example import example
from tests.unit.targets.gke.entry import gke

NAME = "pw-r-12345678-a1"


def made(
    tmp_path: Path, recipe: MaxTextRecipe, queue: str = "q", pinned: bool = False, **own: Any
) -> attempt.AttemptObjects:
    job = Job(tmp_path, 1, tmp_path, recipe=recipe.model_dump(mode="json"))
    return attempt.attempt_of(job, gke(**own), NAME, "12345678", queue, pinned)


def pod_of(manifest: jobset.Manifest) -> dict[str, Any]:
    template: dict[str, Any] = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def test_a_maxtext_attempt_is_the_rendered_jobset_with_the_limits_and_labels_of_a_run(tmp_path: Path) -> None:
    recipe = example()
    result = made(tmp_path, recipe)
    manifest, spec = result.jobset, result.jobset["spec"]
    assert manifest["metadata"]["name"] == NAME and (result.before, result.after) == ((), ())
    labels = {"podwright-run": "12345678", "podwright-attempt": "1"}
    for of in (manifest["metadata"], spec["replicatedJobs"][0]["template"]["metadata"], pod_of(manifest)["metadata"]):
        assert of["labels"].items() >= labels.items() and of["labels"]["podwright-by"]
    assert manifest["metadata"]["labels"][jobset.QUEUE_LABEL] == "q"
    assert spec["ttlSecondsAfterFinished"] == 3600 and spec["failurePolicy"]["maxRestarts"] == 0
    assert spec["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] == 7 * 86400
    pod = pod_of(manifest)["spec"]
    assert result.container == pod["containers"][0]["name"]
    assert "${" not in pod["containers"][0]["command"][2].replace("${TPU_WORKER_ID}", "")
    assert "run_name=pw-r-12345678 " in pod["containers"][0]["command"][2]
    assert "gs://my-bucket/runs" in pod["containers"][0]["command"][2]


def test_pods_go_to_the_pools_of_the_run_where_it_has_some_and_wait_in_its_queue(tmp_path: Path) -> None:
    assert pod_of(made(tmp_path, example(), pinned=True).jobset)["spec"]["nodeSelector"]["podwright-run"] == "12345678"
    free = made(tmp_path, example(), queue="").jobset
    assert "podwright-run" not in pod_of(free)["spec"]["nodeSelector"]
    assert jobset.QUEUE_LABEL not in free["metadata"]["labels"]


def test_restarts_of_the_recipe_are_left_to_the_retries_of_the_run(tmp_path: Path) -> None:
    result = made(tmp_path, example(xpk={"max-restarts": "3", "ttl-seconds-after-finished": "1"}))
    assert result.jobset["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert result.jobset["spec"]["ttlSecondsAfterFinished"] == 3600


@pytest.mark.parametrize(
    ("changes", "own", "message"),
    [
        ({}, {"image": ""}, "has no image"),
        ({"xpk": {"use-pathways": ""}}, {}, "only xpk carries out --use-pathways"),
    ],
)
def test_what_cannot_be_submitted_is_one_line(
    tmp_path: Path, changes: dict[str, Any], own: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(tmp_path, example(**changes), **own)
