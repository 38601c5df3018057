"""A dry run on GKE against the run itself: every call that creates, changes or deletes something, in order and in number, with what it sends to
the cluster, on a simulated cloud and cluster."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.bucket import EmulatedBucket
from lab.gcloud.control import Gcloud
from lab.kube import controllers, samples
from lab.kube.control import Kube
from podwright.rundir import read_jsonl
from tests import real_xpk
from tests.e2e.conftest import Bench
from tests.e2e.gke_calls import Recorded
from tests.e2e.gke_cluster import simulated_cloud
from tests.e2e.trainer import DEMO, ROOT
from tests.unit.recipe.maxtext.example import example
from tests.unit.report.test_maxtext_report import deepseek

pytestmark = pytest.mark.skipif(bool(controllers.missing()), reason=controllers.missing() or "there are pods")
ZONE = "us-central1-ai1a"
SLICE = "tpu7x-2x2x2"
TARGET = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": [ZONE],
    "topology": SLICE,
    "reservations": ["r-1"],
    "image": "registry.example/maxtext:v1",
}
READS = {"can-i", "get", "describe", "list", "logs", "version", "--dry-run"}
CHAOS = ROOT / "tests" / "e2e" / "chaos_trainer.py"
PYTHON = f"""#!/bin/sh
[ "$1" = -m ] || exit 1
shift 2
[ "$JAX_PROCESS_ID" = 0 ] || exit 0
PYTHONPATH={ROOT} exec {sys.executable} {CHAOS} "$@"
"""
"""in the pods: a trainer without a model, in the first of the processes"""
OWN = ("run", DEMO, "training.max_steps=2", "--on", "pod", "--name", "r", "--force")
MAXTEXT = ("run", "recipe.yaml", "--on", "pod", "--name", "r", "--force")


class Calls(Bench):
    """`podwright` on a simulated cloud. Each call of a tool is written down, with the object that it reads."""

    launch = ROOT / "lab" / "launch_gke.py"

    def __init__(self, folder: Path, kube: Kube, gcloud: Gcloud, bucket: EmulatedBucket):
        super().__init__(folder)
        self.kube, self.gcloud, self.emulated = kube, gcloud, bucket
        own = {"CHAOS_STEP_S": "0.1", "CHAOS_EVERY": "1", "CHAOS_SAVE_S": "0", "CHAOS_FACTS": str(folder / "facts")}
        self.own, self.more = own | bucket.environment, dict[str, str]()
        self.bucket = f"{bucket.url}/runs"
        image = folder / "image"
        image.mkdir()
        for name, text in {"python": PYTHON, "pip": "#!/bin/sh\n"}.items():
            (image / name).write_text(text)
            (image / name).chmod(0o755)
        kube.set(path=[str(image)])
        self.clouds = kube.environment | gcloud.environment
        self.target()
        self.record()

    def target(self, **entry: object) -> None:
        settings = TARGET | {"bucket": self.bucket, "env": list(self.own)} | entry
        (self.folder / "targets.yaml").write_text(yaml.safe_dump({"pod": settings}))

    def record(self, bodies: bool = True) -> None:
        self.calls = Recorded(self.folder / "bin", self.clouds["PATH"], bodies)

    @property
    def environment(self) -> dict[str, str]:
        files = {"PODWRIGHT_TARGETS": str(self.folder / "targets.yaml"), "HOME": str(self.folder)}
        return self.own | self.clouds | files | self.more | {"PATH": self.calls.path}

    def recipe(self, **changes: Any) -> None:
        """recipe.yaml of MaxText, and a log of ten steps in the first pod."""
        arguments = {"model_name": "toy", "steps": "10"}
        recipe = example(topology=SLICE, arguments=arguments, **({"xpk": {}} | changes)).model_dump(mode="json")
        (self.folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        (self.folder / "first.log").write_text(deepseek() + "\nEXIT_CODE=0\n")
        (self.folder / "other.log").write_text("Num_devices: 16\n")
        first = {"pod": "*-0-0-*", "file": str(self.folder / "first.log"), "wait_s": 2.0}
        other = {"pod": "*", "file": str(self.folder / "other.log"), "wait_s": 3.0}
        self.kube.set(replay=[first, other])

    def start(self, *argv: str, **env: str) -> "subprocess.Popen[str]":
        return super().start(*argv, **self.environment, **env)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Calls]:
    with simulated_cloud(tmp_path, ZONE) as (kube, gcloud), EmulatedBucket() as bucket:
        gcloud.reservation("r-1", ZONE, 4, project="my-project")
        for each in samples.priority_classes():
            kube.create(each)
        calls = Calls(tmp_path, kube, gcloud, bucket)
        yield calls
        calls.close()


NAMES = {
    r"(pw-r-|podwright-run=|/r-)[0-9a-f]{8}": r"\1TAG",
    r'(podwright-run\\*": \\*")[0-9a-f]{8}': r"\1TAG",
    r"1\.\d+\.\d+-gke\.\d+": "MASTER_VERSION",
    r'(podwright-expires(?:=|\\*": \\*"))\d+': r"\1EXPIRES",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UID",
    r'("podwright-code": ")[0-9a-f]{12}': r"\1DIGEST",
    r"(hosts\[0\]\}:)\d+": r"\1PORT",
    r'inputs/[0-9a-f]{64}/[^"\\]+': "INPUT",
}
"""of what differs between a dry run and a run: numbers that a run draws, and what only the cluster knows"""


def changes(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that are no reads and were not refused, as by a busy cluster, each as a text with its object, and with names in place of what differs."""
    texts: list[str] = []
    for call in calls:
        argv, body = call["argv"], call["body"] or None
        if READS & set(argv) or call.get("code"):
            continue
        if "replace" in argv:  # of a ConfigMap that others write too
            body = {"data": body.get("data") or {}, "notes": body["metadata"].get("annotations") or {}}
        elif body and body["kind"] == "Secret":
            body = body | {"data": dict.fromkeys(body["data"], "VALUE")}
        text = json.dumps([argv, body], sort_keys=True)
        for pattern, name in NAMES.items():
            text = re.sub(pattern, name, text)
        texts.append(text)
    return texts


