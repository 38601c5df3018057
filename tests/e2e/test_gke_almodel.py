"""ALModel on the slice for which its recipe is written, from the recipe's name to its report: plan without a compiler, scripts, node pools, pods
and records are real, on a simulated cloud; a stand-in for the trainer runs in the first pod."""

import json

import pytest
import yaml

from lab.kube import controllers
from podwright import slices
from tests.e2e.test_gke_dry_run import Calls, bench  # noqa: F401

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
NAME = "almodel-8b-tpu7x-64"
STEPS = 6
DATA = ("data.source=arithmetic", "data.tokenizer=bytes", "data.num_documents=300000")
"""in the place of tokens in a bucket; the plan looks how long they last"""


@pytest.mark.long
@pytest.mark.parametrize("slice_", ["tpu7x-64", "tpu7x-4x4x4"])
def test_almodel_runs_by_its_name_on_the_pods_of_its_slice(bench: Calls, slice_: str) -> None:  # noqa: F811
    parsed = slices.parse(slice_)
    bench.gcloud.reservation("r-1", "us-central1-ai1a", parsed.num_hosts, project="my-project")
    bench.target(topology=slice_, price=2.0)
    words = (NAME, *DATA, f"training.max_steps={STEPS}")
    code, out, err = bench.call("render", *words, "--on", "pod", "-o", "scripts")
    assert code == 0, out + err
    rendered = yaml.safe_load((bench.folder / "scripts" / "jobset.yaml").read_text())

    launcher = bench.start("run", *words, "--on", "pod", "--name", "r", "--json")
    out, err = launcher.communicate(timeout=900)
    assert launcher.returncode == 0, out + err
    created = [call["body"] for call in bench.calls.made() if call["body"] and "create" in call["argv"]]
    (jobset,) = [body for body in created if body["kind"] == "JobSet"]
    (queue,) = [body for body in created if body["kind"] == "ClusterQueue"]
    job, hand = (each["spec"]["replicatedJobs"][0]["template"]["spec"] for each in (jobset, rendered))
    assert job["parallelism"] == hand["parallelism"] == parsed.num_hosts
    pods, by_hand = job["template"]["spec"], hand["template"]["spec"]
    assert (
        pods["containers"][0]["resources"] == by_hand["containers"][0]["resources"] == {"limits": {"google.com/tpu": 4}}
    )
    nodes = {"cloud.google.com/gke-tpu-accelerator": "tpu7x", "cloud.google.com/gke-tpu-topology": parsed.topology}
    assert all(nodes.items() <= each["nodeSelector"].items() for each in (pods, by_hand))
    assert str(parsed.num_chips) in json.dumps(queue["spec"]["resourceGroups"])

    assert bench.steps() == list(range(1, STEPS + 1)) and bench.standing()["ending"] == "FINISHED"
    logs = list(bench.path("attempts/1").glob("log*.txt"))
    assert len(logs) == parsed.num_hosts
    result = json.loads(bench.path("report/result.json").read_text())
    assert (result["recipe"], result["kind"]) == (NAME, "pretrain") and result["loss"]
    assert bench.gcloud.chip_hours() > 0 and result["usage"]["chip_hours"] * 3600 == pytest.approx(
        bench.gcloud.chip_hours() * 3600, abs=bench.gcloud.seen_late_s() * parsed.num_chips
    )
    code, out, err = bench.call("report", "r")
    assert code == 0 and f"The run finished after {STEPS} of {STEPS} steps." in out, out + err
    assert NAME in bench.path("report/report.html").read_text()
    assert bench.gcloud.resources() == [] and not any(
        bench.kube.objects(kind) for kind in ("jobsets", "pods", "secrets")
    )
