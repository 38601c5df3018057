"""MaxText runs on a simulated cluster, from the plan to the written report; pods replay logs of MaxText."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kube import controllers
from lab.kube.control import Kube
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import MaxTextCluster
from tests.unit.report.test_maxtext_report import DEEPSEEK, deepseek, source_log

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")

DEEPSEEK_SLICE, ALMODEL_SLICE = "tpu7x-4x4x8", "tpu7x-2x4x4"
ALMODEL = {
    "model_name": "almodel-8b",
    "per_device_batch_size": "1",
    "max_target_length": "4096",
    "steps": "10",
    "profiler": "",
}
LEGAL = {"ici_fsdp_parallelism": "16", "ici_tensor_parallelism": "4", "ici_context_parallelism": "1"}
ILLEGAL = {"ici_fsdp_parallelism": "8", "ici_tensor_parallelism": "4", "ici_context_parallelism": "2"}


@pytest.fixture
def cluster(tmp_path: Path, kube: Kube) -> Iterator[MaxTextCluster]:
    bench = MaxTextCluster(tmp_path, kube)
    yield bench
    bench.close()


def test_a_public_recipe_runs_to_a_report_with_the_published_figure(cluster: MaxTextCluster) -> None:
    cluster.recipe(DEEPSEEK_SLICE, DEEPSEEK | {"steps": "10", "dataset_type": "synthetic"})
    cluster.logs(deepseek() + "\nEXIT_CODE=0")
    code, out, err = cluster.call(*cluster.typed())
    assert code == 0, out + err
    assert "maxtext 10/10" in out
    assert cluster.steps() == list(range(10)) and cluster.left() == []
    assert len(list(cluster.path("attempts/1").glob("log*.txt"))) == 32
    row = cluster.standing()
    assert (row["ending"], row["step"], row["max_steps"]) == ("FINISHED", 10, 10)
    code, out, err = cluster.call("report", "r", "--readme", "README.md")
    assert code == 0 and "published: Step Time (s) 27.020, measured 27.420 (+1.5 %)" in out, out + err
    text = (cluster.folder / "README.md").read_text()
    assert "| 4k-bf16-tpu7x-4x4x8 | bf16 | 27.420 |" in text and "27.020" in text
    code, out, _ = cluster.call("logs", "r")
    assert code == 0 and out.count("completed step") == 10


def test_a_mesh_that_does_not_come_out_is_refused_before_anything_is_created(cluster: MaxTextCluster) -> None:
    cluster.recipe(ALMODEL_SLICE, ALMODEL | ILLEGAL)
    code, _, err = cluster.call(*cluster.typed())
    assert code == 3 and "arguments.ici_fsdp_parallelism=16 arguments.ici_context_parallelism=1" in err, err
    assert not cluster.path().exists() and not cluster.created()


@pytest.mark.parametrize("exit_code", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_end_of_the_data_is_recognized_at_every_exit_code(cluster: MaxTextCluster, exit_code: int) -> None:
    cluster.recipe(ALMODEL_SLICE, ALMODEL | LEGAL)
    cluster.logs(source_log().replace("EXIT_CODE=1", f"EXIT_CODE={exit_code}"), exit_code)
    code, out, err = cluster.call(*cluster.typed())
    assert code == 1, out + err
    row = cluster.standing()
    assert (row["ending"], row["step"], row["max_steps"]) == ("OUT_OF_DATA", 7, 10)
    assert row["detail"].startswith("7 of 10 steps; then the training data ended") and "arguments.steps" in row["fix"]
    result = json.loads(cluster.path("report/result.json").read_text())
    assert result["steady_state"]["tflops_per_device"] == pytest.approx(11.07, abs=0.03)
    assert result["steady_state"]["logged_tflops_per_device"] == pytest.approx(32.0, abs=0.02)
    assert cluster.left() == []


@pytest.mark.long
def test_a_killed_launcher_loses_and_doubles_no_step(cluster: MaxTextCluster) -> None:
    cluster.recipe("tpu7x-2x2x2", {"model_name": "toy", "steps": "10"})
    cluster.logs(deepseek() + "\nEXIT_CODE=0", lines_per_s=1.0)
    launcher = cluster.start(*cluster.typed())
    wait_for(lambda: len(cluster.steps()) > 1)
    os.kill(launcher.pid, signal.SIGKILL)
    cluster.kube.fault("cut", resource="pods/log", lines=2, calls=6)
    row = cluster.standing()
    assert row["state"] == "running" and 2 <= row["step"] <= 10
    code, out, err = cluster.call("watch", "r")
    assert code == 0, out + err
    assert cluster.steps() == list(range(10)) and cluster.standing()["ending"] == "FINISHED"
    assert cluster.path("attempts/1/log.txt").read_text().count("completed step") == 10


def test_a_dry_run_shows_the_jobset_and_creates_nothing(cluster: MaxTextCluster) -> None:
    changes = {"environment": {"REGION": "${REGION}"}}
    cluster.recipe(DEEPSEEK_SLICE, DEEPSEEK | {"dataset_type": "synthetic"}, **changes)
    code, _, err = cluster.call(*cluster.typed("--dry-run"))
    assert code == 2 and "the recipe has no value of REGION; type REGION=VALUE" in err
    code, out, err = cluster.call(*cluster.typed("REGION=here", "--smoke", "3", "--dry-run", "--json"))
    assert code == 0 or "inconclusive" in out, out + err
    calls = json.loads(out)["calls"]
    (text,) = [json.dumps(call["manifest"]) for call in calls if call["manifest"]]
    assert "REGION=here" in text and "steps=3" in text and "${WORKLOAD_NAME}" not in text
    assert not cluster.path().exists() and not cluster.created()
