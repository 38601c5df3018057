"""Values of variables that a target passes on reach the trainer and nothing else: no file, no command line, no request, no log, no bucket, and
neither the metadata of a slice nor the records of the cloud."""

import json
import os
import secrets
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.bucket import EmulatedBucket
from tests.e2e.conftest import LAUNCH, wait_for
from tests.e2e.test_tpu_vm import TpuBench, endings, gcloud, lab  # noqa: F401
from tests.lab import cloud, tpu_python
from tests.lab.gcloud import store
from tests.lab.gcloud.control import Gcloud

pytestmark = pytest.mark.skipif(bool(cloud.missing()), reason=cloud.missing() or "there is a lab")
LARGEST = 4 << 20


class Watch:
    """Looks for a text in command lines of all processes, in all files below some folders and in a bucket, again and again until the block
    ends."""

    def __init__(self, canary: str, bucket: EmulatedBucket, *folders: Path) -> None:
        self._canary = canary.encode()
        self._bucket = bucket
        self._folders = folders
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.hits: set[str] = set()
        self.environments: set[str] = set()
        """command lines of processes that have the text in their environment, as they should"""
        self.files: set[str] = set()
        """names of those that were looked into"""
        self.objects: set[str] = set()
        """names of those of the bucket that were looked into"""

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self._look()

    def _look(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            command = _read(process / "cmdline")
            if self._canary in command:
                self.hits.add(f"command line {command!r}")
            if self._canary in _read(process / "environ"):
                self.environments.add(command.decode(errors="replace"))
        for path in self._paths():
            content = _read(path)
            self.files.add(path.name)
            if self._canary in content:
                self.hits.add(str(path))
        for name in self._bucket.names():
            self.objects.add(name)
            if self._canary in name.encode() + (self._bucket.content(name) or b""):
                self.hits.add(f"object {name}")

    def _paths(self) -> Iterator[Path]:
        for folder in self._folders:
            for place, _, names in os.walk(folder):  # which does not mind that folders go meanwhile
                yield from (path for path in (Path(place) / name for name in names) if path.is_file())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(LARGEST)
    except OSError:
        return b""


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
        watch, printed = whole_life(bench, gcloud, Watch(canary, bucket, tmp_path, lab.root), given)
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
            wait_for(lambda: len(bench.steps()) > 2, 90)
            (node,) = (row["name"] for row in gcloud.resources() if row["kind"] == "node")
            gcloud.preempt(node, notice_s=5.0)
            out, err = launcher.communicate(timeout=200)
            shown = bench.call("list")[1] + bench.call("logs", "r")[1] + bench.call("report", "r")[1]
        assert launcher.returncode == 0, (out, err)
        assert [ending for ending, _ in endings(bench)] == ["PREEMPTED", "FINISHED"]
    finally:
        bench.close()
    return watch, out + err + shown
