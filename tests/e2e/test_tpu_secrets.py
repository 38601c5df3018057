"""Values of variables that a target passes on reach the trainer and nothing else: no file, no command line, no request, no log, no bucket, and
neither the metadata of a slice nor the records of the cloud."""

import json
import secrets
from dataclasses import asdict
from pathlib import Path

import pytest

from lab import cloud, tpu_python
from lab.bucket import EmulatedBucket
from lab.gcloud import store
from lab.gcloud.control import Gcloud
from tests.canary import Watch
from tests.e2e.conftest import LAUNCH, wait_for
from tests.e2e.test_tpu_vm import TpuBench, endings, gcloud, lab  # noqa: F401

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")


@pytest.mark.long
def test_a_secret_is_in_no_file_no_command_line_and_no_request_of_a_whole_life(
    gcloud: Gcloud,  # noqa: F811
    lab: cloud.Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canary = f"canary-{secrets.token_hex(8)}"
    given = {"HF_TOKEN": f"{canary}-hub", "MY_KEY": f"{canary}-key", "NOT_PASSED_ON": f"{canary}-other"}
    names = ["HF_TOKEN", "MY_KEY", "STANDIN_STEP_S"]
    python = str(tpu_python.write(lab.root, LAUNCH.with_name("standin.py")))
    with EmulatedBucket(host=lab.gateway) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        bench = TpuBench(tmp_path, python=python, setup=[], env=names, storage=f"{bucket.url}/runs")
        watch, printed = whole_life(bench, gcloud, Watch(canary, tmp_path, lab.root, bucket=bucket), given)
        requests = json.dumps([asdict(request) for request in bucket.log])
    assert watch.hits == set() and canary not in printed + requests
    assert canary not in json.dumps(gcloud.calls()) + json.dumps(store.read(lab.root)), "requests, metadata, the ledger"
    trainers = [command for command in watch.environments if "standin.py" in command]
    assert trainers, "the trainer has it"
    assert {"journal.jsonl", "start.sh", "recipe.json", "calls.jsonl", "state.json"} <= watch.files, "was looked into"
    assert any(name.startswith("metadata-") for name in watch.files), "what the metadata servers answer"
    objects = {name.rpartition("/")[2] for name in watch.objects}
    assert {"journal.jsonl", "recipe.json", "plan.json"} <= objects, objects


def whole_life(bench: TpuBench, gcloud: Gcloud, watch: Watch, given: dict[str, str]) -> tuple[Watch, str]:  # noqa: F811
    """A run that is preempted once, under watch; and what it and some verbs print."""
    try:
        with watch:
            launcher = bench.start_run(8, "mesh.fsdp=16", "--on", "tpu", STANDIN_STEP_S="0.4", **given)
            wait_for(lambda: len(bench.steps()) > 2)
            (node,) = (row["name"] for row in gcloud.resources() if row["kind"] == "node")
            gcloud.preempt(node, notice_s=5.0)
            out, err = launcher.communicate(timeout=900)
            shown = bench.call("list")[1] + bench.call("logs", "r")[1] + bench.call("report", "r")[1]
        assert launcher.returncode == 0, (out, err)
        assert [ending for ending, _ in endings(bench)] == ["PREEMPTED", "FINISHED"]
    finally:
        bench.close()
    return watch, out + err + shown
