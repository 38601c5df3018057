"""DeepSeek-V3 on 128 chips of a simulated cloud in which everything goes wrong that may: from the name of its launch script to a table row."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.gcloud.control import Gcloud
from lab.kube import controllers, samples
from lab.kube.control import Kube
from tests.e2e.conftest import wait_for
from tests.e2e.gke_cluster import A, B, MaxTextCluster, simulated_cloud
from tests.e2e.gke_inventory import inventory
from tests.unit.report.test_maxtext_report import deepseek

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
SCRIPT = r"""#!/bin/bash
set -e
export PROJECT_ID="" CLUSTER_NAME="" ZONE="" BASE_OUTPUT_DIR="" WORKLOAD_IMAGE=""
export WORKLOAD_NAME="$(printf "%.26s" "${USER//_/-}-deepseek3-671b")-$(date +%Y%m%d-%H%M)"
XLA_FLAGS="--xla_tpu_scoped_vmem_limit_kib=65536"
MAXTEXT_ARGS="model_name=deepseek3-671b per_device_batch_size=8.0 max_target_length=4096 ici_fsdp_parallelism=-1 \
remat_policy=custom decoder_layer_input=offload sa_block_kv=2048 grad_dtype=bfloat16 dataset_type=synthetic \
enable_checkpointing=False steps=10 base_output_directory=${BASE_OUTPUT_DIR} run_name=${WORKLOAD_NAME}"
xpk workload create --cluster=$CLUSTER_NAME --project=$PROJECT_ID --zone=$ZONE --workload="${WORKLOAD_NAME}" \
  --priority=very-high --max-restarts=0 --device-type=tpu7x-SLICE --num-slices=1 --docker-image="${WORKLOAD_IMAGE}" \
  --command="export LIBTPU_INIT_ARGS='${XLA_FLAGS}' && python3 -m MaxText.train MaxText/configs/base.yml ${MAXTEXT_ARGS}"
"""


class Pod(MaxTextCluster):
    """A cluster in two zones with three reservations, in which other people have pools, queues and a ConfigMap of xpk."""

    def __init__(self, folder: Path, kube: Kube, gcloud: Gcloud):
        self.gcloud, self.variables = gcloud, gcloud.environment
        super().__init__(folder, kube)
        for slice_ in ("4x4x8", "4x8x8"):
            script = folder / f"recipes/ironwood/deepseek3-671b/4k-bf16-tpu7x-{slice_}/xpk/run_recipe.sh"
            script.parent.mkdir(parents=True)
            script.write_text(SCRIPT.replace("SLICE", slice_))
        self.target(zones=[A, B], reservations=["r-1", "r-2", "r-3"], recipes=str(folder / "recipes"))
        gcloud.reservation("r-1", A, 32, project="my-project")
        gcloud.reservation("r-2", A, 32, usable=8, checked=False, project="my-project")
        gcloud.reservation("r-3", B, 32, project="my-project")

    def belongs_to_others(self) -> None:
        """Also what `xpk cluster adapt` has written for another slice, and a pool that somebody's creation has left in state ERROR."""
        for each in (*samples.priority_classes(), *samples.queues(8, topology="2x2x2")):
            self.kube.create(each)
        entries = {"tpu7x-16": "2"}
        name = {"name": "my-cluster-resources-configmap", "namespace": "default"}
        self.kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": entries})
        policy = (
            "--region=us-central1",
            "--type=HIGH_THROUGHPUT",
            "--accelerator-topology=2x2x2",
            "--project=my-project",
        )
        done = self.gcloud.call("compute", "resource-policies", "create", "workload-policy", "theirs", *policy)
        assert done.returncode == 0, done.stderr
        place: dict[str, Any] = {"zone": A, "project": "my-project"}
        self.gcloud.foreign_pool("my-cluster", "np-tpu7x-256", 32, topology="4x4x8", status="ERROR", **place)
        self.gcloud.foreign_pool("my-cluster", "np-tpu7x-16", 2, topology="2x2x2", **place)

    def settled(self) -> dict[str, Any]:
        """What there is, once the nodes of the pools are there and ready."""
        wait_for(lambda: len(self.kube.objects("nodes")) == 3)
        seen = [inventory(self.gcloud, self.kube)]

        def is_still() -> bool:
            seen.append(inventory(self.gcloud, self.kube))
            return seen[-1] == seen[-2]

        wait_for(is_still)
        return seen[-1]

    def refusals(self) -> dict[str, str]:
        """The reason of each by its place; that of a request which was given up on the way counts for the place of the request."""
        places = {event["allocation"]: event["request"]["zone"] for event in self.events("allocation requested")}
        return {places[event["allocation"]]: event["reason"] for event in self.events("allocation refused")}


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with simulated_cloud(tmp_path, A, B) as (kube, gcloud):
        bench = Pod(tmp_path, kube, gcloud)
        yield bench
        bench.close()


@pytest.mark.long
def test_every_fault_of_a_pod_is_survived_in_one_run_and_nothing_of_others_changes(pod: Pod) -> None:
    """The cluster is busy; reservation r-1 is used up, and its pool is left in state ERROR by a launcher that is killed; r-2 keeps a pool
    that would fill itself later; r-3 is in the other zone. The ConfigMap of xpk has no entry for the slice."""
    pod.belongs_to_others()
    before = pod.settled()
    assert "configmaps/default/my-cluster-resources-configmap" in before["objects"]
    assert [row["name"] for row in before["pools"]] == ["default-pool", "np-tpu7x-16", "np-tpu7x-256"]
    pod.logs(deepseek() + "\nEXIT_CODE=0")
    pod.gcloud.busy("my-cluster", 3600.0)
    pod.gcloud.pool_outcome("reservation-capacity")
    words = ("run", "deepseek3-671b-bf16-4x4x8", "--on", "pod", "--name", "r")
    launcher = pod.start(*words, LAUNCH_DIES="before:allocation refused")
    wait_for(lambda: any(call["rc"] and "create" in call["argv"] for call in pod.gcloud.calls()))
    time.sleep(3.0)  # for which the launcher says why it waits
    pod.gcloud.idle("my-cluster")
    shown, err = launcher.communicate()
    assert launcher.returncode == -9 and "ClusterBusy: the cluster works on operation-" in shown, shown + err
    (left,) = [row for row in pod.gcloud.pools() if not row["foreign"]]
    assert (left["status"], left["reservation"]) == ("ERROR", "r-1")

    code, out, err = pod.call("resume", "r")
    assert code == 0, out + err
    refused = pod.refusals()
    assert list(refused) == [f"{A}/r-1", f"{B}/r-1", f"{A}/r-2", f"{B}/r-2", f"{A}/r-3"], refused
    assert "has not enough free machines" in refused[f"{A}/r-1"] and "fill itself later" in refused[f"{A}/r-2"]
    assert pod.events("allocation ready")[0]["hosts"] and {row["zone"] for row in pod.gcloud.ledger()} == {B}
    assert len(pod.gcloud.ledger()) == 32, "the pool that would fill itself later never did"
    done = [call["argv"] for call in pod.gcloud.calls() if call["rc"] == 0 and "node-pools" in call["argv"]]
    changes = [argv[argv.index("node-pools") + 1] for argv in done if {"create", "delete"} & set(argv)]
    assert changes == ["create", "delete"] * 3, "what is left of one reservation goes before the next is tried"

    assert [event["ending"] for event in pod.events("ended")] == ["FINISHED"]
    assert pod.steps() == list(range(10)) and pod.standing()["step"] == 10
    result = json.loads(pod.path("report/result.json").read_text())
    assert result["published"]["step_s"] == 27.02 and result["usage"]["chip_hours"] > 0
    code, out, err = pod.call("report", "r", "--readme", "README.md")
    assert code == 0 and "published: Step Time (s) 27.020, measured 27.420 (+1.5 %)" in out, out + err
    row = next(line for line in (pod.folder / "README.md").read_text().splitlines() if "27.420" in line)
    assert row.startswith("|") and "4k-bf16-tpu7x-4x4x8" in row

    assert pod.settled() == before