def is_repeated(text: str) -> bool:
    """Until it is confirmed, or until the cluster is no longer busy with another pool."""
    words = json.loads(text)[0]
    return "delete" in words or words[0] == "gcloud"


def agree(shown: list[str], made: list[str]) -> None:
    """In order, and in number unless they may be repeated."""
    for each, expected in zip_longest(dict.fromkeys(made), dict.fromkeys(shown)):
        assert each and expected, (each, expected)
        assert real_xpk.differences(json.loads(each), json.loads(expected)) == []
    counts = Counter(text for text in made if not is_repeated(text))
    assert counts == Counter(text for text in shown if not is_repeated(text))


def agrees_with_its_dry_run(bench: Calls, *words: str) -> set[str]:
    """The kinds of the objects that were created."""
    code, out, err = bench.call(*words, "--dry-run", "--json")
    assert code == 0, out + err
    calls = [{"argv": call["argv"], "body": call["manifest"]} for call in json.loads(out)["calls"]]
    assert not (bench.folder / "runs").exists() and changes(bench.calls.made()) == []
    secrets = [call["body"]["data"] for call in calls if call["body"] and call["body"]["kind"] == "Secret"]
    assert not any(value for data in secrets for value in data.values()), "no value of a variable is shown"
    code, out, err = bench.call(*words, "--dry-run")
    names = out.splitlines()[-1].rpartition(": ")[2].split(", ")
    assert set(names) == set(re.findall(r"\b(?:TAG|EXPIRES|PORT|DIGEST|MASTER_VERSION|UID|INPUT)\b", json.dumps(calls)))
    code, out, err = bench.call(*words)
    assert code == 0, (out[-2000:], err[-2000:])
    assert [r["ending"] for r in read_jsonl(bench.path("journal.jsonl")) if r["event"] == "ended"] == ["FINISHED"]
    agree(changes(calls), changes(bench.calls.made()))
    return {call["body"]["kind"] for call in calls if call["body"] and "create" in call["argv"]}


KUEUE = {"ResourceFlavor", "ClusterQueue", "LocalQueue"}
OBJECTS = {"Secret", "ConfigMap", "JobSet"}


def nothing_is_left(bench: Calls, *kinds: str) -> None:
    assert bench.gcloud.resources() == []
    assert [row["name"] for row in bench.gcloud.pools()] == ["default-pool"]
    assert not any(bench.kube.objects(kind) for kind in (*kinds, "secrets", "jobsets", "pods"))


@pytest.mark.long
def test_a_dry_run_prints_every_call_of_a_run_without_faults_in_order(bench: Calls) -> None:
    assert agrees_with_its_dry_run(bench, *OWN, "mesh.fsdp=16") == KUEUE | OBJECTS
    nothing_is_left(bench, "resourceflavors", "clusterqueues", "localqueues", "configmaps")


@pytest.mark.long
def test_a_dry_run_of_several_slices_with_a_file_of_this_machine_prints_every_call(bench: Calls) -> None:
    bench.target(topology=f"2x {SLICE}")
    (bench.folder / "mine.py").write_text(
        "def fn(prompts, completions, **columns):\n    return [0.0 for _ in completions]\n"
    )
    words = (*OWN, "mesh.fsdp=16", "mesh.data=2", "rewards=[{function: 'mine.py:fn'}]")
    assert agrees_with_its_dry_run(bench, *words) == KUEUE | OBJECTS
    nothing_is_left(bench, "resourceflavors", "clusterqueues", "localqueues", "configmaps")


@pytest.mark.long
@pytest.mark.parametrize("slices", [1, 2])
def test_a_dry_run_of_a_maxtext_recipe_prints_every_call(bench: Calls, slices: int) -> None:
    bench.recipe(num_slices=slices)
    assert agrees_with_its_dry_run(bench, *MAXTEXT) == KUEUE | {"JobSet"}
    nothing_is_left(bench, "resourceflavors", "clusterqueues", "localqueues", "configmaps")
