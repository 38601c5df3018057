"""A dry run on GKE against the run itself: every call that creates, changes or deletes something, in order, on a simulated cloud and cluster."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from podwright.rundir import read_jsonl
from tests.bucket import EmulatedBucket
from tests.e2e.conftest import Bench
from tests.e2e.trainer import DEMO, ROOT
from tests.lab.gcloud.control import Folder, Gcloud
from tests.lab.kube import controllers, samples
from tests.lab.kube.control import Kube

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
ZONE = "us-central1-ai1a"
TARGET = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": [ZONE],
    "topology": "tpu7x-2x2x2",
    "reservations": ["r-1"],
}
READS = {"can-i", "get", "describe", "list", "logs", "version"}
CHAOS = ROOT / "tests" / "e2e" / "chaos_trainer.py"
PYTHON = f"""#!/bin/sh
[ "$1" = -m ] || exit 1
shift 2
[ "$JAX_PROCESS_ID" = 0 ] || exit 0
PYTHONPATH={ROOT} exec {sys.executable} {CHAOS} "$@"
"""
"""in the pods: a trainer without a model, in the first of two processes"""


KUBECTL = f"""#!{sys.executable}
import json, subprocess, sys, time
text = sys.stdin.read() if "--filename=-" in sys.argv else ""
body = json.loads(text or "{{}}")
objects = [body["kind"] + "/" + body["metadata"]["name"]] if body else []
with open(__file__ + ".txt", "a") as f:
    f.write(json.dumps({{"time": time.time(), "argv": ["kubectl", *sys.argv[1:], *objects]}}) + "\\n")
sys.exit(subprocess.run(["{shutil.which("kubectl")}", *sys.argv[1:]], input=text, text=True).returncode)
"""


class Calls(Bench):
    """`podwright` on a simulated cloud. Each call of kubectl is written down, with the object that it reads, before it is made."""

    launch = ROOT / "tests" / "lab" / "launch_gke.py"

    def __init__(self, folder: Path, kube: Kube, gcloud: Gcloud, bucket: EmulatedBucket):
        super().__init__(folder)
        self.kube, self.gcloud = kube, gcloud
        own = {"CHAOS_STEP_S": "0.1", "CHAOS_EVERY": "1", "CHAOS_SAVE_S": "0", "CHAOS_FACTS": str(folder / "facts")}
        own |= bucket.environment
        entry = TARGET | {"bucket": f"{bucket.url}/runs", "env": list(own)}
        (folder / "targets.yaml").write_text(yaml.safe_dump({"pod": entry}))
        for name, text in {
            "image/python": PYTHON,
            "image/pip": "#!/bin/sh\n",
            "bin/kubectl": KUBECTL,
        }.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (folder / "bin" / "kubectl.txt").touch()
        kube.set(path=[str(folder / "image")])
        clouds = kube.environment | gcloud.environment
        clouds["PATH"] = f"{folder}/bin:{clouds['PATH']}"
        self.environment = own | clouds | {"PODWRIGHT_TARGETS": str(folder / "targets.yaml")}

    def start(self, *argv: str, **env: str) -> "subprocess.Popen[str]":
        return super().start(*argv, **self.environment, **env)

    def made(self) -> list[list[str]]:
        """The calls of both tools, in order."""
        rows = [json.loads(line) for line in (self.folder / "bin" / "kubectl.txt").read_text().splitlines()]
        rows += [row | {"argv": ["gcloud", *row["argv"]]} for row in self.gcloud.calls()]
        return [row["argv"] for row in sorted(rows, key=lambda row: row["time"])]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Calls]:
    with (
        Folder(tmp_path) as folder,
        Gcloud(folder) as gcloud,
        Kube(tmp_path, controllers=True, project="my-project", cluster="my-cluster") as kube,
        EmulatedBucket() as bucket,
    ):
        gcloud.cluster("my-cluster", "us-central1", project="my-project", zones=(ZONE,))
        gcloud.reservation("r-1", ZONE, 2, project="my-project")
        for each in samples.priority_classes():
            kube.create(each)
        calls = Calls(tmp_path, kube, gcloud, bucket)
        yield calls
        calls.close()


def plain(calls: Sequence[Sequence[str]]) -> list[list[str]]:
    """Without reads, and with names in place of what differs between a dry run and a run. A call that was repeated until it was confirmed
    counts once."""
    names = {
        r"(?<=pw-r-)[0-9a-f]{8}|(?<=podwright-run=)[0-9a-f]{8}": "TAG",
        r"1\.\d+\.\d+-gke\.\d+": "MASTER_VERSION",
        r"(?<=podwright-expires=)\d+": "TIME",
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UID",
    }
    different: list[list[str]] = []
    for argv in calls:
        text = json.dumps(list(argv))
        for pattern, name in names.items():
            text = re.sub(pattern, name, text)
        words = json.loads(text)
        if words not in different and not READS & set(words):
            different.append(words)
    return different


def test_a_dry_run_prints_every_call_of_a_run_without_faults_in_order(bench: Calls) -> None:
    words = ("run", DEMO, "training.max_steps=2", "mesh.fsdp=16", "--on", "pod", "--name", "r", "--force")
    code, out, err = bench.call(*words, "--dry-run", "--json")
    assert code == 0, err
    shown = json.loads(out)["calls"]
    objects = [[f"{of['kind']}/{of['metadata']['name']}"] if (of := call["manifest"]) else [] for call in shown]
    expected = plain([[*call["argv"], *more] for call, more in zip(shown, objects, strict=True)])
    assert not (bench.folder / "runs").exists() and plain(bench.made()) == [] and len(expected) == len(shown)

    code, out, err = bench.call(*words)
    assert code == 0, (out[-2000:], err[-2000:])
    assert [r["ending"] for r in read_jsonl(bench.path("journal.jsonl")) if r["event"] == "ended"] == ["FINISHED"]
    assert plain(bench.made()) == expected
    assert bench.gcloud.resources() == [] and [row["name"] for row in bench.gcloud.pools()] == ["default-pool"]
    kinds = {argv[-1].partition("/")[0] for argv in expected if "create" in argv and argv[0] == "kubectl"}
    assert kinds == {"ResourceFlavor", "ClusterQueue", "LocalQueue", "Secret", "ConfigMap", "JobSet"}
    resources = ("resourceflavors", "clusterqueues", "localqueues", "secrets", "configmaps", "jobsets", "pods")
    assert not any(bench.kube.objects(resource) for resource in resources)
